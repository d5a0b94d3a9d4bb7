"""Compares predictions of two classifiers: what got better and what got worse, cell by cell, on images that both saw.

It knows counts of images; `sides` decides which images count, and `metrics` has the formulas. It knows nothing of runs
or files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.errors import RunError
from c2b_ray.schemas import COMPARISON, COMPARISON_POOLED
from c2b_ray.steps import clusters_of_images
from c2b_ray.steps.answers import by_column
from c2b_ray.steps.cells import CellName, Group, is_labelled
from c2b_ray.steps.clusters_of_images import ClusterSums, inflation
from c2b_ray.steps.sides import PairCount, SharedImages

CHANGES = {"for": "better", "against": "worse", "none": "same", "undetermined": "undetermined"}

Cells = Mapping[Group, Mapping[str, PairCount]]


@dataclass(frozen=True)
class EffectivePairs:
    """The number of independent pairs of answers that tell as much as those of a cell, its captions, and how they
    spread: columns of `schemas.COMPARISON`. `of_captions`: the number without clusters; `gains`: by cluster, where
    images come in clusters."""

    effective: float
    captions: int | None = None
    caption_spread: float | None = None
    of_captions: float = np.nan
    gains: ClusterSums | None = None


Cell = tuple[PairCount, EffectivePairs]


def compare(shared: SharedImages, tau: float, alpha: float) -> pa.Table:
    """Returns a table of `schemas.COMPARISON`: a row per cell of either side, A's order first. Differences are B minus
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
            "or with the same index, seed, classes and `attributes`"
        )
    doubts = [_doubt(shared, (*group, value)) for group, of_group in cells.items() for value in of_group]
    columns = _numbers(cells, independent, doubts, tau, alpha)
    names = [
        {"target_class": target_class, "attribute": attribute, "bias_class": bias_class}
        for (target_class, attribute), group in cells.items()
        for bias_class in group
    ]
    table = [
        {**name, **vars(count), **vars(known), **{column: values[i] for column, values in columns.items()}}
        for i, (name, count, known) in enumerate(zip(names, counts, independent, strict=True))
    ]
    return pa.Table.from_pylist(table, COMPARISON)


def compare_pooled(shared: SharedImages, tau: float, alpha: float) -> pa.Table:
    """Returns a table of `schemas.COMPARISON_POOLED`: a row per attribute value, over all classes together.

    The images of all classes form one paired table, each counted once. `change` is `same` where the interval of the
    difference lies within [-tau, tau]; else `better` or `worse` where McNemar's exact test establishes a difference,
    however small, at false discovery rate alpha over all values; else `undetermined`. Unlike in a single cell, no
    margin is required: an effect that all classes share may be too small to show in each of them. Where the change
    disappears without one of the classes, it belongs to that class, and is in doubt. Cells in doubt are left out.
    """
    of_value: dict[tuple[str, str], dict[str, Cell]] = defaultdict(dict)
    independent = iter(_effective_pairs(shared, 1 - alpha))
    for (target, attribute), group in shared.counts.items():
        for value, count in group.items():
            known = next(independent)
            if count.n and _doubt(shared, (target, attribute, value)) is None:
                of_value[attribute, value][target] = (count, known)
    rows = [
        {"attribute": attribute, "bias_class": value, **_pooled(list(cells.values()), 1 - alpha)}
        for (attribute, value), cells in of_value.items()
    ]
    q = metrics.benjamini_hochberg([row["p_value"] for row in rows])
    for row, q_value, cells in zip(rows, q.tolist(), of_value.values(), strict=True):
        row |= {"q_value": q_value, "change": _change(row, q_value, tau, alpha)}
        if row["change"] in ("better", "worse") and (carrier := _carrier(cells, alpha)) is not None:
            row |= {"change": "undetermined", "doubt": f"{carrier} alone makes the difference"}
    return pa.Table.from_pylist(rows, COMPARISON_POOLED)


def _pooled(cells: Sequence[Cell], confidence: float) -> dict[str, Any]:
    """Returns the numbers of one value over all classes."""
    n, only_a, only_b = (sum(getattr(count, name) for count, _ in cells) for name in ("n", "only_a", "only_b"))
    pairs = _together(cells, confidence)
    low, high = metrics.paired_difference_interval(*pairs, confidence)
    return {
        "classes": len(cells),
        "n": n,
        "only_a": only_a,
        "only_b": only_b,
        "difference": (only_b - only_a) / n,
        "difference_low": float(low),
        "difference_high": float(high),
        "p_value": float(metrics.mcnemar_p_values(*pairs[:2])),
        **_captions_of([known for _, known in cells], pairs[2]),
    }


def _together(cells: Sequence[Cell], confidence: float) -> tuple[float, float, float]:
    """Returns only_a, only_b and n of cells together, as numbers of pairs that are independent.

    The sums over the cells, times  (sum of v_k * n_k) / (sum of v_k * n_k^2 / effective_k),  which leaves their
    difference and gives it the variance that it has. Clusters may hold images of several cells: where images come in
    clusters, `effective` is that of the captions, and the design of all cells together adds its part.
    """
    counts = np.array([(cell.only_a, cell.only_b, cell.n, known.of_captions) for cell, known in cells]).reshape(-1, 4)
    only_a, only_b, n, effective = counts.T
    noise = only_a + only_b + 1 - (only_b - only_a) ** 2 / np.maximum(n, 1)  # v_k * n_k, no cell's 0
    fewer = (noise * n / effective).sum() / noise.sum() if len(counts) else 1.0
    gains = [known.gains for _, known in cells if known.gains is not None]
    if gains:
        weights = (n / n.sum())[None]
        design = clusters_of_images.together(gains).design(weights, noise / np.maximum(n, 1))
        fewer += float(inflation(design, confidence)[0]) - 1
    return float(only_a.sum() / fewer), float(only_b.sum() / fewer), float(n.sum() / fewer)


def _captions_of(known: Sequence[EffectivePairs], effective: float) -> dict[str, Any]:
    captions = None if known[0].captions is None else sum(one.captions or 0 for one in known)
    spreads = [one.caption_spread for one in known if one.caption_spread is not None]
    return {"effective": effective, "captions": captions, "caption_spread": max(spreads, default=None)}


def _carrier(cells: Mapping[str, Cell], alpha: float) -> str | None:
    """Returns the class without which the others do not show the same change; None where each can be left out."""
    gain = {target: cell.only_b - cell.only_a for target, (cell, _) in cells.items()}
    strongest = max(gain, key=lambda target: abs(gain[target]))
    others = [cell for target, cell in cells.items() if target != strongest]
    only_a, only_b, _ = _together(others, 1 - alpha)
    same_way = (only_b - only_a) * sum(gain.values()) > 0
    return None if same_way and float(metrics.mcnemar_p_values(only_a, only_b)) <= alpha else strongest


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
    found = metrics.effective_pairs(only_a, only_b, n, confidence)
    if is_labelled(shared.a.draws):
        known = [EffectivePairs(one, of_captions=one) for one in found.effective.tolist()]
    else:
        numbers = zip(found.effective.tolist(), found.spread.tolist(), counts, strict=True)
        known = [EffectivePairs(one, len(count.by_caption), spread, one) for one, spread, count in numbers]
    if shared.gains is None:
        return known
    names = [CellName(*group, value) for group, of_group in shared.counts.items() for value in of_group]
    by_cluster = [shared.gains.get(name) for name in names]
    return [_in_clusters(*one, confidence) for one in zip(known, counts, by_cluster, strict=True)]


def _in_clusters(
    known: EffectivePairs, count: PairCount, gains: ClusterSums | None, confidence: float
) -> EffectivePairs:
    """Takes clusters into account, beside captions."""
    if gains is None or not count.n:
        return known
    variance = (count.only_a + count.only_b + 1 - (count.only_b - count.only_a) ** 2 / count.n) / count.n
    of_clusters = float(gains.effective(confidence, np.array([variance]))[0])
    return replace(known, effective=1 / (1 / known.of_captions + 1 / of_clusters - 1 / count.n), gains=gains)


def _padded(cells: Cells, names: Sequence[str]) -> tuple[NDArray[np.bool_], list[NDArray[np.int64]]]:
    """Pads the counts of every group to one width: returns which entries are cells, and the counts of these names."""
    width = max((len(group) for group in cells.values()), default=0)
    held = np.array([[i < len(group) for i in range(width)] for group in cells.values()], dtype=bool)
    held = held.reshape(len(cells), width)
    counts = []
    for name in names:
        padded = np.zeros(held.shape, dtype=np.int64)
        padded[held] = [getattr(cell, name) for group in cells.values() for cell in group.values()]
        counts.append(padded)
    return held, counts


def _numbers(
    cells: Cells, independent: Sequence[EffectivePairs], doubts: list[str | None], tau: float, alpha: float
) -> dict[str, list[Any]]:
    """Returns the computed columns, a value per cell. Groups are padded to one width, so that each formula runs once: a
    cell without images changes nothing for the others."""
    held, (n, both, only_a, only_b) = _padded(cells, ("n", "both", "only_a", "only_b"))
    share = np.ones(held.shape)
    share[held] = [one.effective for one in independent]
    share = np.divide(share, n, out=np.ones(held.shape), where=n > 0)
    pairs, confidence = (only_a * share, only_b * share, n * share), 1 - alpha
    low, high = metrics.paired_difference_interval(*pairs, confidence)
    phi_low, phi_high = metrics.phi_difference_interval(*pairs, confidence)
    p = np.maximum(metrics.paired_difference_p_values(*pairs, tau), metrics.mcnemar_p_values(*pairs[:2]))
    padded = {
        "accuracy_a": np.divide(both + only_a, n, out=np.full(n.shape, np.nan), where=n > 0),
        "accuracy_b": np.divide(both + only_b, n, out=np.full(n.shape, np.nan), where=n > 0),
        "difference": metrics.paired_difference(*pairs),
        "difference_low": low,
        "difference_high": high,
        "p_value": p,
        "phi_a": metrics.bias_scores(both + only_a, n),
        "phi_b": metrics.bias_scores(both + only_b, n),
        "phi_difference": metrics.phi_difference(*pairs),
        "phi_difference_low": phi_low,
        "phi_difference_high": phi_high,
        "phi_p_value": metrics.phi_difference_p_values(*pairs, tau),
    }
    columns = {name: values[held] for name, values in padded.items()}
    trusted = np.array([doubt is None for doubt in doubts], dtype=bool)
    for name in ("p_value", "phi_p_value"):
        columns[name] = np.where(trusted, columns[name], np.nan)
    columns["q_value"] = metrics.benjamini_hochberg(columns["p_value"])
    columns["phi_q_value"] = metrics.benjamini_hochberg(columns["phi_p_value"])
    none_q = metrics.benjamini_hochberg(
        np.where(trusted, metrics.paired_equivalence_p_values(*pairs, tau)[held], np.nan)
    )
    verdicts = metrics.verdicts(columns["difference"], columns["q_value"], none_q, tau, alpha)
    changes = [CHANGES[verdict] for verdict in verdicts]
    changes = [change if sure else "undetermined" for change, sure in zip(changes, trusted, strict=True)]
    return {**{name: values.tolist() for name, values in columns.items()}, "change": changes, "doubt": doubts}
