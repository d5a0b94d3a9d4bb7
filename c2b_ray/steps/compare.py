"""Compares predictions of two classifiers: what got better and what got worse, cell by cell, on images that both saw.

It knows counts of images; `sides` decides which images count, and `metrics` has the formulas. It knows nothing of runs
or files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.errors import RunError
from c2b_ray.schemas import COMPARISON, COMPARISON_POOLED
from c2b_ray.steps.cells import Group
from c2b_ray.steps.sides import PairCount, SharedImages

CHANGES = {"for": "better", "against": "worse", "none": "same", "undetermined": "undetermined"}

Cells = Mapping[Group, Mapping[str, PairCount]]


def compare(shared: SharedImages, tau: float, alpha: float) -> pa.Table:
    """Returns a table of `schemas.COMPARISON`: a row per cell of either side, A's order first. Differences are B minus
    A.

    `change` has four values, as verdicts do: `better` or `worse` where the accuracies differ by more than tau and the
    adjusted p-value is at most alpha, `same` where the interval of the difference lies within [-tau, tau], else
    `undetermined`. `p_value` is the larger of two: the score test of |difference| <= tau, which uses the margin, and
    McNemar's exact test, which keeps its level with few images. The false discovery rate is controlled over all cells,
    for accuracies and for φ separately. An image that one side did not draw, that a classifier did not answer, that a
    verifier refused, or that is a near-duplicate of another of its cell by A's `distinct`, is left out and counted. A
    cell that is in doubt on either side is undetermined, and not tested.

    Raises RunError where no cell has an image that both sides drew.
    """
    cells = shared.counts
    counts = [count for group in cells.values() for count in group.values()]
    if counts and all(count.unshared and not count.n and not count.unanswered for count in counts):
        raise RunError(
            "the two have no image of any cell in common, so nothing can be paired: audit both classifiers in one run, "
            "or with the same index, seed, classes and `attributes`"
        )
    doubts = [_doubt(shared, (*group, value)) for group, of_group in cells.items() for value in of_group]
    columns = _numbers(cells, doubts, tau, alpha)
    names = [
        {"target_class": target_class, "attribute": attribute, "bias_class": bias_class}
        for (target_class, attribute), group in cells.items()
        for bias_class in group
    ]
    table = [
        {**name, **vars(count), **{column: values[i] for column, values in columns.items()}}
        for i, (name, count) in enumerate(zip(names, counts, strict=True))
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
    of_value: dict[tuple[str, str], dict[str, PairCount]] = defaultdict(dict)
    for (target, attribute), group in shared.counts.items():
        for value, count in group.items():
            if count.n and _doubt(shared, (target, attribute, value)) is None:
                of_value[attribute, value][target] = count
    rows = []
    for (attribute, value), cells in of_value.items():
        n, only_a, only_b = (sum(getattr(cell, name) for cell in cells.values()) for name in ("n", "only_a", "only_b"))
        low, high = metrics.paired_difference_interval(only_a, only_b, n, 1 - alpha)
        rows.append(
            {
                "attribute": attribute,
                "bias_class": value,
                "classes": len(cells),
                "n": n,
                "only_a": only_a,
                "only_b": only_b,
                "difference": (only_b - only_a) / n,
                "difference_low": float(low),
                "difference_high": float(high),
                "p_value": float(metrics.mcnemar_p_values(only_a, only_b)),
            }
        )
    q = metrics.benjamini_hochberg([row["p_value"] for row in rows])
    for row, q_value, cells in zip(rows, q.tolist(), of_value.values(), strict=True):
        row |= {"q_value": q_value, "change": _change(row, q_value, tau, alpha)}
        if row["change"] in ("better", "worse") and (carrier := _carrier(cells, alpha)) is not None:
            row |= {"change": "undetermined", "doubt": f"{carrier} alone makes the difference"}
    return pa.Table.from_pylist(rows, COMPARISON_POOLED)


def _carrier(cells: Mapping[str, PairCount], alpha: float) -> str | None:
    """Returns the class without which the others do not show the same change; None where each can be left out."""
    gain = {target: cell.only_b - cell.only_a for target, cell in cells.items()}
    strongest = max(gain, key=lambda target: abs(gain[target]))
    others = [cell for target, cell in cells.items() if target != strongest]
    only_a, only_b = (sum(getattr(cell, name) for cell in others) for name in ("only_a", "only_b"))
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


def _numbers(cells: Cells, doubts: list[str | None], tau: float, alpha: float) -> dict[str, list[Any]]:
    """Returns the computed columns, a value per cell. Groups are padded to one width, so that each formula runs once: a
    cell without images changes nothing for the others."""
    held, (n, both, only_a, only_b) = _padded(cells, ("n", "both", "only_a", "only_b"))
    pairs, confidence = (only_a, only_b, n), 1 - alpha
    low, high = metrics.paired_difference_interval(*pairs, confidence)
    phi_low, phi_high = metrics.phi_difference_interval(*pairs, confidence)
    p = np.maximum(metrics.paired_difference_p_values(*pairs, tau), metrics.mcnemar_p_values(only_a, only_b))
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
