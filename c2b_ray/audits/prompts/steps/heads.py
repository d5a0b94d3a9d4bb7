"""The data that heads learn from: activations of a generator at some denoising steps, and the values that a teacher
sees.

Prompts are split once, so that heads are measured on prompts that they have not learned from. It knows roles and
arrays; its caller passes the training function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError
from c2b_ray.roles import ActivationReader, Captioner, Floats, GenerationRequest, ImageGenerator, Question
from c2b_ray.stats.gains import BalancedAccuracy, balanced_accuracy
from c2b_ray.steps.generate import images_of
from c2b_ray.tables import content_id, seed_of

LEAST_EXAMPLES = 5
"""Images of a value that a head needs to learn it from."""
LEAST_HELD_OUT = 2
"""Images of a value that say how right a head is about it."""
DEFAULT_STEPS = 8
_AT_ONCE = 32


class Logits(Protocol):
    def logits(self, activations: Floats) -> Floats: ...


Train = Callable[[Floats, NDArray[np.int64], int], Logits]
"""A head of activations (rows, dimension), labels (rows,), and how many values there are."""


@dataclass(frozen=True)
class HeadPlan:
    """`steps`: None: eight steps from first to last. `held_out`: share of the prompts. `alpha`: of the intervals, over
    all steps of an attribute together."""

    prompts: tuple[str, ...]
    images: int
    activation: str
    steps: tuple[int, ...] | None
    held_out: float
    alpha: float
    seed: int


@dataclass(frozen=True)
class Trained:
    """The heads of an attribute by denoising step.

    `values`: those that the heads know. `step`: of the head that guides, None where all are at chance. `prompts`,
    `images`: held out.
    """

    attribute: str
    values: tuple[str, ...]
    heads: Mapping[int, Logits]
    accuracy: Mapping[int, BalancedAccuracy]
    step: int | None
    prompts: int
    images: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Examples:
    """`activations`: (images, steps, dimension). `answers`: for each attribute, "" for none. `prompt`: its number."""

    activations: Floats
    answers: Mapping[str, list[str]]
    prompt: NDArray[np.int64]


def train_heads(
    generator: ActivationReader, teacher: Captioner, questions: Mapping[str, Question], plan: HeadPlan, train: Train
) -> Iterator[int | Trained]:
    """Yields how many images are made, again and again, then the heads of each attribute; one has none where the images
    show fewer than two values often."""
    steps = plan.steps or tuple(
        int(step) for step in np.unique(np.linspace(0, generator.denoising_steps - 1, DEFAULT_STEPS).round())
    )
    examples = yield from _examples(generator, teacher, questions, plan, steps)
    held = _held_out(plan)[examples.prompt]
    for name, question in questions.items():
        yield _of_attribute(name, question, examples, held, (plan, steps, train))


def _examples(
    generator: ActivationReader,
    teacher: Captioner,
    questions: Mapping[str, Question],
    plan: HeadPlan,
    steps: Sequence[int],
) -> Generator[int, None, _Examples]:
    assert isinstance(generator, ImageGenerator)
    numbered = [(n, k) for n in range(len(plan.prompts)) for k in range(plan.images)]
    requests = [
        GenerationRequest(plan.prompts[n], seed_of("heads", plan.seed, plan.prompts[n], k)) for n, k in numbered
    ]
    activations, kept = [], []
    answers: dict[str, list[str]] = {name: [] for name in questions}
    for start in range(0, len(requests), _AT_ONCE):
        yield start
        part = requests[start : start + _AT_ONCE]
        made = [(at, image.pixels) for at, image in enumerate(images_of(generator, part)) if image.pixels is not None]
        if not made:
            continue
        seen, images = [at for at, _ in made], [pixels for _, pixels in made]
        activations.append(generator.activations([part[at] for at in seen], plan.activation, steps))
        kept += [numbered[start + at][0] for at in seen]
        for name, question in questions.items():
            said = teacher.answer(images, [question] * len(images))
            answers[name] += [answer.choice or "" for answer in said]
    yield len(requests)
    if not kept:
        raise ConfigError("heads.prompts", "the generator made no image of any prompt that heads could learn from")
    return _Examples(np.concatenate(activations), answers, np.array(kept, np.int64))


def _held_out(plan: HeadPlan) -> NDArray[np.bool_]:
    """Returns which prompts heads are measured on, chosen by hashes of the prompts, at least one on either side."""
    order = sorted(range(len(plan.prompts)), key=lambda n: content_id("held out", plan.seed, plan.prompts[n]))
    count = min(max(1, round(plan.held_out * len(order))), len(order) - 1)
    result = np.zeros(len(order), np.bool_)
    result[order[:count]] = True
    return result


def _of_attribute(
    name: str,
    question: Question,
    examples: _Examples,
    held: NDArray[np.bool_],
    how: tuple[HeadPlan, Sequence[int], Train],
) -> Trained:
    plan, steps, train = how
    said = np.array(examples.answers[name])
    learned, checked = Counter(said[~held].tolist()), Counter(said[held].tolist())
    values = tuple(v for v in question.choices if learned[v] >= LEAST_EXAMPLES and checked[v] >= LEAST_HELD_OUT)
    missing = tuple(value for value in question.choices if value not in values)
    if len(values) < 2:
        nothing = balanced_accuracy([], [], [], len(question.choices))
        return Trained(name, values, {}, {steps[0]: nothing}, None, 0, 0, missing)
    known = np.isin(said, values)
    labels = np.array([values.index(value) if value in values else 0 for value in said.tolist()], np.int64)
    learn, test = known & ~held, known & held
    heads, accuracy = {}, {}
    for at, step in enumerate(steps):
        rows = examples.activations[:, at]
        heads[step] = train(rows[learn], labels[learn], len(values))
        named = heads[step].logits(rows[test]).argmax(axis=1)
        confidence = 1 - plan.alpha / len(steps)
        accuracy[step] = balanced_accuracy(labels[test], named, examples.prompt[test], len(values), confidence)
    prompts = len(np.unique(examples.prompt[test]))
    return Trained(name, values, heads, accuracy, guiding_step(accuracy), prompts, int(test.sum()), missing)


def guiding_step(accuracy: Mapping[int, BalancedAccuracy]) -> int | None:
    """Returns the earliest step that is not clearly worse than the best one, because it costs least; None where even
    the best may be at chance."""
    known = {step: one for step, one in accuracy.items() if not np.isnan(one.value)}
    if not known:
        return None
    best = max(known.values(), key=lambda one: one.value)
    if best.low <= best.chance:
        return None
    return min(step for step, one in known.items() if one.value >= best.low and one.low > one.chance)
