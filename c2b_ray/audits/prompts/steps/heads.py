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
    is_held_out = _held_out(plan)[examples.prompt]
    for name, question in questions.items():
        yield _of_attribute(name, question, examples, is_held_out, (plan, steps, train))


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
    activations, prompt_numbers = [], []
    answers: dict[str, list[str]] = {name: [] for name in questions}
    for start in range(0, len(requests), _AT_ONCE):
        yield start
        part = requests[start : start + _AT_ONCE]
        decoded = [(i, image.pixels) for i, image in enumerate(images_of(generator, part)) if image.pixels is not None]
        if not decoded:
            continue
        positions, images = [i for i, _ in decoded], [pixels for _, pixels in decoded]
        activations.append(generator.activations([part[i] for i in positions], plan.activation, steps))
        prompt_numbers += [numbered[start + i][0] for i in positions]
        for name, question in questions.items():
            replies = teacher.answer(images, [question] * len(images))
            answers[name] += [answer.choice or "" for answer in replies]
    yield len(requests)
    if not prompt_numbers:
        raise ConfigError("heads.prompts", "the generator made no image of any prompt that heads could learn from")
    return _Examples(np.concatenate(activations), answers, np.array(prompt_numbers, np.int64))


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
    is_held_out: NDArray[np.bool_],
    settings: tuple[HeadPlan, Sequence[int], Train],
) -> Trained:
    plan, steps, train = settings
    choices = np.array(examples.answers[name])
    learned, checked = Counter(choices[~is_held_out].tolist()), Counter(choices[is_held_out].tolist())
    values = tuple(v for v in question.choices if learned[v] >= LEAST_EXAMPLES and checked[v] >= LEAST_HELD_OUT)
    missing = tuple(value for value in question.choices if value not in values)
    if len(values) < 2:
        nothing = balanced_accuracy([], [], [], len(question.choices))
        return Trained(name, values, {}, {steps[0]: nothing}, None, 0, 0, missing)
    is_known = np.isin(choices, values)
    labels = np.array([values.index(value) if value in values else 0 for value in choices.tolist()], np.int64)
    learn, test = is_known & ~is_held_out, is_known & is_held_out
    heads, accuracy = {}, {}
    for position, step in enumerate(steps):
        rows = examples.activations[:, position]
        heads[step] = train(rows[learn], labels[learn], len(values))
        predicted = heads[step].logits(rows[test]).argmax(axis=1)
        confidence = 1 - plan.alpha / len(steps)
        accuracy[step] = balanced_accuracy(labels[test], predicted, examples.prompt[test], len(values), confidence)
    prompts = len(np.unique(examples.prompt[test]))
    return Trained(name, values, heads, accuracy, guiding_step(accuracy), prompts, int(test.sum()), missing)


def guiding_step(accuracy: Mapping[int, BalancedAccuracy]) -> int | None:
    """Returns the earliest step that is not clearly worse than the best one, because it costs least; None where even
    the best may be at chance."""
    measured = {step: balanced for step, balanced in accuracy.items() if not np.isnan(balanced.value)}
    if not measured:
        return None
    best = max(measured.values(), key=lambda balanced: balanced.value)
    if best.low <= best.chance:
        return None
    return min(
        step for step, balanced in measured.items() if balanced.value >= best.low and balanced.low > balanced.chance
    )
