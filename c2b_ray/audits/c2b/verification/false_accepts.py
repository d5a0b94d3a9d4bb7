"""A verifier's false accepts: measured on other classes' images, predicted for cells, and corrected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import (
    NOTHING,
    CellObservations,
    VerifiedImages,
    doubt,
    explained_by_class,
)
from c2b_ray.names import normalise
from c2b_ray.roles import Captioner, Floats, TextImageEncoder
from c2b_ray.stats.noisy_labels import CalibrationCounts, Corrected, Run, corrected_runs, misfit_p_values
from c2b_ray.stats.read_values import StandardisedCount, rightly_refused, standardised_count, strata
from c2b_ray.steps import encoded
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellGroup, GroupName, images_of_cells, similarities
from c2b_ray.steps.draw import ImageSource, RowNumbers, distinct_count, image_id
from c2b_ray.steps.observe import Checks, verify
from c2b_ray.tables import DRAWS, NEGATIVES, VERIFICATIONS, content_id, seed_of

# Looks at images of the calibration that show another class as if an index had returned them: hard negatives.


MOST = 5000
"""The most images of a calibration table that are compared with the captions of a class. They cost an embedding each,
and those near to a caption a verification."""

SOURCE = "calibration"
"""The source of such images, in draws."""

TO_COMPARE = pa.schema([("negative_id", pa.string()), ("row", pa.int64()), ("target_class", pa.string())])


@dataclass(frozen=True)
class CaptionReach:
    """The captions of a run by target class, as (id, text), and the least similarity of each caption's pool."""

    captions: Mapping[str, Sequence[tuple[str, str]]]
    least: Mapping[str, float]

    @classmethod
    def of(cls, captions: pa.Table, nearest: pa.Table) -> CaptionReach:
        """`nearest`: of `tables.DRAWS`, the pool of each caption. Captions without a pool are left out."""
        pools = nearest.group_by("caption_id").aggregate([("similarity", "min")])
        least = dict(zip(pools["caption_id"].to_pylist(), pools["similarity_min"].to_pylist(), strict=True))
        by_class: dict[str, list[tuple[str, str]]] = {}
        for row in captions.to_pylist():
            if row["caption_id"] in least:
                by_class.setdefault(row["target_class"], []).append((row["caption_id"], row["text"]))
        return cls(by_class, least)


@dataclass(frozen=True)
class NegativeChecker:
    """What looks at the images: the verifier, the index's encoder, and the source of the images."""

    captioner: Captioner
    encoder: TextImageEncoder
    source: ImageSource
    reach: CaptionReach

    @cached_property
    def texts(self) -> dict[str, Floats]:
        """The embeddings of each class's captions, (captions, dimension)."""
        return {
            target: self.encoder.encode_texts([text for _, text in captions])
            for target, captions in self.reach.captions.items()
        }


def to_compare(labels: pa.Table, revision: str, made_by: str, reach: CaptionReach, seed: int) -> pa.Table:
    """Returns the images of a calibration table that are compared with each class's captions: a table of `TO_COMPARE`,
    with the rows of one image together.

    `labels`: `target_class` of each image, null where it is not known. `made_by`: what the answers depend on besides
    image and captions: encoder, index and the verifier's questions. For each class at most `MOST` images that show
    another class, chosen by `seed`.
    """
    classes_shown = np.array(
        [None if v is None else normalise(str(v)) for v in labels["target_class"].to_pylist()], object
    )
    jobs: list[tuple[int, str]] = []
    for target in reach.captions:
        other_rows = np.flatnonzero((classes_shown != normalise(target)) & (classes_shown != None))  # noqa: E711 (elementwise)
        order = np.random.default_rng(seed_of("negatives", target, seed)).permutation(other_rows)
        jobs += [(row, target) for row in order[:MOST].tolist()]
    jobs.sort()
    digest_of_class = {
        target: content_id("captions", made_by, *(f"{name} {reach.least[name]!r}" for name, _ in captions))
        for target, captions in reach.captions.items()
    }
    rows = [
        {
            "negative_id": content_id("negative", revision, row, target, digest_of_class[target]),
            "row": row,
            "target_class": target,
        }
        for row, target in jobs
    ]
    return pa.Table.from_pylist(rows, TO_COMPARE)


def compare(batch: pa.Table, checker: NegativeChecker, checks: Checks) -> pa.Table:
    """Compares a batch of `to_compare` with its classes' captions and verifies those images that are near to one:
    returns a table of `tables.NEGATIVES`, a row per row.

    `captions` of a row are those whose pools would hold the image; where there is none, it was not verified.
    """
    rows: RowNumbers = np.unique(batch["row"].to_numpy())
    files = checker.source.fetch(rows.tolist())
    if "error" not in files.column_names:
        files = files.append_column("error", pa.nulls(files.num_rows, pa.string()))
    vectors, errors = encoded.embedded(files, checker.encoder)
    position = np.searchsorted(rows, batch["row"].to_numpy())
    targets = batch["target_class"].to_pylist()
    near_captions = [
        _near(vectors[file_position], target, checker)
        for file_position, target in zip(position.tolist(), targets, strict=True)
    ]
    near_rows = np.flatnonzero([bool(captions) for captions, _ in near_captions])
    ids = [image_id(checker.source.revision, row) for row in batch["row"].to_pylist()]
    answers = _verified(
        files.take(pa.array(position[near_rows])), [(ids[i], targets[i]) for i in near_rows], checker, checks
    )
    nothing: dict[str, object] = {
        "class_shown": None,
        "attributes": [],
        "values": [],
        "certainties": [],
        "class_certainty": None,
    }
    result = []
    for i, (negative, file_position) in enumerate(
        zip(batch["negative_id"].to_pylist(), position.tolist(), strict=True)
    ):
        captions, similarities = near_captions[i]
        row = {
            "negative_id": negative,
            "image_id": ids[i],
            "target_class": targets[i],
            "error": errors[file_position],
            **nothing,
        }
        row |= {"revision": checks.revision, "captions": captions, "similarities": similarities}
        row["verification_id"] = checks.verification_id(ids[i], targets[i])
        result.append(row | answers.get((ids[i], targets[i]), {}))
    return pa.Table.from_pylist(result, NEGATIVES)


def _near(vector: list[float] | None, target: str, checker: NegativeChecker) -> tuple[list[str], list[float]]:
    """Returns the captions of a class whose pools would hold the image, and its similarity to each."""
    if vector is None:
        return [], []
    names = [name for name, _ in checker.reach.captions[target]]
    similarities = checker.texts[target] @ np.asarray(vector, np.float32)
    near_numbers = np.flatnonzero(similarities >= np.array([checker.reach.least[name] for name in names]))
    return [names[i] for i in near_numbers], similarities[near_numbers].tolist()


def _verified(
    files: pa.Table, images: Sequence[tuple[str, str]], checker: NegativeChecker, checks: Checks
) -> dict[tuple[str, str], dict[str, object]]:
    """Returns the verifier's answers about files, by image id and target class."""
    if not images:
        return {}
    columns = {"image_id": [image for image, _ in images], "target_class": [target for _, target in images]}
    table = pa.table({**columns, "bytes": files["bytes"], "error": files["error"]})
    answers = verify(table, checker.captioner, checks).to_pylist()
    return {(row["image_id"], row["target_class"]): row for row in answers}


def as_draws(negatives: pa.Table) -> pa.Table:
    """Returns `tables.NEGATIVES` as draws (`tables.DRAWS`): a row for each caption whose pool would hold an image."""
    owner = pc.list_parent_indices(negatives["captions"])
    return pa.table(
        {
            "caption_id": pc.list_flatten(negatives["captions"]),
            "image_id": negatives["image_id"].take(owner),
            "rank": pa.array(np.zeros(len(owner)), pa.int32()),
            "similarity": pc.list_flatten(negatives["similarities"]),
            "source": pa.repeat(SOURCE, len(owner)),
        }
    ).cast(DRAWS)


def as_verifications(negatives: pa.Table) -> pa.Table:
    """Returns the verified ones of `tables.NEGATIVES` as `tables.VERIFICATIONS`."""
    is_verified = pc.greater(pc.list_value_length(negatives["captions"]), 0)
    return negatives.filter(is_verified).select(VERIFICATIONS.names).cast(VERIFICATIONS)


MOST_UNCLAIMED = 0.25
"""The share of a cell's images that may show something else beyond what its scores are corrected for. Up to it, what is
concluded must hold with and without these images; beyond it, too much depends on what a classifier answers to them."""

MOST_NAMED = 6
TOLD = 0.1
"""The share of false accepts that a calibration should tell from none: it moves φ by as much."""

CONFIDENCE = 0.9
"""Of the limits of a prediction: a cell is in doubt where its lower limit, at 95 %, says so."""

MOST_UNKNOWN = 0.1
"""The refused images for each accepted one that may show none of the audit's classes where the calibration holds no
such image. Beyond it, too much depends on how many of these the verifier falsely accepts."""

LEAST_SENSITIVITY = 0.2
"""Below it, images of the class that the verifier refused would be more than four times those that it accepted."""

Float64s = NDArray[np.float64]


class Predicted(NamedTuple):
    """For each value of a group, the share of accepted images that do not show the class, with limits (values,); NaN
    where no image was accepted or no negative is near its captions. `lacking` (values,): how many more negatives near
    to the captions would tell whether the share exceeds `TOLD`; 0 where there are enough. `counted`: the number of
    images that do not show it, of `accepted` ones (values,), which gives limits at other confidences; NaN where no
    image was accepted. `known` (values,): the negatives near to its captions. `unknown`: for each accepted image of the
    class, at least so many refused ones show none of the audit's classes, where the calibration holds no such
    image."""

    share: Float64s
    low: Float64s
    high: Float64s
    lacking: NDArray[np.int64]
    counted: StandardisedCount
    accepted: Float64s
    known: NDArray[np.int64]
    unknown: float

    def limits(self, confidence: float, times: float = 1.0) -> tuple[Float64s, Float64s]:
        """Returns limits of the share, at most 1; `times`: as they would be with that many times the negatives."""
        low, high = self.counted.limits(confidence, times)
        return np.minimum(low / self.accepted, 1.0), np.minimum(high / self.accepted, 1.0)


@dataclass(frozen=True)
class _Looked:
    """Images of cells, the verifier's answers about them, and each row's largest similarity to a caption of its
    cell."""

    seen: CellObservations
    similarity: Float64s

    @classmethod
    def of(cls, verified: VerifiedImages, captions: pa.Table, draws: pa.Table) -> _Looked:
        cells = images_of_cells(captions, draws)
        return cls(verified.of(cells), similarities(cells, captions, draws))

    def cell(self, group: CellGroup, value: int) -> tuple[NDArray[np.int64], Float64s]:
        """Returns answers (`CellObservations.answers`) and similarities of the images of one value."""
        cells, first = self.seen.cells, group.cells.start
        rows = cells.rows(slice(first + value, first + value + 1))
        start = cells.rows(group.cells).start
        return self.seen.answers(group)[rows.start - start : rows.stop - start], self.similarity[rows]


class FalseAccepts:
    """Predictions for the cells of a run whose images were drawn from those that the verifier accepted.

    `looked`: of `tables.DRAWS`, all images of the pools that were looked at. `negatives`: of `tables.NEGATIVES`.
    """

    def __init__(self, verified: VerifiedImages, captions: pa.Table, looked: pa.Table, negatives: pa.Table) -> None:
        self._verified = verified
        self._pool = _Looked.of(verified, captions, looked)
        negatives_verified = verified.on(as_verifications(negatives))
        self._negatives = _Looked.of(negatives_verified, captions, as_draws(negatives))
        self._known: dict[GroupName, Predicted | None] = {}

    def of(self, group: CellGroup) -> Predicted | None:
        """Returns the prediction for a group; None where the verifier was not asked for its class.

        It is the same for every classifier, so it is kept.
        """
        if group.name not in self._known:
            is_asked = self._verified.asks_class(group.target_class)
            self._known[group.name] = self._predicted(group) if is_asked else None
        return self._known[group.name]

    def _predicted(self, group: CellGroup) -> Predicted:
        rows = [self._of_value(group, value) for value in range(len(group.values))]
        *moments, accepted, negatives, needed = np.array(rows, np.float64).reshape(-1, 7).T
        counted = StandardisedCount(*moments)
        low, high = (limit / accepted for limit in counted.limits(CONFIDENCE))
        lacking = np.where(high > 2 * TOLD, np.maximum(np.ceil(needed - negatives), 0.0), 0.0).astype(np.int64)
        share, low, high = (
            np.where(negatives > 0, part, np.nan) for part in (counted.value / accepted, low, np.minimum(high, 1.0))
        )
        unknown = self._unknown(group.target_class)
        return Predicted(share, low, high, lacking, counted, accepted, negatives.astype(np.int64), unknown)

    def _unknown(self, target: str) -> float:
        """Returns `Predicted.unknown`: what is beyond the upper limit of the number that is expected.

        The verifier calls images of the audit's classes something else, too: those of other classes as often as it does
        the negatives, and those of the class itself as often as in the calibration.
        """
        if self._verified.knows_something_else():
            return 0.0
        shown, other, nothing = self._pool.seen.verified.counts_of_class(target)
        _, other_negatives, nothing_negatives = self._negatives.seen.verified.counts_of_class(target)
        recognised, missed = self._verified.answers_of_class(target)
        images = [other, shown if recognised + missed else 0]
        kept = [max(other_negatives, 1), recognised]  # 1: without any, no limit would say anything
        expected = standardised_count(images, kept, [nothing_negatives, missed])
        return max(0.0, nothing - float(expected.limits(CONFIDENCE)[1])) / max(shown, 1)

    def _of_value(self, group: CellGroup, value: int) -> tuple[float, ...]:
        """Returns the fields of a `StandardisedCount`, the number of accepted images, how many negatives are known, and
        how many are enough."""
        pools = self._pool.seen.cells.group_named.get(group.name)
        negative_group = self._negatives.seen.cells.group_named.get(group.name)
        nothing = (float("nan"),) * 5 + (0.0, 0.0)
        if pools is None:
            return nothing
        refused_answer = len(group.values)
        pool_answers, similarity = self._pool.cell(pools, value)
        accepted = int((pool_answers == value).sum())
        if not accepted:
            return nothing
        answers, similarity_of_negatives = (
            (np.zeros(0, np.int64), np.zeros(0))
            if negative_group is None
            else self._negatives.cell(negative_group, value)
        )
        is_refused = pool_answers == refused_answer
        refused_similarity = similarity_of_negatives[answers == refused_answer]
        limits = strata(similarity[is_refused], refused_similarity)

        def counts(values: Float64s) -> Float64s:
            stratum = np.searchsorted(limits, values, side="right")
            return np.bincount(stratum, minlength=len(limits) + 1).astype(np.float64)

        def of_class(answers: NDArray[np.int64]) -> NDArray[np.bool_]:
            is_shown: NDArray[np.bool_] = (answers != refused_answer) & (answers != NOTHING)
            return is_shown

        kept = counts(refused_similarity)
        refused, of_all = counts(similarity[is_refused]), counts(similarity[of_class(pool_answers)])
        taken_for_class = counts(similarity_of_negatives[of_class(answers)])
        taken = counts(similarity_of_negatives[answers == value])

        def at(sensitivity: float) -> tuple[float, StandardisedCount]:
            within = min(max(sensitivity, LEAST_SENSITIVITY), 1.0)
            images, determined = rightly_refused(refused, of_all, kept, taken_for_class, within)
            return float(images.sum()), standardised_count(images, kept, taken, determined)

        sensitivity = self._verified.class_sensitivity(group.target_class)
        error = self._verified.error_of_sensitivity(group.target_class)
        images, counted = at(sensitivity)
        at_limits = [at(sensitivity + side)[1].value for side in (-error, error)]
        counted = counted._replace(chance=counted.chance + (at_limits[1] - at_limits[0]) ** 2 / 4)
        # Without a single false accept, 3 times its weight is the upper limit at 95 % ("rule of three").
        needed = 3 * images / (TOLD * accepted)
        return *map(float, counted), float(accepted), float(len(refused_similarity)), needed


def doubt_of_false_accepts(target: str, low: float, claimed: float) -> list[str]:
    """Why a cell is in doubt whose images show something else more often than its scores are corrected for.

    low: the least share that does, as predicted; claimed: the share that the scores are corrected for.
    """
    if not low > claimed + MOST_UNCLAIMED:
        return []
    return [
        f"at least {low:.0%} of the images show no {target}, by what the verifier accepts among similar images of the "
        f"calibration; the scores are corrected for {claimed:.0%}"
    ]


def doubt_of_unknown(target: str, unknown: float) -> list[str]:
    """Why the cells of a class are in doubt whose pools hold images of a kind that the calibration lacks.

    unknown: `Predicted.unknown`.
    """
    if not unknown > MOST_UNKNOWN:
        return []
    return [
        f"how many of the images show no {target} is not known: for each 100 that the verifier accepted it refused "
        f"at least {100 * unknown:.0f} that show none of the audit's classes, and the calibration holds no such image"
    ]


def too_few_negatives(classes: Sequence[str], predicted: Sequence[tuple[str, Predicted | None]]) -> list[str]:
    """Returns a sentence on the classes of whose cells too little is known: which images a calibration lacks; nothing
    where enough is known of all.

    classes: the audit's. predicted: a class and the prediction of each of its groups.
    """
    lacking_by_class, open_cells, total = [], 0, 0
    for target in dict.fromkeys(name for name, _ in predicted):
        lacking_of_cells = [
            prediction.lacking for name, prediction in predicted if name == target and prediction is not None
        ]
        cells = np.concatenate([*lacking_of_cells, np.zeros(0, np.int64)])
        total += len(cells)
        if (cells > 0).any():
            open_cells += int((cells > 0).sum())
            lacking_by_class.append((int(cells.max()), target))
    if not lacking_by_class:
        return []
    first = [f"{number:,} for {target}" for number, target in sorted(lacking_by_class, reverse=True)[:MOST_NAMED]]
    remainder = f" and {len(lacking_by_class) - MOST_NAMED} classes more" if len(lacking_by_class) > MOST_NAMED else ""
    return [
        f"verification.calibration holds too few images that show none of {', '.join(classes)} and look like one: for "
        f"{open_cells:,} of {total:,} cells it cannot tell whether more than {TOLD:.0%} of the images show something "
        "else. About so many more, as near to a class's captions as the index's images, would tell: "
        f"{', '.join(first)}{remainder}"
    ]


def lacks_something_else(classes: Sequence[str], predicted: Sequence[tuple[str, Predicted | None]]) -> list[str]:
    """Returns a sentence on a calibration without images that show none of the audit's classes, where many of the run's
    images do; nothing elsewhere. The arguments are those of `too_few_negatives`."""
    lacking = [name for name, one in predicted if one is not None and one.unknown > MOST_UNKNOWN]
    if not lacking:
        return []
    return [
        f"verification.calibration holds no image that shows none of {', '.join(classes)}, and many images near to the "
        f"captions of {', '.join(dict.fromkeys(lacking))} show none: how many of them the verifier falsely accepts is "
        "not known, and the cells of these classes are in doubt. Add images of other things, as the index holds them, "
        "with any other target_class"
    ]


def without_false_accepts(accuracy: Float64s, share: Float64s, claimed: Float64s) -> Float64s:
    """Returns the accuracies as they would be if a classifier were wrong on every image that shows something else.

    accuracy * (1 - claimed) / (1 - share), at most 1

    accuracy: (values,), corrected for the share `claimed` of images that do not show the class; share: as predicted,
    NaN where it is not. A share below what is claimed changes nothing.
    """
    least = np.nan_to_num(claimed)
    larger = np.minimum(np.fmax(share, least), 1.0)
    most = np.maximum(accuracy, 1.0)
    without = np.divide(accuracy * (1 - least), 1 - larger, out=most.copy(), where=larger < 1)
    return np.where(larger > least, np.minimum(without, most), accuracy)


# Corrects scores of one attribute for the verifier's errors, and tests whether the calibration fits the run.


FREE = 3.0
"""A calibration that does not fit the run counts as this many images of each value and of the class."""

SLACK = 0.02
"""A verifier may be this much worse than its calibration says and still pass as equally good."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Correction:
    """A group's corrected scores. `misfit`: the p-value of the claim that the calibration fits the run, or that the
    verifier does better here and nothing else is wrong. `confirmed`, `total`: of every cell's images, how many were
    said to show the class, and how many were looked at."""

    scores: Corrected
    misfit: float
    confirmed: Counts
    total: Counts

    def columns(self) -> dict[str, Float64s]:
        """Returns the columns of `tables.SCORES` that a correction adds."""
        names = ("shown_low", "shown_high", "sensitivity", "specificity", "class_shown")
        return {name: getattr(self.scores, name) for name in names} | {"shown": np.diag(self.scores.shown)}


def corrections_of(
    seen: CellObservations,
    groups: Sequence[CellGroup],
    answers: CellAnswers,
    thresholds: Thresholds,
    rough: bool = False,
) -> dict[GroupName, Correction]:
    """Returns the corrected scores of each group, without groups of which the verifier named no value of any image.
    `rough`: the calibration is tested by simulation only where it seems not to fit."""
    all_runs = [(group, _run(seen, group, answers)) for group in groups]
    runs_of_groups = [(group, run) for group, run in all_runs if run is not None]
    runs = [run for _, run in runs_of_groups]
    misfits = misfit_p_values(runs, rough=rough)
    refuted = [misfit <= thresholds.alpha for misfit in misfits]
    # Intervals must not rest on a calibration that is refuted.
    used = [_with_at_most(run, FREE) if is_refuted else run for run, is_refuted in zip(runs, refuted, strict=True)]
    scores = corrected_runs(used, thresholds.confidence)
    better = [i for i, is_refuted in enumerate(refuted) if is_refuted and _better(scores[i], _known(runs[i]))]
    misfits_again = misfit_p_values([_with_at_most(runs[i], 0.0) for i in better], rough=rough)
    for i, misfit in zip(better, misfits_again, strict=True):
        misfits[i] = misfit
    corrections = {}
    for (group, run), of_group, misfit in zip(runs_of_groups, scores, misfits, strict=True):
        counts = np.asarray(run.right) + np.asarray(run.wrong)
        confirmed = counts[:, : len(group.values)].sum(axis=1).astype(int)
        corrections[group.name] = Correction(of_group, misfit, confirmed, counts.sum(axis=1).astype(int))
    return corrections


def _run(seen: CellObservations, group: CellGroup, answers: CellAnswers) -> Run | None:
    """Returns the counts of a group and the verifier's calibration; None where the verifier named no value."""
    counts, pictures = _counts(seen, group, answers)
    if not counts[:, :, : len(group.values)].any():
        return None
    unclassified, images_left = seen.left_in_pools(group)
    calibration = CalibrationCounts(
        seen.verified.calibration_of(group.attribute, group.values),
        seen.verified.calibration_of_class(group.target_class),
    )
    copies = _copies(counts, pictures), _copies(unclassified, images_left)
    return Run(counts[0], counts[1], calibration, copies, unclassified)


def _known(run: Run) -> CalibrationCounts:
    assert isinstance(run.calibration, CalibrationCounts)
    return run.calibration


def _with_at_most(run: Run, most: float) -> Run:
    return run._replace(calibration=_limited(_known(run), most))


def _counts(seen: CellObservations, group: CellGroup, answers: CellAnswers) -> tuple[Float64s, int]:
    """Counts answered images that are right, and that are wrong, (2, cells, answers of the verifier); and the distinct
    images among them, since some were drawn for several values."""
    rows, verifier_answers = seen.cells.rows(group.cells), seen.answers(group)
    values = len(group.values)
    width = values + seen.verified.asks_class(group.target_class)
    is_counted = answers.answered[rows] & (verifier_answers != NOTHING)
    wrong, cell = ~answers.right[rows][is_counted], seen.cells.cell[rows][is_counted] - group.cells.start
    keys = (wrong * values + cell) * width + verifier_answers[is_counted]
    counts = np.bincount(keys, minlength=2 * values * width).reshape(2, values, width)
    return counts.astype(np.float64), distinct_count(seen.cells.image[rows][is_counted])


def _copies(counts: Float64s, images: int) -> float:
    """Returns how many times each image is counted, on average."""
    return max(1.0, float(counts.sum()) / images) if images else 1.0


def _limited(calibration: CalibrationCounts, most: float) -> CalibrationCounts:
    """Returns the same shares, with each row counted on at most `most` images."""

    def rows(counts: Float64s) -> Float64s:
        totals = counts.sum(axis=1, keepdims=True)
        limited: Float64s = counts * np.divide(most, totals, out=np.ones_like(totals), where=totals > most)
        return limited

    return CalibrationCounts(
        rows(calibration.values), None if calibration.classes is None else rows(calibration.classes)
    )


def _better(scores: Corrected, calibration: CalibrationCounts) -> bool:
    """Returns whether the verifier's scores on this run are as good as its calibration."""
    right = np.diag(calibration.values) / np.maximum(calibration.values.sum(axis=1), 1.0)
    of_values = scores.sensitivity.mean() >= right.mean() - SLACK
    if calibration.classes is None:
        return bool(of_values)
    return bool(
        of_values and scores.class_sensitivity >= calibration.classes[0, 0] / calibration.classes[0].sum() - SLACK
    )


def doubts_of_rows(
    verified: VerifiedImages,
    rows: Sequence[Mapping[str, Any]],
    corrections: Mapping[GroupName, Correction],
    thresholds: Thresholds,
) -> list[list[str]]:
    """Returns the reasons for doubt of each row of one classifier's scores. The rows must have the columns of these
    corrections."""
    refuted = _refuted(corrections, thresholds.alpha)
    next_cell: dict[GroupName, int] = defaultdict(int)
    reasons = []
    for row in rows:
        target, attribute = group = GroupName(row["target_class"], row["attribute"])
        position, next_cell[group] = next_cell[group], next_cell[group] + 1
        if group not in corrections:
            reasons.append(["the verifier named no value of any image"])
            continue
        of_row = doubt(row, verified.class_skill(target), verified.least_of_class(target))
        of_row += [refuted[attribute]] if attribute in refuted else []
        if verified.class_is_assumed(target):
            correction = corrections[group]
            of_class = correction.confirmed, correction.total
            of_row += explained_by_class(correction.scores, of_class, position, target, thresholds)
        reasons.append(of_row)
    return reasons


def _refuted(corrections: Mapping[GroupName, Correction], alpha: float) -> dict[str, str]:
    """Returns the attributes whose calibration does not fit the run, and why."""
    p_values: dict[str, list[float]] = defaultdict(list)
    for (_, attribute), correction in corrections.items():
        p_values[attribute].append(correction.misfit)
    refuted = {}
    for attribute, values in p_values.items():
        # Simes (1986): of one attribute's classes, which share a calibration.
        p_value = float((np.sort(values) * len(values) / np.arange(1, len(values) + 1)).min())
        if p_value <= alpha:
            refuted[attribute] = (
                f"the calibration does not fit this run: what the verifier says of {attribute} and what the "
                f"classifier gets right do not go together as they would (p = {p_value:.2g}); the verifier errs "
                "more often here, or both err on the same images"
            )
    return refuted
