"""logits → which answers fail, and what each image was taken for: the four failure rules of Wiles et al. (2022).

    top1          the likeliest label is none of the class's labels                                  (Table 6)
    top1_parent   nor does it share a parent with one of them                                        (Table 3)
    top3          none of the three likeliest labels is one of the class's                           (section 4.2)
    top3_parent   nor does one of the three share a parent with one of them                          (App. B.3)

Ties are decided against the classifier: an answer fails where one way of breaking them makes it fail. All is decided on
logits in float64. A class with several labels is right where one of them is hit. It knows numbers, not images or names.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypedDict

import numpy as np
import pyarrow as pa
import simplejpeg
from numpy.typing import NDArray

from c2b_ray.audits.failures.config import FailureRule
from c2b_ray.errors import ConfigError, SourceError, about_model
from c2b_ray.roles import Classifier, Floats, GenerationRequest, ImageGenerator, Pixels
from c2b_ray.steps.classify import NO_ANSWER, SAME
from c2b_ray.steps.decode import decoded
from c2b_ray.steps.draw import ImageSource, fetch, images_of, png
from c2b_ray.steps.encoded import DecodedOnce
from c2b_ray.tables import ANSWERS, ROUNDS, content_id, seed_of
from c2b_ray.tables.failures import PICTURES, AnswerRow, ExampleRow, Outcome, RoundRow
from c2b_ray.tables.rows import schema_of

TOP = 3
_TOP_K: dict[FailureRule, int] = {"top1": 1, "top1_parent": 1, "top3": TOP, "top3_parent": TOP}

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Truth:
    """A class in a classifier's label space: bool (labels,), or (images, labels) where images differ in their class.

    `members`: the class's labels. `kin`: labels that share a parent with one of them; None without a hierarchy.
    """

    members: Mask
    kin: Mask | None = None

    @staticmethod
    def stacked(truths: Sequence[Truth]) -> Truth:
        """Returns the truths of a batch of images, one each. All have one label space, and all or none have a
        hierarchy."""
        kin = [truth.kin for truth in truths if truth.kin is not None]
        return Truth(np.stack([truth.members for truth in truths]), np.stack(kin) if kin else None)


@dataclass(frozen=True)
class Decisions:
    """The decisions on each image; the first axis of all arrays is that of images."""

    failed: Mask  # False where there is no answer
    predicted: NDArray[np.int64]  # the likeliest label's position; −1 where several are, or where there is no answer
    top3: NDArray[np.int64]  # (images, 3): labels that are among the three likeliest for certain, likeliest first; −1
    confidence: NDArray[np.float32]  # the probability of the likeliest label; NaN where there is no answer
    answered: Mask  # False where the logits are not numbers (NaN or +inf)


def truths_by_label(
    rule: FailureRule,
    outputs: Mapping[str, Sequence[int]],
    labels: int,
    kin: Callable[[Sequence[int]], Mask] | None,
) -> dict[str, Truth]:
    """Returns the truth of each class in a label space of `labels`. `outputs`: the class's positions there. `kin`:
    returns the labels that share a parent with some; None without a hierarchy. Raises what `check_rule` does."""
    truths = {}
    for name, positions in outputs.items():
        members = np.zeros(labels, bool)
        members[list(positions)] = True
        truths[name] = Truth(members, kin(positions) if kin is not None and needs_parents(rule) else None)
        check_rule(rule, truths[name], name)
    return truths


def check_rule(rule: FailureRule, truth: Truth, name: str) -> None:
    """Raises ConfigError where no answer about class `name` could fail: too few labels, or all of them are right or
    related."""
    if needs_parents(rule) and truth.kin is None:
        raise ConfigError("hierarchy", f"the rule {rule} needs one: world, imagenet, a file or a WordNet folder")
    k, labels = _TOP_K[rule], truth.members.shape[-1]
    if labels <= k:
        raise ConfigError("rule", f"{rule} is always right among {labels} labels; use top1")
    wrong = int((~_good(rule, truth)).sum())
    if wrong < k:
        why = "are of the class or share a parent with it" if needs_parents(rule) else "are of the class"
        raise ConfigError("rule", f"{rule} can never fail for {name!r}: all but {wrong} of {labels} labels {why}")


def needs_parents(rule: FailureRule) -> bool:
    return rule.endswith("_parent")


def decide(
    logits: NDArray[np.floating],
    truth: Truth,
    rule: FailureRule,
    confidence: float = 0.0,
    true_below: float = 1.0,
) -> Decisions:
    """Decides which of `logits` (images, labels) fail by the rule.

    A failure counts only where the likeliest label has at least the probability `confidence`, and the class's labels
    together at most `true_below` (the paper's footnote 2; 1.0: any). −inf is a valid logit: a probability of 0, which
    is never among the likeliest; a row of only −inf fails, with a confidence of 0.
    """
    rows = np.asarray(logits, np.float64)
    # False where the maximum is NaN or +inf.
    answered = rows.max(axis=1, initial=-np.inf) < np.inf
    rows = np.where(answered[:, None], rows, -np.inf)
    best = rows.max(axis=1, initial=-np.inf)
    likeliest, is_tied = rows.argmax(axis=1), (rows == best[:, None]).sum(axis=1) > 1
    largest, true_probability = _probabilities(rows, best, truth.members)
    failed = answered & ~_hit(rows, _good(rule, truth), _TOP_K[rule])
    failed &= (largest >= confidence - SAME) & (true_probability <= true_below + SAME)
    return Decisions(
        failed,
        np.where(answered & ~is_tied, likeliest, -1),
        _top3(rows),
        np.where(answered, largest, np.nan).astype(np.float32),
        answered,
    )


def _good(rule: FailureRule, truth: Truth) -> Mask:
    """Returns the labels that keep an answer from failing."""
    return truth.members | truth.kin if needs_parents(rule) and truth.kin is not None else truth.members


def _hit(rows: NDArray[np.float64], is_good: Mask, k: int) -> Mask:
    """Returns whether a good label is among the likeliest, however ties at the last rank are broken."""
    last = _last(rows, k)
    above = rows > last
    tied = (rows == last) & (last > -np.inf)
    free = k - above.sum(axis=1)
    all_tied_hit = tied.any(axis=1) & ((tied & ~is_good).sum(axis=1) < free)
    return np.asarray((above & is_good).any(axis=1) | all_tied_hit)


def _last(rows: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Returns the logit of the last of the `k` ranks, (images, 1); −inf where fewer labels have any probability."""
    position = max(rows.shape[1] - k, 0)
    return np.partition(rows, position, axis=1)[:, position : position + 1]


def _top3(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    last = _last(rows, TOP)
    certain = rows > last
    ties_fit = certain.sum(axis=1) + (rows == last).sum(axis=1) == TOP  # the tied ones fill the last ranks
    certain |= ties_fit[:, None] & (rows == last)
    certain &= rows > -np.inf
    result = np.full((len(rows), TOP), -1, np.int64)
    for rank in range(min(TOP, rows.shape[1])):
        has_more = certain.any(axis=1)
        position = np.where(certain, rows, -np.inf).argmax(axis=1)
        result[has_more, rank] = position[has_more]
        certain[has_more, position[has_more]] = False
    return result


def _probabilities(
    rows: NDArray[np.float64], best: NDArray[np.float64], members: Mask
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the probability of the likeliest label, and of the class's labels together; 0 where no label has any."""
    top = np.where(best > -np.inf, best, 0.0)
    parts = np.exp(rows - top[:, None])
    total = np.maximum(parts.sum(axis=1), np.finfo(np.float64).tiny)
    return np.where(best > -np.inf, 1 / np.maximum(total, 1), 0.0), np.where(members, parts, 0).sum(axis=1) / total


# Draws rounds: images of a caption are drawn, classified and decided on where the models are; counts come back.


BATCH = 64
"""Images that are drawn and classified at once. It is fixed, because a model's floats depend on it."""
FEW = 8
"""A round of at least this many draws must have a usable one, as evidence that the source works at all."""
SAMPLE = "sample"
"""The part of a run whose rounds keep all images, whether they fail or not."""
_MOST_REASONS = 5
_SMALL = 256 * 256


class OrderRow(TypedDict):
    """What to draw, and which rounds it is for."""

    round_id: list[str]  # `AnswerRules.round_id` of each that is wanted
    order_id: str  # hash of all that decides which images are drawn
    caption_id: str
    label: str
    text: str
    stage: str
    part: str
    generator: str
    first: int
    draws: int
    examples: int  # at most so many failures are kept of each predicted label
    enough: list[str]  # `kind_of` failures of which none is kept any more
    rows: list[int] | None  # of labelled images, those that stand in for the draws


ORDERS = schema_of(OrderRow)


@dataclass(frozen=True)
class RoundSample:
    """One draw: its seed (for labelled images, its row), its key in the source, and pixels or why there are none."""

    seed: int
    key: str
    pixels: Pixels | None
    error: str | None
    generated: bool = False


class Draws(Protocol):
    def draw(self, order: OrderRow, numbers: Sequence[int]) -> list[RoundSample]:
        """Returns the draws with these numbers of the order's caption."""
        ...


@dataclass(frozen=True)
class GeneratedDraws:
    """Draws of a generator: number i of a caption has the seed `seed_of("failures", seed, stage, text, i)`."""

    generator: ImageGenerator
    seed: int

    def draw(self, order: OrderRow, numbers: Sequence[int]) -> list[RoundSample]:
        text, stage = order["text"], order["stage"]
        seeds = [seed_of("failures", self.seed, stage, text, number) for number in numbers]
        images = images_of(self.generator, [GenerationRequest(text, seed) for seed in seeds])
        return [
            RoundSample(seed, f"{text} (seed {seed})", image.pixels, image.error, generated=True)
            for seed, image in zip(seeds, images, strict=True)
        ]


@dataclass(frozen=True)
class LabelledDraws:
    """Labelled images instead of draws: number i of an order is the i-th of its `rows`."""

    source: ImageSource

    def draw(self, order: OrderRow, numbers: Sequence[int]) -> list[RoundSample]:
        assert order["rows"] is not None
        rows = [order["rows"][number - order["first"]] for number in numbers]
        images = self.source.fetch(rows)
        errors = images["error"].to_pylist() if "error" in images.column_names else [None] * len(rows)
        samples = []
        for row, key, data, error in zip(
            rows, images["key"].to_pylist(), images["bytes"].to_pylist(), errors, strict=True
        ):
            pixels, reason = (None, error) if error is not None else decoded(data)
            samples.append(RoundSample(row, key, pixels, reason))
        return samples


@dataclass(frozen=True)
class AnswerRules:
    """What a classifier's answers mean. `names`: of its labels, by position. `truths`: of each label of the run."""

    classifier: str
    revision: str
    names: tuple[str, ...]
    truths: Mapping[str, Truth]
    rule: FailureRule = "top1"
    confidence: float = 0.0
    true_below: float = 1.0

    def decide(self, logits: NDArray[np.floating], label: str) -> Decisions:
        return decide(logits, self.truths[label], self.rule, self.confidence, self.true_below)

    def round_id(self, order_id: str, label: str) -> str:
        truth = self.truths[label]
        kin = None if truth.kin is None else np.flatnonzero(truth.kin).tolist()
        settings = (
            list(self.names),
            np.flatnonzero(truth.members).tolist(),
            kin,
            self.rule,
            self.confidence,
            self.true_below,
        )
        return content_id("round", order_id, self.classifier, self.revision, *settings)


@dataclass(frozen=True)
class RoundModels:
    """The source of draws, and the classifiers."""

    source: Draws
    classifiers: tuple[tuple[Classifier, AnswerRules], ...]


@dataclass
class _Tally:
    """The counts of one classifier in one round."""

    draws: int = 0
    failures: int = 0
    taken_for: Counter[str] = field(default_factory=Counter)
    examples: list[ExampleRow] = field(default_factory=list)
    kept: Counter[str | None] = field(default_factory=Counter)
    reasons: dict[str, None] = field(default_factory=dict)


def kind_of(classifier: str, predicted: str | None) -> str:
    """Returns the kind of failures of one classifier that were taken for one label, or for none where several are
    likeliest."""
    return f"{classifier}\n{predicted or ''}"


def draw_rounds(orders: pa.Table, models: RoundModels) -> pa.Table:
    """Returns a table of `tables.ROUNDS`: a row per order and classifier, for the ids that the order still has.

    `orders`: a table of `ORDERS`. Raises SourceError where a source gives no usable image, or a classifier no answer,
    for a whole round of `FEW` draws or more.
    """
    rows = [row for order in orders.to_pylist() for row in _round(order, models)]
    return pa.Table.from_pylist(rows, ROUNDS)


def _round(order: OrderRow, models: RoundModels) -> list[RoundRow]:
    began = time.monotonic()
    tallies = [_Tally() for _ in models.classifiers]
    end = order["first"] + order["draws"]
    for start in range(order["first"], end, BATCH):
        samples = models.source.draw(order, range(start, min(start + BATCH, end)))
        usable = [sample for sample in samples if sample.pixels is not None]
        reasons = [str(sample.error) for sample in samples if sample.pixels is None]
        for (classifier, decider), tally in zip(models.classifiers, tallies, strict=True):
            tally.reasons.update(dict.fromkeys(reasons))
            if usable:
                _count(usable, classifier, decider, order, tally)
    seconds = time.monotonic() - began
    return [
        _row(order, decider, tally, seconds)
        for (_, decider), tally in zip(models.classifiers, tallies, strict=True)
        if decider.round_id(order["order_id"], order["label"]) in order["round_id"]
    ]


def _count(
    usable: list[RoundSample], classifier: Classifier, decider: AnswerRules, order: OrderRow, tally: _Tally
) -> None:
    pixels = [sample.pixels for sample in usable if sample.pixels is not None]
    with about_model(decider.classifier):
        logits = classifier.logits(pixels, [sample.key for sample in usable])
    decisions = decider.decide(logits, order["label"])
    tally.draws += int(decisions.answered.sum())
    tally.failures += int(decisions.failed.sum())
    if not decisions.answered.all():
        tally.reasons[NO_ANSWER] = None
    is_sample = order["part"] == SAMPLE
    for index in range(len(usable)) if is_sample else np.flatnonzero(decisions.failed).tolist():
        position = int(decisions.predicted[index])
        name = None if position < 0 else decider.names[position]
        if name is not None and decisions.failed[index]:
            tally.taken_for[name] += 1
        if is_sample:
            tally.examples.append(_example(usable[index], name, decisions, index, decider))
        elif tally.kept[name] < order["examples"] and kind_of(decider.classifier, name) not in order["enough"]:
            tally.kept[name] += 1
            tally.examples.append(_example(usable[index], name, decisions, index, decider))


def _example(
    sample: RoundSample, name: str | None, decisions: Decisions, index: int, decider: AnswerRules
) -> ExampleRow:
    assert sample.pixels is not None
    return {
        "seed": sample.seed,
        "key": None if sample.generated else sample.key,
        "predicted": name,
        "top3": [decider.names[label] for label in decisions.top3[index].tolist() if label >= 0],
        "confidence": float(decisions.confidence[index]),
        "image": _encoded(sample.pixels),
    }


def _row(order: OrderRow, decider: AnswerRules, tally: _Tally, seconds: float) -> RoundRow:
    reasons = list(tally.reasons)[:_MOST_REASONS]
    if tally.draws == 0 and order["draws"] >= FEW:
        why = "; ".join(reasons)
        raise SourceError(
            f"{order['generator']}: none of {order['draws']} images of {order['text']!r} can be used by "
            f"{decider.classifier}: {why}. A generator that returns black or NaN images, or a classifier whose answers "
            "are not numbers, has no failure rate; mend it and run again"
        )
    taken_for = dict(sorted(tally.taken_for.items()))
    return {
        "round_id": decider.round_id(order["order_id"], order["label"]),
        "caption_id": order["caption_id"],
        "stage": order["stage"],
        "part": order["part"],
        "generator": order["generator"],
        "first": order["first"],
        "classifier": decider.classifier,
        "draws": tally.draws,
        "unusable": order["draws"] - tally.draws,
        "reasons": reasons,
        "failures": tally.failures,
        "predicted": list(taken_for),
        "counts": list(taken_for.values()),
        "examples": tally.examples,
        "seconds": seconds,
    }


def _encoded(pixels: Pixels) -> bytes:
    """Returns PNG for small images, which costs little; JPEG for others."""
    if pixels.shape[0] * pixels.shape[1] <= _SMALL:
        return png(pixels)
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=92, colorsubsampling="444"))


# Classifies labelled images: whether each classifier fails on each image, and the label that it takes it for.


@dataclass(frozen=True)
class LabelledModels:
    """The source of labelled images, and the classifiers."""

    source: ImageSource
    classifiers: tuple[tuple[Classifier, AnswerRules], ...]


def answer_images(batch: pa.Table, models: LabelledModels) -> pa.Table:
    """Returns a table of `tables.ANSWERS`: a row per image and classifier, for the ids that the image still has.

    `batch`: `answer_id` (a list: one per classifier that has not answered), `row` in the source, `name` of the image in
    it, and `label`.
    """
    rows, labels = batch["row"].to_pylist(), batch["label"].to_pylist()
    images = models.source.fetch(rows)
    errors = images["error"].to_pylist() if "error" in images.column_names else [None] * len(rows)
    files = DecodedOnce([None if e else data for data, e in zip(images["bytes"].to_pylist(), errors, strict=True)])
    keys, ids = images["key"].to_pylist(), [set(ids_wanted) for ids_wanted in batch["answer_id"].to_pylist()]
    names = batch["name"].to_pylist()
    result: list[AnswerRow] = []
    for classifier, decider in models.classifiers:
        with about_model(decider.classifier):
            logits, undecoded = files.logits(range(len(rows)), keys, classifier)
        for index, (row, name, label) in enumerate(zip(rows, names, labels, strict=True)):
            answer_id = decider.round_id(name, label)
            if answer_id in ids[index]:
                answer = _answer(decider, logits[index : index + 1], label, errors[index] or undecoded[index])
                result.append({"answer_id": answer_id, "row": row, "classifier": decider.classifier, **answer})
    return pa.Table.from_pylist(result, ANSWERS)


def pictures(batch: pa.Table, source: ImageSource) -> pa.Table:
    """Returns a table of `PICTURES`: what tells copies of an image. `batch`: `image_id`, and `row` in the source."""
    images = fetch(batch, source).select(["image_id", "content", "fingerprint"])
    return images.append_column("row", batch["row"]).select(PICTURES.names).cast(PICTURES)


def _answer(decider: AnswerRules, logits: Floats, label: str, error: str | None) -> Outcome:
    if error is not None:
        return {"failed": None, "predicted": None, "top3": [], "confidence": None, "error": error}
    decisions = decider.decide(logits, label)
    if not decisions.answered[0]:
        return {"failed": None, "predicted": None, "top3": [], "confidence": None, "error": NO_ANSWER}
    position = int(decisions.predicted[0])
    return {
        "failed": bool(decisions.failed[0]),
        "predicted": None if position < 0 else decider.names[position],
        "top3": [decider.names[index] for index in decisions.top3[0].tolist() if index >= 0],
        "confidence": float(decisions.confidence[0]),
        "error": None,
    }
