"""The heads of a run: trained where the generator runs, kept as files, refused as guides where their accuracy is at
chance."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.kit.models import paths_read
from c2b_ray.audits.kit.progress import IMAGES
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.estimate import checked, images_of_heads
from c2b_ray.audits.prompts.kind import AUDIT
from c2b_ray.audits.prompts.run import PromptsState, described
from c2b_ray.audits.prompts.search import Guided, head_prompts
from c2b_ray.audits.prompts.steps.search import Head
from c2b_ray.engine.images import VERIFY, of_revision
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.models.activation_heads import decoded, encoded, train_head
from c2b_ray.roles import ActivationReader, Captioner, Floats, GenerationRequest, ImageGenerator, Question
from c2b_ray.stats.gains import BalancedAccuracy, balanced_accuracy
from c2b_ray.steps.draw import images_of
from c2b_ray.storage import files, writers
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.prompts import HEADS

# The data that heads learn from: activations of a generator at some denoising steps, and the values that a teacher
# sees.


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


FOLDER = "heads"
ABOVE, AT, TOO_FEW = "above chance", "at chance", "too few images of all values but one"


@dataclass(frozen=True)
class HeadFile:
    """`data`: safetensors. `rows`: of `tables.prompts.HEADS`."""

    attribute: str
    data: bytes
    rows: list[dict[str, Any]]


def guides(work: PromptsState) -> dict[str, Guided]:
    """Returns the guide on each generator. Targets whose heads are at chance have no guide, and the run notes it.

    Raises ConfigError where no head of any generator may guide.
    """
    if work.config.guide == "judge" or "bgps" not in work.config.methods:
        return {name: Guided(None, work.judge_revision) for name in work.config.generators}
    folder = work.config.heads.files or work.run.location(FOLDER)
    if work.config.heads.files is None:
        write_heads(work, folder)
    before = len(work.notes)
    result = {name: _guided(work, name, folder) for name in work.config.generators}
    rows = [row for name in result for row in _noted_rows(work, name, folder)]
    work.run.write("heads", pa.Table.from_pylist(rows, schema=HEADS))
    if not any(guided.heads for guided in result.values()):
        why = " ".join(work.notes[before:])
        raise ConfigError(
            "heads", f"none may guide a search. {why} Raise heads.prompts or heads.images, name another "
            "heads.activation, or use `guide: judge`",
        )  # fmt: skip
    return result


def heads_alone(config: PromptsConfig, out: str | Path, session: Session) -> pa.Table:
    """Trains the heads of a config into a folder, without searching for prompts; returns the table heads.parquet,
    written beside them.

    Existing files are not trained again. Raises ConfigError where these were trained with other settings, and RunError
    where another process writes there.
    """
    config, folder = checked(config, session.via), str(out).rstrip("/")
    refuse_others(config, folder)
    files.make_directory(folder)
    with (
        writers.single_writer(folder),
        session.backend(lambda: len(config.generators) * images_of_heads(config)) as models,
    ):
        models.runner.check_paths(folder, paths_read(config, in_driver=()))
        work = described(config, AUDIT.new(folder), models, Steps(session.listener))
        write_heads(work, folder)
        rows = [row for name in config.generators for row in _noted_rows(work, name, folder)]
        table = pa.Table.from_pylist(rows, schema=HEADS)
        files.write_table(f"{folder}/heads.parquet", table)
    return table


def refuse_others(config: PromptsConfig, folder: str) -> None:
    """Raises ConfigError where the folder holds heads that were trained with other settings: they would be shown, and
    used, as those of this config."""
    for name, attribute in product(config.generators, config.attributes):
        path = path_of(folder, name, attribute)
        stored_settings = decoded(files.read_bytes(path), path)[1].get("settings") if files.exists(path) else None
        if stored_settings is not None and stored_settings != settings_of_head(
            config, name, attribute
        ):  # older versions noted nothing
            raise ConfigError("heads", f"{path} was trained with other settings; name another folder, or remove it")


def settings_of_head(config: PromptsConfig, generator: str, attribute: str) -> str:
    """Returns an id of what an attribute's heads depend on."""
    of_run = config.model_dump(mode="json", include={"subjects", "language_model", "alpha", "seed"})
    of_heads = config.heads.model_dump(mode="json", exclude={"files"}) | {
        "teacher": config.heads.teacher or config.judge
    }
    questions = config.attributes[attribute].model_dump(mode="json", include={"values", "question", "texts"})
    return content_id("heads", config.generators[generator], of_run, of_heads, questions)


def write_heads(work: PromptsState, folder: str) -> None:
    """Writes the missing files of heads, one per generator and attribute, into a folder."""
    config = work.config
    questions = work.questions
    if config.heads.teacher is None:  # also where a resumed run trains none: it finds the same heads
        work.notes.append("The judge taught the heads: it is not independent of the guide.")
    files.make_directory(folder)
    for name in config.generators:
        missing = {a: q for a, q in questions.items() if not files.exists(path_of(folder, name, a))}
        if not missing:
            continue
        heads = config.heads
        prompts = tuple(head_prompts(work, heads.prompts))
        plan = HeadPlan(
            prompts, heads.images, heads.activation, None if heads.steps is None else tuple(heads.steps),
            heads.held_out, config.alpha, config.seed,
        )  # fmt: skip
        revision = work.revisions[name]
        records = {a: {"generator_revision": revision, "settings": settings_of_head(config, name, a)} for a in missing}
        function = partial(_trained, work.generator(name), _teacher(work), missing, plan, name)
        with work.steps.counting("heads", images_of_heads(config), "images") as report_progress:
            work.run.begin_writing()
            for result in work.models.runner.iterate(partial(function, records), VERIFY):
                if isinstance(result, int):
                    report_progress(result)
                else:
                    files.write_bytes(path_of(folder, name, result.attribute), result.data)
            work.steps.count({IMAGES: images_of_heads(config)})


def path_of(folder: str, generator: str, attribute: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", f"{generator} {attribute}".lower()).strip("-")[:60]
    return f"{folder.rstrip('/')}/{slug}-{content_id(generator, attribute)[:6]}.safetensors"


def _teacher(work: PromptsState) -> Callable[[], Captioner]:
    spec = work.config.heads.teacher
    if spec is None:
        return work.judge()
    revision = work.models.describe("captioner", spec).revision
    return partial(of_revision, work.models.captioner(spec), revision, spec)


def _trained(
    generator: Callable[[], ImageGenerator],
    teacher: Callable[[], Captioner],
    questions: Mapping[str, Question],
    plan: HeadPlan,
    name: str,
    records: Mapping[str, Mapping[str, str]],
) -> Iterator[int | HeadFile]:
    """Yields how many images are made, then the file of each attribute."""
    image_generator = generator()
    if not isinstance(image_generator, ActivationReader):
        raise ConfigError("guide", f"{name}: its activations cannot be read; use `guide: judge`")
    _check_place(image_generator, plan, name)
    for trained in train_heads(image_generator, teacher(), questions, plan, train_head):
        yield trained if isinstance(trained, int) else _file(trained, plan, name, records[trained.attribute])


def _check_place(generator: ActivationReader, plan: HeadPlan, name: str) -> None:
    """ConfigError for an activation or a step that the generator does not have, before it makes an image."""
    activations, steps = generator.activation_names, generator.denoising_steps
    if plan.activation not in activations:
        hint = f"{nearest(plan.activation, activations)} (all: {', '.join(activations)})"
        raise ConfigError("heads.activation", f"{name}: the generator has no activation {plan.activation!r}; {hint}")
    if wrong := [step for step in plan.steps or () if not 0 <= step < steps]:
        raise ConfigError("heads.steps", f"{name}: {wrong[0]} is no denoising step; its steps are 0 to {steps - 1}")


def _file(trained: Trained, plan: HeadPlan, name: str, record: Mapping[str, str]) -> HeadFile:
    rows = [
        {
            "generator": name,
            "attribute": trained.attribute,
            "activation": plan.activation,
            "step": step,
            "accuracy": accuracy.value,
            "low": accuracy.low,
            "high": accuracy.high,
            "chance": accuracy.chance,
            "prompts": trained.prompts,
            "images": trained.images,
            "guides": step == trained.step,
            "verdict": TOO_FEW if not trained.heads else ABOVE if accuracy.low > accuracy.chance else AT,
        }
        for step, accuracy in trained.accuracy.items()
    ]
    metadata = {
        "attribute": trained.attribute,
        "values": list(trained.values),
        "activation": plan.activation,
        "step": trained.step,
        **record,
        "accuracy": rows,
        "missing": list(trained.missing),
    }
    return HeadFile(trained.attribute, encoded(trained.heads, metadata), rows)  # type: ignore[arg-type]


def _guided(work: PromptsState, name: str, folder: str) -> Guided:
    heads: dict[str, Head] = {}
    revisions = []
    for attribute in work.config.attributes:
        path = path_of(folder, name, attribute)
        data = _read(path)
        by_step, metadata = decoded(data, path)
        _check(work, name, attribute, path, metadata)
        revisions.append(content_id(data))
        step = metadata["step"]
        if step is None:
            work.notes.append(_why_none(name, attribute, metadata))
            continue
        if metadata["missing"]:
            rare_values = ", ".join(metadata["missing"])
            work.notes.append(f"{name}: too few images showed {attribute} {rare_values}; no search looks for it.")
        head = by_step[step]
        values = tuple(metadata["values"])
        heads[attribute] = Head(
            attribute, values, metadata["activation"], step, head.weight, head.bias, head.mean, head.scale
        )
    return Guided(heads, content_id(*revisions))


def _why_none(name: str, attribute: str, metadata: Mapping[str, Any]) -> str:
    if len(metadata["values"]) > 1:
        return f"{name}: the heads of {attribute} are at chance, so no search goes by them."
    only = metadata["values"][0] if metadata["values"] else "no value"
    return (
        f"{name}: of {attribute} images show {only} alone often enough for a head, so no search looks for its values."
    )


def _read(path: str) -> bytes:
    if not files.exists(path):
        raise ConfigError("heads.files", f"no such file: {path}; c2b prompts heads writes it for this config")
    return files.read_bytes(path)


def _check(work: PromptsState, name: str, attribute: str, path: str, metadata: Mapping[str, Any]) -> None:
    """Raises ConfigError for heads of another generator or of other values."""
    if metadata.get("generator_revision") != work.revisions[name]:
        raise ConfigError("heads.files", f"{path}: heads of another generator than {work.config.generators[name]}")
    head_values = set(metadata["values"]) | set(metadata.get("missing", ()))
    if head_values != set(work.config.attributes[attribute].values):
        raise ConfigError("heads.files", f"{path}: heads of the values {', '.join(sorted(head_values))} of {attribute}")


def _noted_rows(work: PromptsState, name: str, folder: str) -> Sequence[dict[str, Any]]:
    result = []
    for attribute in work.config.attributes:
        path = path_of(folder, name, attribute)
        result += [{**row, "generator": name} for row in decoded(_read(path), path)[1]["accuracy"]]
    return result
