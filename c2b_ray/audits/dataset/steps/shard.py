"""Sources of images, and how draws from them become failures: made, classified and judged in batches."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.dataset.steps.copies import CopyMarks, repeated_among
from c2b_ray.audits.dataset.steps.fingerprint import (
    THUMBNAIL_BYTES,
    WINDOW_BYTES,
    Thumbnails,
    fingerprint,
    thumbnail,
    windows,
)
from c2b_ray.audits.dataset.steps.plan import Ints
from c2b_ray.audits.failures.config import FailureRule
from c2b_ray.audits.failures.discovery.rounds import Decisions, Truth, decide
from c2b_ray.errors import ServiceError, about_model
from c2b_ray.roles import (
    Captioner,
    Classifier,
    Floats,
    GenerationRequest,
    ImageGenerator,
    ImageIndex,
    Pixels,
    Question,
    TextEncoder,
)
from c2b_ray.steps.decode import decoded
from c2b_ray.steps.draw import ImageSource, images_of, png
from c2b_ray.steps.observe import OTHER, THING, weighed
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import CANDIDATE, DATASET_ROWS, DROPS, AnswerOfRow, DatasetRow

# The sources of a dataset's images: a generator, the nearest images of an index, or rows of a labelled table.


PNG_LEVEL = 3
"""zlib's level. Higher ones take twice the time and save a hundredth of the bytes."""


@dataclass(frozen=True)
class Caption:
    """`number`: in the plan, from 0. `rows`: of a labelled table, the images that take the place of its draws."""

    number: int
    label: str
    text: str
    rows: tuple[int, ...] | None = None


@dataclass(frozen=True)
class PlannedSample:
    """One image to be drawn. `draw`: its number among the caption's draws. `of_source`: among those of its source."""

    caption: Caption
    draw: int
    of_source: int
    seed: int


@dataclass(frozen=True)
class SampledImage:
    """One draw: `seed` (for an image that was not generated, its row), its key in the source, and `pixels` or, in
    `error`, why there are none. `data`: the image as its source encodes it; None: it has to be encoded."""

    seed: int
    key: str
    pixels: Pixels | None
    data: bytes | None = None
    error: str | None = None

    def encoded(self) -> bytes:
        if self.data is not None:
            return self.data
        assert self.pixels is not None
        return png(self.pixels, PNG_LEVEL)


class DrawSource(Protocol):
    @property
    def name(self) -> str:
        """The generator's spec, or the path of the images' source."""
        ...

    @property
    def revision(self) -> str: ...

    def draw(self, wanted: Sequence[PlannedSample]) -> list[SampledImage]:
        """Returns one image for each wanted one, in their order."""
        ...


@dataclass(frozen=True)
class GeneratedSource:
    name: str
    generator: ImageGenerator

    @property
    def revision(self) -> str:
        return self.generator.revision

    def draw(self, wanted: Sequence[PlannedSample]) -> list[SampledImage]:
        requests = [GenerationRequest(sample.caption.text, sample.seed) for sample in wanted]
        return [
            SampledImage(sample.seed, f"{sample.caption.text} (seed {sample.seed})", image.pixels, error=image.error)
            for sample, image in zip(wanted, images_of(self.generator, requests, self.name), strict=True)
        ]


@dataclass(frozen=True)
class FromTable:
    """Rows of a labelled table. Draw i of a caption is the i-th of its rows."""

    name: str
    table: ImageSource

    @property
    def revision(self) -> str:
        return self.table.revision

    def draw(self, wanted: Sequence[PlannedSample]) -> list[SampledImage]:
        rows = [sample.caption.rows[sample.of_source] for sample in wanted if sample.caption.rows is not None]
        return _decoded(rows, self.table.fetch(rows))


@dataclass(frozen=True)
class Nearest:
    """Images of an index. Draw i of a caption is its i-th nearest image. `most`: the draws of a caption."""

    name: str
    encoder: TextEncoder
    index: ImageIndex
    most: int
    _ranked: dict[str, list[int]] = field(default_factory=dict)

    @property
    def revision(self) -> str:
        return self.index.revision

    def draw(self, wanted: Sequence[PlannedSample]) -> list[SampledImage]:
        texts = dict.fromkeys(sample.caption.text for sample in wanted)
        for stale in self._ranked.keys() - texts.keys():
            del self._ranked[stale]
        for text in texts:
            if text not in self._ranked:  # alone: in a batch its embedding is rounded otherwise, and ties may differ
                neighbours = self.index.search(self.encoder.encode_texts([text]), self.most)
                self._ranked[text] = [number for number in neighbours.ids[0].tolist() if number >= 0]
        ids = [_at(self._ranked[sample.caption.text], sample.of_source) for sample in wanted]
        numbers = [number for number in ids if number is not None]
        fetched = iter(_decoded(numbers, self.index.fetch(numbers)) if numbers else [])
        none = SampledImage(-1, "", None, error="the index has no more images")
        return [none if number is None else next(fetched) for number in ids]


def _at(ids: list[int], index: int) -> int | None:
    return ids[index] if index < len(ids) else None


def _decoded(rows: Sequence[int], images: pa.Table) -> list[SampledImage]:
    errors = images["error"].to_pylist() if "error" in images.column_names else [None] * len(rows)
    result = []
    for row, key, data, error in zip(rows, images["key"].to_pylist(), images["bytes"].to_pylist(), errors, strict=True):
        pixels, reason = (None, error) if data is None and error else decoded(data)
        result.append(SampledImage(row, key, pixels, data, reason))
    return result


NOT_FAILED, NO_IMAGE, NO_ANSWER, NOT_VERIFIED = "not_failed", "no_image", "no_answer", "label_not_verified"
NEAR_DUPLICATE, OVER_CAP = "near_duplicate", "over_cap"
REASONS = (CANDIDATE, NOT_FAILED, NO_IMAGE, NO_ANSWER, NOT_VERIFIED, NEAR_DUPLICATE, OVER_CAP)
CODE = {reason: code for code, reason in enumerate(REASONS)}

OnStage = Callable[[str, int, float], None]
"""Gets the stage (`generate`, `classify`, …), the number of images and the seconds."""


@dataclass(frozen=True)
class Judge:
    """A classifier and what its answers mean. `names`: of its labels, by position. `truths`: of the dataset's
    labels."""

    name: str
    revision: str
    names: tuple[str, ...]
    truths: Mapping[str, Truth]
    classifier: Classifier


@dataclass(frozen=True)
class LabelCheck:
    """Checks whether failures show their label: a captioner chooses among `labels` and something else."""

    captioner: Captioner
    labels: tuple[str, ...]

    def question(self) -> Question:
        texts = {label: f"a photo of a {label}" for label in self.labels} | {OTHER: THING}
        return Question("What does the picture show?", tuple(texts), tuple(texts.values()))

    def seen(self, images: Sequence[Pixels]) -> list[tuple[str | None, str | None]]:
        """Returns the label that each image shows, or why none is known."""
        question = self.question()
        answers = self.captioner.answer(images, [question] * len(images))
        if len(answers) != len(images):
            raise ServiceError(f"the verifier answered {len(images)} questions with {len(answers)} answers")
        answers = [weighed(answer, question) for answer in answers]
        return [(answer.choice, answer.error) for answer in answers]


@dataclass(frozen=True)
class DatasetModels:
    """The models of a dataset, and what counts as a failure."""

    sources: tuple[DrawSource, ...]
    judges: tuple[Judge, ...]
    verifier: LabelCheck | None
    rule: FailureRule
    confidence: float
    true_below: float = 1.0


@dataclass(frozen=True)
class Verdict:
    """One judge's decisions on a batch of images."""

    judge: Judge
    logits: Floats
    decisions: Decisions


@dataclass(frozen=True)
class Candidate:
    """A failure: the index of its draw in the batch, its image, and the verdicts of all judges, whose row `row` is this
    image's."""

    index: int
    wanted: PlannedSample
    drawn: SampledImage
    source: DrawSource
    verdicts: Sequence[Verdict]
    row: int
    verified: str | None
    hash: int
    thumbnail: bytes
    windows: bytes

    @property
    def image_id(self) -> str:
        planned, source = self.wanted, self.source
        # The label is part of it: one text may be a caption of two labels.
        return content_id(
            "failure", source.name, source.revision, planned.caption.label, planned.caption.text, self.drawn.seed
        )


@dataclass(frozen=True)
class Outcome:
    """The outcome of a batch of draws: a code of `REASONS` for each, details by draw index, and the candidates."""

    codes: NDArray[np.uint8]
    details: dict[int, str]
    candidates: list[Candidate]

    def reasons(self) -> list[str]:
        return [REASONS[code] for code in self.codes.tolist()]


def _unheard(stage: str, images: int, seconds: float) -> None:
    """Ignores progress."""


@dataclass
class _Batch:
    """One batch on its way through the models."""

    wanted: Sequence[PlannedSample]
    models: DatasetModels
    on_stage: OnStage
    details: dict[int, str] = field(default_factory=dict)

    def run(self) -> Outcome:
        codes = np.full(len(self.wanted), CODE[NOT_FAILED], np.uint8)
        samples = self._draw()
        for index, sample in enumerate(samples):
            if sample.pixels is None:
                codes[index] = CODE[NO_IMAGE]
                self.details[index] = str(sample.error)
        usable = np.flatnonzero(codes == CODE[NOT_FAILED])
        if not len(usable):
            return Outcome(codes, self.details, [])
        verdicts = self._judge([samples[index] for index in usable.tolist()], usable)
        failed = np.any([verdict.decisions.failed for verdict in verdicts], axis=0)
        is_unanswered = ~np.all([verdict.decisions.answered for verdict in verdicts], axis=0) & ~failed
        codes[usable[is_unanswered]] = CODE[NO_ANSWER]
        candidates = []
        rows = np.flatnonzero(failed).tolist()
        indices = usable[rows].tolist()
        for row, index, verified in zip(rows, indices, self._verify(samples, indices), strict=True):
            if verified is not None and verified != self.wanted[index].caption.label:
                codes[index], self.details[index] = CODE[NOT_VERIFIED], verified
                continue
            codes[index] = CODE[CANDIDATE]
            source = self.models.sources[self.wanted[index].draw % len(self.models.sources)]
            image = samples[index]
            assert image.pixels is not None
            marks = fingerprint(image.pixels), thumbnail(image.pixels), windows(image.pixels)
            candidates.append(Candidate(index, self.wanted[index], image, source, verdicts, row, verified, *marks))
        return Outcome(codes, self.details, candidates)

    def _draw(self) -> list[SampledImage]:
        began, sources = time.monotonic(), self.models.sources
        if len(sources) == 1:
            samples = sources[0].draw(self.wanted)
        else:
            in_turn: dict[int, SampledImage] = {}
            for number, source in enumerate(sources):
                indices = [index for index, planned in enumerate(self.wanted) if planned.draw % len(sources) == number]
                of_source = source.draw([self.wanted[index] for index in indices]) if indices else []
                in_turn.update(zip(indices, of_source, strict=True))
            samples = [in_turn[index] for index in range(len(self.wanted))]
        self.on_stage("generate", len(samples), time.monotonic() - began)
        return samples

    def _judge(self, samples: Sequence[SampledImage], indices: NDArray[np.int64]) -> list[Verdict]:
        began = time.monotonic()
        pixels, keys = (
            [sample.pixels for sample in samples if sample.pixels is not None],
            [sample.key for sample in samples],
        )
        labels = [self.wanted[index].caption.label for index in indices.tolist()]
        verdicts = []
        for judge in self.models.judges:
            with about_model(judge.name):
                logits = judge.classifier.logits(pixels, keys)
            truths = [judge.truths[label] for label in labels]
            truth = truths[0] if len(set(labels)) == 1 else Truth.stacked(truths)
            verdicts.append(
                Verdict(
                    judge,
                    logits,
                    decide(logits, truth, self.models.rule, self.models.confidence, self.models.true_below),
                )
            )
        self.on_stage("classify", len(samples) * len(self.models.judges), time.monotonic() - began)
        return verdicts

    def _verify(self, samples: Sequence[SampledImage], indices: Sequence[int]) -> list[str | None]:
        """Returns for each of these images the label that the verifier sees, or why it sees none; None where there is
        no verifier."""
        if self.models.verifier is None or not indices:
            return [None] * len(indices)
        began = time.monotonic()
        images = [pixels for index in indices if (pixels := samples[index].pixels) is not None]
        labels = self.models.verifier.seen(images)
        self.on_stage("verify", len(indices), time.monotonic() - began)
        return [label or f"no answer: {error}" for label, error in labels]


def draw_batch(samples: Sequence[PlannedSample], models: DatasetModels, on_stage: OnStage = _unheard) -> Outcome:
    """Draws, classifies and judges one batch."""
    return _Batch(samples, models, on_stage).run()


def rows(candidates: Sequence[Candidate], rule: FailureRule) -> pa.Table:
    """Returns a table of `tables.dataset.DATASET_ROWS`, a row per candidate."""
    return pa.Table.from_pylist([_row(candidate, rule) for candidate in candidates], DATASET_ROWS)


def _row(candidate: Candidate, rule: FailureRule) -> DatasetRow:
    answers = [_answer(verdict, candidate.row) for verdict in candidate.verdicts]
    first = next(answer for answer in answers if answer["failed"])
    answer_text = "several labels alike" if first["predicted"] is None else first["predicted"]
    planned, source = candidate.wanted, candidate.source
    return {
        "image_id": candidate.image_id,
        "image": candidate.drawn.encoded(),
        "label": planned.caption.label,
        "caption": planned.caption.text,
        "prompt": planned.caption.text,
        "seed": candidate.drawn.seed,
        "generator": source.name,
        "generator_revision": source.revision,
        "classifier": first["classifier"],
        "classifier_revision": first["revision"],
        "rule": rule,
        "predicted": first["predicted"],
        "top3": first["top3"],
        "probabilities": first["probabilities"],
        "answers": answers,
        "kept_because": f"{rule}: taken for {answer_text} by {first['classifier']}",
        "verified": candidate.verified,
        "fingerprint": candidate.hash,
        "caption_number": planned.caption.number,
        "draw": planned.draw,
        "key": None if candidate.drawn.data is None else candidate.drawn.key,  # images without bytes were generated
    }


def _answer(verdict: Verdict, row: int) -> AnswerOfRow:
    judge, decisions = verdict.judge, verdict.decisions
    position = int(decisions.predicted[row])
    top3 = [index for index in decisions.top3[row].tolist() if index >= 0]
    logits = verdict.logits[row].astype(np.float64)
    shares = np.exp(logits[top3] - np.logaddexp.reduce(logits)) if top3 else np.zeros(0)
    return {
        "classifier": judge.name,
        "revision": judge.revision,
        "predicted": None if position < 0 else judge.names[position],
        "top3": [judge.names[index] for index in top3],
        "probabilities": shares.astype(np.float32).tolist(),
        "failed": bool(decisions.failed[row]),
    }


# The draws that a shard keeps while it is made: the outcome of each, and the images that may become rows.


class ShardDraws:
    """The draws of one shard, batch by batch. `distance`: of near-duplicates; None: keep them. `cap`: per caption."""

    def __init__(self, draws: int, distance: int | None, cap: int) -> None:
        self._distance, self._cap = distance, cap
        self._codes = np.zeros(draws, np.uint8)
        self._hashes, self._labels = np.zeros(draws, np.uint64), np.zeros(draws, np.int32)
        self._thumbnails = np.zeros((draws, THUMBNAIL_BYTES), np.uint8)  # no memory until failures write theirs
        self._windows = np.zeros((draws, WINDOW_BYTES), np.uint8)
        self._ids: dict[int, str] = {}
        self._details: dict[int, str] = {}
        self._failures: list[int] = []
        self._kept: Counter[int] = Counter()
        self._seen = 0

    def add(self, outcome: Outcome, label_numbers: NDArray[np.int32]) -> list[Candidate]:
        """Records the next batch; returns the candidates whose images are kept. `label_numbers`: by draw."""
        first, count = self._seen, len(outcome.codes)
        self._seen += count
        self._codes[first : self._seen] = outcome.codes
        self._labels[first : self._seen] = label_numbers
        self._details |= {first + index: detail for index, detail in outcome.details.items()}
        for candidate in outcome.candidates:
            self._hashes[first + candidate.index] = candidate.hash
            self._thumbnails[first + candidate.index] = np.frombuffer(candidate.thumbnail, np.uint8)
            self._windows[first + candidate.index] = np.frombuffer(candidate.windows, np.uint8)
            self._ids[first + candidate.index] = candidate.image_id
        new = [first + candidate.index for candidate in outcome.candidates]
        repeated = self._repeated(new)
        self._failures += new
        return [
            new_candidate
            for new_candidate, is_repeat in zip(outcome.candidates, repeated, strict=True)
            if not is_repeat and self._within_cap(new_candidate)
        ]

    def table(self, caption_numbers: Ints, draws: Ints) -> pa.Table:
        """Returns a row of `tables.dataset.DROPS` per draw; the reason is `CANDIDATE` where it may become a row."""
        count = len(self._codes)
        failed = self._codes == CODE[CANDIDATE]
        of_failures = pa.array(np.cumsum(failed) - 1, pa.int64(), mask=~failed)
        columns = {
            "caption_number": pa.array(caption_numbers, pa.int32()),
            "draw": pa.array(draws, pa.int64()),
            "reason": pa.array(REASONS, pa.string()).take(pa.array(self._codes)),
            "detail": pa.array([self._details.get(index) for index in range(count)], pa.string()),
            "image_id": pa.array([self._ids.get(index) for index in range(count)], pa.string()),
            "fingerprint": pa.array(self._hashes, pa.uint64(), mask=~failed),
            "thumbnail": thumbnail_column(self._thumbnails[failed]).take(of_failures),
            "windows": thumbnail_column(self._windows[failed]).take(of_failures),
        }
        return pa.table(columns, schema=DROPS)

    def counts(self) -> dict[str, int]:
        """Returns the number of draws by reason."""
        numbers = np.bincount(self._codes, minlength=len(REASONS)).tolist()
        return {reason: number for reason, number in zip(REASONS, numbers, strict=True) if number}

    def _repeated(self, new: list[int]) -> list[bool]:
        if self._distance is None or not new:
            return [False] * len(new)
        repeated = repeated_among(self._marks(new), self._marks(self._failures), self._distance)
        return [bool(is_repeat) for is_repeat in repeated]

    def _marks(self, indices: list[int]) -> CopyMarks:
        rows = np.array(indices, np.int64)
        return CopyMarks(rows, self._labels[rows], self._hashes[rows], self._thumbnails[rows])

    def _within_cap(self, candidate: Candidate) -> bool:
        number = candidate.wanted.caption.number
        self._kept[number] += 1
        return self._kept[number] <= self._cap


def thumbnail_column(levels: Thumbnails) -> pa.Array:
    """Returns thumbnails, or other bytes (images, bytes), as a column of a table."""
    data = pa.py_buffer(np.ascontiguousarray(levels).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(levels.shape[1]), len(levels), [None, data])


def thumbnails_of(column: pa.ChunkedArray) -> Thumbnails:
    """Returns the thumbnails of a column made by `thumbnail_column`. The column has no nulls."""
    return levels_of(column, THUMBNAIL_BYTES)


def levels_of(column: pa.ChunkedArray, width: int) -> Thumbnails:
    """Returns the bytes of a column of `width` bytes per row, without nulls: (rows, width)."""
    array = pa.concat_arrays([pa.array([], column.type), *column.chunks])
    levels = np.frombuffer(array.buffers()[1] or b"", np.uint8)[: len(array) * width]
    return levels.reshape(len(array), width)
