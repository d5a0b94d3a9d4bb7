"""Compares predictions of two classifiers: what got better and what got worse, cell by cell, on images that both saw.

It knows counts of images; its caller decides which images count, and `stats` has the formulas. It knows nothing of runs
or files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring import clusters
from c2b_ray.audits.c2b.scoring.clusters import Clusters, ClusterSums, cluster_sums, inflation
from c2b_ray.audits.c2b.verification.verified import VerifierAnswers
from c2b_ray.errors import RunError
from c2b_ray.stats.scores import Floats
from c2b_ray.steps.answers import CellAnswers, answers_of, by_column, counts_by_caption
from c2b_ray.steps.cells import CellImages, CellName, GroupName, images_of_cells, is_labelled
from c2b_ray.steps.draw import Ints, Mask
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.tables import COMPARISON, COMPARISON_POOLED

# Compares two classifiers on the images that both saw: which images count, and what each got right.


@dataclass(frozen=True)
class ComparisonSide:
    """One of the two sides of a comparison: tables of `tables.CAPTIONS`, `DRAWS` and `PREDICTIONS`, the classifier,
    and which images are near-duplicates of others.

    `verifier_answers`: about the images; None without a verifier. `doubts`: why the side's score of a cell is in
    doubt. `clusters`: of the images; None where they are independent. A's count.
    """

    captions: pa.Table
    draws: pa.Table
    predictions: pa.Table
    classifier: str
    distinct: Distinct | None = None
    verifier_answers: VerifierAnswers | None = None
    doubts: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    clusters: Clusters | None = None


@dataclass(frozen=True)
class PairCount:
    """The images of one cell.

    `n`: those that count, of which both sides got `both` right, and only one side `only_a` and `only_b`. Not counted in
    n: images that only one side drew, that the verifier refused, that repeat another, and that a classifier did not
    answer. `by_caption`: (only_a, only_b, n) of each caption that has such images; labelled images count as one
    caption's.
    """

    n: int = 0
    both: int = 0
    unshared: int = 0
    refused: int = 0
    unanswered: int = 0
    repeats: int = 0
    only_a: int = 0
    only_b: int = 0
    by_caption: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Disagreement:
    """Images of a cell that only one side got right, each with the other side's answer, in the ids' order."""

    only_a: tuple[tuple[str, str], ...] = ()
    only_b: tuple[tuple[str, str], ...] = ()


class SharedImages:
    """The images that both sides drew for the same cell. Cells and numbers of images are A's."""

    def __init__(self, a: ComparisonSide, b: ComparisonSide) -> None:
        self.a, self.b = a, b
        self._drawn_a, self._drawn_b = (images_of_cells(side.captions, side.draws) for side in (a, b))
        self._common = self._drawn_a.where(self._drawn_by_both())
        self._shown = (
            self._common
            if a.verifier_answers is None
            else self._common.where(_accepted(self._common, a.verifier_answers))
        )
        pictures = None if a.distinct is None else a.distinct.pictures(self._drawn_a.ids)
        self._counted = self._shown.without_copies(pictures)
        self._of_a, self._of_b = (answers_of(side.predictions, side.classifier).to(self._counted) for side in (a, b))

    def _drawn_by_both(self) -> Mask:
        a, b = self._drawn_a, self._drawn_b
        cell = np.array([a.number.get(name, -1) for name in b.names], np.int64)[b.cell]
        image = a.ids.numbers(b.ids.ids)[b.image]
        in_both = (cell >= 0) & (image >= 0)
        keys = cell[in_both] * len(a.ids) + image[in_both]
        return np.isin(a.cell * len(a.ids) + a.image, keys)

    @cached_property
    def _answered(self) -> Mask:
        return self._of_a.answered & self._of_b.answered

    @cached_property
    def counts(self) -> dict[GroupName, dict[str, PairCount]]:
        """Returns the counts of every cell of either side, A's order first."""
        a, b = self._of_a, self._of_b
        by_a, by_b = a.right & ~b.right & self._answered, b.right & ~a.right & self._answered
        n, both, only_a, only_b = map(a.count, (self._answered, a.right & b.right & self._answered, by_a, by_b))
        by_caption = counts_by_caption(self._counted, (by_a, by_b, self._answered))
        common, accepted, counted = self._common.sizes, self._shown.sizes, self._counted.sizes
        columns = {
            "n": n, "both": both, "unshared": self._unshared(), "refused": common - accepted, "unanswered": counted - n,
            "repeats": accepted - counted, "only_a": only_a, "only_b": only_b,
        }  # fmt: skip
        cells_of_b = zip(self._drawn_b.names, self._drawn_b.sizes.tolist(), strict=True)
        counts: dict[CellName, PairCount] = {
            name: PairCount(
                **{column: int(values[number]) for column, values in columns.items()},
                by_caption=tuple(by_caption[number]),
            )
            for number, name in enumerate(self._drawn_a.names)
        }
        counts |= {name: PairCount(unshared=size) for name, size in cells_of_b if name not in counts}
        by_group: dict[GroupName, dict[str, PairCount]] = {}
        for name, count in counts.items():
            by_group.setdefault(GroupName(*name[:2]), {})[name.bias_class] = count
        return by_group

    @cached_property
    def gains(self) -> dict[CellName, ClusterSums] | None:
        """Returns for each of A's cells, by cluster, the images that count, and how many more of them B got right than
        A; None where images are independent."""
        if self.a.clusters is None:
            return None
        of_row = self.a.clusters.of(self._counted)
        gain = self._of_b.right.astype(np.int64) - self._of_a.right
        return {
            name: cluster_sums(self._counted, slice(number, number + 1), of_row, gain, self._answered)
            for number, name in enumerate(self._counted.names)
        }

    def _unshared(self) -> Ints:
        """Returns for each of A's cells the number of images that only one side drew."""
        sizes = dict(zip(self._drawn_b.names, self._drawn_b.sizes.tolist(), strict=True))
        sizes_of_b = np.array([sizes.get(name, 0) for name in self._drawn_a.names], np.int64)
        return self._drawn_a.sizes + sizes_of_b - 2 * self._common.sizes

    def disagreements(self, cells: Sequence[tuple[str, str, str]]) -> dict[CellName, Disagreement]:
        """Returns for each of these cells the images that only one side got right, as many as in `counts`."""
        return {
            name: Disagreement(self._only(name, self._of_a, self._of_b), self._only(name, self._of_b, self._of_a))
            for name in (CellName(*cell) for cell in cells)
        }

    def _only(self, name: CellName, right: CellAnswers, wrong: CellAnswers) -> tuple[tuple[str, str], ...]:
        """Returns the images of a cell that one side got right and the other wrong, with the wrong answer."""
        number = self._counted.number.get(name)
        if number is None:
            return ()
        rows = np.arange(*self._counted.starts[number : number + 2])
        rows = rows[right.right[rows] & wrong.answered[rows] & ~wrong.right[rows]]
        rows = rows[self._counted.ids.alphabetical(self._counted.image[rows])]
        images = self._counted.ids.names(self._counted.image[rows]).to_pylist()
        return tuple(zip(images, map(wrong.answers.name, wrong.taken[rows].tolist()), strict=True))


def _accepted(cells: CellImages, verifier_answers: VerifierAnswers) -> Mask:
    """Returns whether the verifier saw class and value in each image."""
    accepted = np.zeros(len(cells.cell), bool)
    rows = verifier_answers.rows_of(cells)
    for number, name in enumerate(cells.names):
        of_cell = slice(*cells.starts[number : number + 2].tolist())
        accepted[of_cell] = verifier_answers.accepts(rows[of_cell], name)
    return accepted


CHANGES = {"for": "better", "against": "worse", "none": "same", "undetermined": "undetermined"}

Cells = Mapping[GroupName, Mapping[str, PairCount]]


@dataclass(frozen=True)
class EffectivePairs:
    """The number of independent pairs of answers that tell as much as those of a cell, its captions, and how they
    spread: columns of `tables.COMPARISON`. `of_captions`: the number without clusters; `gains`: by cluster, where
    images come in clusters."""

    effective: float
    captions: int | None = None
    caption_spread: float | None = None
    of_captions: float = np.nan
    gains: ClusterSums | None = None


ComparedCell = tuple[PairCount, EffectivePairs]


def compare(shared: SharedImages, tau: float, alpha: float) -> pa.Table:
    """Returns a table of `tables.COMPARISON`: a row per cell of either side, A's order first. Differences are B minus
    A.

    `change` has four values, as verdicts do: `better` or `worse` where the accuracies differ by more than tau and the
    adjusted p-value is at most alpha, `same` where the interval of the difference lies within [-tau, tau], else
    `undetermined`. `p_value` is the larger of two: the score test of |difference| <= tau, which uses the margin, and
    McNemar's exact test, which keeps its level with few images. The false discovery rate is controlled over all cells,
    for accuracies and for φ separately. An image that one side did not draw, that a classifier did not answer, that a
    verifier refused, or that is a near-duplicate of another of its cell by A's `distinct`, is left out and counted. A
    cell that is in doubt on either side is undetermined, and not tested. Captions, or clusters where A's run has them,
    are the sampling unit: the tests and intervals are of as many images as would tell as much if each had one of its
    own.

    Raises RunError where no cell has an image that both sides drew.
    """
    cells = shared.counts
    counts = [count for group in cells.values() for count in group.values()]
    independent = _effective_pairs(shared, 1 - alpha)
    if counts and all(count.unshared and not count.n and not count.unanswered for count in counts):
        raise RunError(
            "the two have no image of any cell in common, so nothing can be paired: audit both classifiers in one run, "
            "or with the same images (files of the same bytes) or the same index, seed, classes and `attributes`"
        )
    doubts = [_doubt(shared, (*group, value)) for group, of_group in cells.items() for value in of_group]
    columns = _numbers(cells, independent, doubts, tau, alpha)
    names = [
        {"target_class": target_class, "attribute": attribute, "bias_class": bias_class}
        for (target_class, attribute), group in cells.items()
        for bias_class in group
    ]
    table = [
        {**name, **vars(count), **vars(effective), **{column: values[i] for column, values in columns.items()}}
        for i, (name, count, effective) in enumerate(zip(names, counts, independent, strict=True))
    ]
    return pa.Table.from_pylist(table, COMPARISON)


def compare_pooled(shared: SharedImages, tau: float, alpha: float) -> pa.Table:
    """Returns a table of `tables.COMPARISON_POOLED`: a row per attribute value, over all classes together.

    The images of all classes form one paired table, each counted once. `change` is `same` where the interval of the
    difference lies within [-tau, tau]; else `better` or `worse` where McNemar's exact test establishes a difference,
    however small, at false discovery rate alpha over all values; else `undetermined`. Unlike in a single cell, no
    margin is required: an effect that all classes share may be too small to show in each of them. Where the change
    disappears without one of the classes, it belongs to that class, and is in doubt. Cells in doubt are left out.
    """
    of_value: dict[tuple[str, str], dict[str, ComparedCell]] = defaultdict(dict)
    independent = iter(_effective_pairs(shared, 1 - alpha))
    for (target, attribute), group in shared.counts.items():
        for value, count in group.items():
            effective = next(independent)
            if count.n and _doubt(shared, (target, attribute, value)) is None:
                of_value[attribute, value][target] = (count, effective)
    rows = [
        {"attribute": attribute, "bias_class": value, **_pooled(list(cells.values()), 1 - alpha)}
        for (attribute, value), cells in of_value.items()
    ]
    q = stats.benjamini_hochberg([row["p_value"] for row in rows])
    for row, q_value, cells in zip(rows, q.tolist(), of_value.values(), strict=True):
        row |= {"q_value": q_value, "change": _change(row, q_value, tau, alpha)}
        if row["change"] in ("better", "worse") and (carrier := _carrier(cells, alpha)) is not None:
            row |= {"change": "undetermined", "doubt": f"{carrier} alone makes the difference"}
    return pa.Table.from_pylist(rows, COMPARISON_POOLED)


def _pooled(cells: Sequence[ComparedCell], confidence: float) -> dict[str, Any]:
    """Returns the numbers of one value over all classes."""
    n, only_a, only_b = (sum(getattr(count, name) for count, _ in cells) for name in ("n", "only_a", "only_b"))
    pairs = _joined_difference(cells, confidence)
    low, high = stats.paired_difference_interval(*pairs, confidence)
    return {
        "classes": len(cells),
        "n": n,
        "only_a": only_a,
        "only_b": only_b,
        "difference": (only_b - only_a) / n,
        "difference_low": float(low),
        "difference_high": float(high),
        "p_value": float(stats.mcnemar_p_values(*pairs[:2])),
        **_captions_of([pairs_of_cell for _, pairs_of_cell in cells], pairs[2]),
    }


def _joined_difference(cells: Sequence[ComparedCell], confidence: float) -> tuple[float, float, float]:
    """Returns only_a, only_b and n of cells together, as numbers of pairs that are independent.

    The sums over the cells, times  (sum of v_k * n_k) / (sum of v_k * n_k^2 / effective_k),  which leaves their
    difference and gives it the variance that it has. Clusters may hold images of several cells: where images come in
    clusters, `effective` is that of the captions, and the design of all cells together adds its part.
    """
    counts = np.array(
        [(cell.only_a, cell.only_b, cell.n, effective_pairs.of_captions) for cell, effective_pairs in cells]
    ).reshape(-1, 4)
    only_a, only_b, n, effective = counts.T
    noise = only_a + only_b + 1 - (only_b - only_a) ** 2 / np.maximum(n, 1)  # v_k * n_k, no cell's 0
    fewer = (noise * n / effective).sum() / noise.sum() if len(counts) else 1.0
    gains = [effective_pairs.gains for _, effective_pairs in cells if effective_pairs.gains is not None]
    if gains:
        weights = (n / n.sum())[None]
        design = clusters.add_cluster_sums(gains).design(weights, noise / np.maximum(n, 1))
        fewer += float(inflation(design, confidence)[0]) - 1
    return float(only_a.sum() / fewer), float(only_b.sum() / fewer), float(n.sum() / fewer)


def _captions_of(effective_pairs: Sequence[EffectivePairs], effective: float) -> dict[str, Any]:
    captions = (
        None
        if effective_pairs[0].captions is None
        else sum(pairs_of_cell.captions or 0 for pairs_of_cell in effective_pairs)
    )
    spreads = [
        pairs_of_cell.caption_spread for pairs_of_cell in effective_pairs if pairs_of_cell.caption_spread is not None
    ]
    return {"effective": effective, "captions": captions, "caption_spread": max(spreads, default=None)}


def _carrier(cells: Mapping[str, ComparedCell], alpha: float) -> str | None:
    """Returns the class without which the others do not show the same change; None where each can be left out."""
    gain = {target: cell.only_b - cell.only_a for target, (cell, _) in cells.items()}
    strongest = max(gain, key=lambda target: abs(gain[target]))
    other_cells = [cell for target, cell in cells.items() if target != strongest]
    only_a, only_b, _ = _joined_difference(other_cells, 1 - alpha)
    same_way = (only_b - only_a) * sum(gain.values()) > 0
    return None if same_way and float(stats.mcnemar_p_values(only_a, only_b)) <= alpha else strongest


def _change(row: Mapping[str, Any], q_value: float, tau: float, alpha: float) -> str:
    if -tau <= row["difference_low"] and row["difference_high"] <= tau:
        return "same"
    if q_value > alpha:
        return "undetermined"
    return "better" if row["difference"] > 0 else "worse"


def _doubt(shared: SharedImages, cell: tuple[str, str, str]) -> str | None:
    return shared.a.doubts.get(cell) or shared.b.doubts.get(cell)


def _effective_pairs(shared: SharedImages, confidence: float) -> list[EffectivePairs]:
    """Returns those of each cell, in the order of `shared.counts`."""
    counts = [count for group in shared.counts.values() for count in group.values()]
    only_a, only_b, n = by_column([count.by_caption for count in counts], kinds=3)
    effective = stats.effective_pairs(only_a, only_b, n, confidence)
    if is_labelled(shared.a.draws):
        result = [EffectivePairs(size, of_captions=size) for size in effective.effective.tolist()]
    else:
        numbers = zip(effective.effective.tolist(), effective.spread.tolist(), counts, strict=True)
        result = [EffectivePairs(size, len(count.by_caption), spread, size) for size, spread, count in numbers]
    if shared.gains is None:
        return result
    names = [CellName(*group, value) for group, of_group in shared.counts.items() for value in of_group]
    by_cluster = [shared.gains.get(name) for name in names]
    return [_in_clusters(*arguments, confidence) for arguments in zip(result, counts, by_cluster, strict=True)]


def _in_clusters(
    effective_pairs: EffectivePairs, count: PairCount, gains: ClusterSums | None, confidence: float
) -> EffectivePairs:
    """Takes clusters into account, beside captions."""
    if gains is None or not count.n:
        return effective_pairs
    variance = (count.only_a + count.only_b + 1 - (count.only_b - count.only_a) ** 2 / count.n) / count.n
    of_clusters = float(gains.effective(confidence, np.array([variance]))[0])
    return replace(
        effective_pairs, effective=1 / (1 / effective_pairs.of_captions + 1 / of_clusters - 1 / count.n), gains=gains
    )


def _padded(cells: Cells, names: Sequence[str]) -> tuple[NDArray[np.bool_], list[NDArray[np.int64]]]:
    """Pads the counts of every group to one width: returns which entries are cells, and the counts of these names."""
    width = max((len(group) for group in cells.values()), default=0)
    is_cell = np.array([[i < len(group) for i in range(width)] for group in cells.values()], dtype=bool)
    is_cell = is_cell.reshape(len(cells), width)
    counts = []
    for name in names:
        padded = np.zeros(is_cell.shape, dtype=np.int64)
        padded[is_cell] = [getattr(cell, name) for group in cells.values() for cell in group.values()]
        counts.append(padded)
    return is_cell, counts


def _numbers(
    cells: Cells, independent: Sequence[EffectivePairs], doubts: list[str | None], tau: float, alpha: float
) -> dict[str, list[Any]]:
    """Returns the computed columns, a value per cell. Groups are padded to one width, so that each formula runs once: a
    cell without images changes nothing for the others."""
    is_cell, (n, both_right, only_a, only_b) = _padded(cells, ("n", "both", "only_a", "only_b"))
    share = np.ones(is_cell.shape)
    share[is_cell] = [pairs_of_cell.effective for pairs_of_cell in independent]
    share = np.divide(share, n, out=np.ones(is_cell.shape), where=n > 0)
    pairs, confidence = (only_a * share, only_b * share, n * share), 1 - alpha
    low, high = stats.paired_difference_interval(*pairs, confidence)
    phi_low, phi_high = stats.phi_difference_interval(*pairs, confidence)
    p = np.maximum(stats.paired_difference_p_values(*pairs, tau), stats.mcnemar_p_values(*pairs[:2]))
    padded = {
        "accuracy_a": np.divide(both_right + only_a, n, out=np.full(n.shape, np.nan), where=n > 0),
        "accuracy_b": np.divide(both_right + only_b, n, out=np.full(n.shape, np.nan), where=n > 0),
        "difference": stats.paired_difference(*pairs),
        "difference_low": low,
        "difference_high": high,
        "p_value": p,
        "phi_a": stats.bias_scores(both_right + only_a, n),
        "phi_b": stats.bias_scores(both_right + only_b, n),
        "phi_difference": stats.phi_difference(*pairs),
        "phi_difference_low": phi_low,
        "phi_difference_high": phi_high,
        "phi_p_value": stats.phi_difference_p_values(*pairs, tau),
    }
    columns = {name: values[is_cell] for name, values in padded.items()}
    trusted = np.array([doubt is None for doubt in doubts], dtype=bool)
    for name in ("p_value", "phi_p_value"):
        columns[name] = np.where(trusted, columns[name], np.nan)
    columns["q_value"] = stats.benjamini_hochberg(columns["p_value"])
    columns["phi_q_value"] = stats.benjamini_hochberg(columns["phi_p_value"])
    none_q = stats.benjamini_hochberg(
        np.where(trusted, stats.paired_equivalence_p_values(*pairs, tau)[is_cell], np.nan)
    )
    verdicts = stats.verdicts(columns["difference"], columns["q_value"], none_q, tau, alpha)
    changes = [CHANGES[verdict] for verdict in verdicts]
    changes = [change if is_trusted else "undetermined" for change, is_trusted in zip(changes, trusted, strict=True)]
    to_settle = _pairs_to_settle([counts[is_cell] for counts in pairs], share[is_cell], changes, trusted, tau, alpha)
    to_settle = [
        None if pairs_of_cell.gains is not None else images
        for pairs_of_cell, images in zip(independent, to_settle, strict=True)
    ]
    columns_of_numbers = {name: values.tolist() for name, values in columns.items()}
    return {**columns_of_numbers, "change": changes, "doubt": doubts, "pairs_to_settle": to_settle}


def _pairs_to_settle(
    pairs: Sequence[Floats], share: Floats, changes: Sequence[str], trusted: Mask, tau: float, alpha: float
) -> list[int | None]:
    """Returns the images that would settle each undetermined change, were the observed shares the truth; None where no
    number would, or a cell is in doubt or has none."""
    only_a, only_b, n = pairs
    tested = max(1, int(((n > 0) & trusted).sum()))
    is_beyond = np.abs(only_b - only_a) > tau * n
    result = np.full(len(n), -1, np.int64)
    # One more change, or one more cell without one, would have to pass this step of Benjamini and Hochberg's ladder.
    for chosen, names in ((is_beyond, ("better", "worse")), (~is_beyond, ("same",))):
        settled = sum(change in names for change in changes)
        step = alpha * min(1.0, (1 + settled) / tested)
        counts = (only_a[chosen], only_b[chosen], n[chosen])
        result[chosen] = stats.paired_images_to_settle(*counts, tau, step)
    is_open = np.array([change == "undetermined" for change in changes], bool) & trusted & (n > 0) & (result > 0)
    images = np.ceil(result / share)
    return [int(number) if is_open[i] else None for i, number in enumerate(images)]
