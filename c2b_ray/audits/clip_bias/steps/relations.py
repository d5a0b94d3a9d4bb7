"""Compares models in pairs: whether their biases differ beyond chance, and whether gaps of one stage recur in
the next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.clip_bias.steps.measure import DOWNSTREAM, GLOBAL, PRETRAINING, BiasRow, Key, RateRow
from c2b_ray.stats import Floats, benjamini_hochberg
from c2b_ray.stats.resampling import SampledEstimate, difference_of_estimates, rank_correlations
from c2b_ray.tables.clip_bias import GAPS, LOCALITY, MODEL_PAIRS, TRANSFER

APART, ALIKE = "apart", "not told apart"


@dataclass(frozen=True)
class _Pair:
    """A row of `MODEL_PAIRS` before all pairs are tested together."""

    model_a: str
    model_b: str
    dataset: str
    metric: str
    attribute: str
    difference: float
    difference_low: float
    difference_high: float
    p_value: float


def pair_table(rows: Sequence[BiasRow], alpha: float, margin: float) -> pa.Table:
    """Returns for every two models, metric and attribute, over all images, whose bias is larger, and whether by more
    than a margin (`margin_of`) beyond chance.

    Both are measured on the same images, so they share bootstrap samples. Where these say little of either model, and
    for metrics without samples (LIC), both intervals decide.
    """
    of_key: dict[Key, list[BiasRow]] = {}
    for row in rows:
        if row.key.view == GLOBAL and np.isfinite(row.value):
            of_key.setdefault(row.key, []).append(row)
    pairs = []
    for key, of_models in of_key.items():
        for a, b in combinations(of_models, 2):
            least = margin_of(key.metric, margin)
            low, high, p_value = difference_of_estimates(_estimate(a), _estimate(b), 1 - alpha, least)
            measure = (key.dataset, key.metric, key.attribute)
            pairs.append(_Pair(a.model, b.model, *measure, a.value - b.value, low, high, p_value))
    q_values = benjamini_hochberg([pair.p_value for pair in pairs])
    result_rows = [
        {**vars(pair), "q_value": float(q), "verdict": APART if q <= alpha else ALIKE}
        for pair, q in zip(pairs, q_values, strict=True)
    ]
    return pa.Table.from_pylist(result_rows, MODEL_PAIRS)


def _estimate(row: BiasRow) -> SampledEstimate:
    samples = np.zeros(0) if row.replicates is None else row.replicates
    return SampledEstimate(row.value, row.value_low, row.value_high, samples)


def margin_of(metric: str, margin: float) -> float:
    """Returns the difference of a metric above which one model counts as more biased than another.

    However alike two models are made, enough images show that they differ: so a difference must also matter. `margin`
    is one of MaxSkew, which is the logarithm of a ratio of shares. A KL divergence of two groups whose rates are in
    that ratio is margin² / 8, up to higher powers. Other metrics have no margin.
    """
    if metric.startswith("max_skew"):
        return margin
    return margin**2 / 8 if metric.startswith("kl_") else 0.0


def gap_table(rates: Sequence[RateRow]) -> pa.Table:
    """Returns, for attributes with two values, the gap between their rates before and after (Ramos et al. 2025, Figure
    7)."""
    before, after = (_gaps([row for row in rates if row.key.stage == stage]) for stage in (PRETRAINING, DOWNSTREAM))
    gap_rows = []
    for (model, key), (gap, reach, names) in before.items():
        for (other, later), (change, width, other_names) in after.items():
            if other != model or later.attribute != key.attribute or other_names != names:
                continue
            gap_rows.append(
                {
                    "model": model, "attribute": key.attribute, "first": names[0], "second": names[1],
                    "pretraining_metric": key.metric.removeprefix("kl_"), "pretraining_dataset": key.dataset,
                    "downstream_metric": later.metric.removeprefix("kl_"), "downstream_dataset": later.dataset,
                    "pretraining_gap": gap, "pretraining_reach": reach, "downstream_gap": change,
                    "downstream_reach": width, "quadrant": quadrant(gap, change),
                }
            )  # fmt: skip
    return pa.Table.from_pylist(gap_rows, GAPS)


def quadrant(x: float, y: float) -> str:
    """Returns the quadrant, I to IV counterclockwise from the upper right; "" on an axis, or where a value is
    unknown."""
    if not np.isfinite(x * y) or x * y == 0:
        return ""
    return ("I" if y > 0 else "IV") if x > 0 else ("II" if y > 0 else "III")


def _gaps(rates: Sequence[RateRow]) -> dict[tuple[str, Key], tuple[float, float, tuple[str, str]]]:
    by_model_and_key: dict[tuple[str, Key], list[RateRow]] = {}
    for row in rates:
        if row.key.view == GLOBAL:
            by_model_and_key.setdefault((row.model, row.key), []).append(row)
    result = {}
    for where, two_rates in by_model_and_key.items():
        if len(two_rates) == 2:
            first, second = two_rates
            error = float(np.hypot(first.standard_error, second.standard_error))
            names = (first.attribute_value, second.attribute_value)
            result[where] = (first.rate - second.rate, first.reach * error, names)
    return result


# Correlates biases over several models: local with global, pre-training with downstream.


ByKey = Mapping[Key, Floats]


def by_key(rows: Sequence[BiasRow], models: Sequence[str]) -> dict[Key, Floats]:
    """Returns the values of these models, in their order, by `Key`; NaN where a model has none."""
    position = {model: number for number, model in enumerate(models)}
    result: dict[Key, Floats] = {}
    for row in rows:
        if row.model in position:
            result.setdefault(row.key, np.full(len(models), np.nan))[position[row.model]] = row.value
    return result


def transfer_table(
    rows: Sequence[BiasRow], models: Sequence[str], confidence: float, datasets: Mapping[str, str]
) -> pa.Table:
    """Correlates every pre-training metric, attribute and dataset with every downstream one.

    Globally all are correlated with all; in a group, which consists of images of one dataset, the biases among these
    images. `datasets`: the dataset that a block of results is about. q: Benjamini-Hochberg over all rows.
    """
    values = by_key(rows, models)
    pairs = [
        (before, after)
        for before in values
        if before.stage == PRETRAINING
        for after in values
        if after.stage == DOWNSTREAM and _comparable(before, after, datasets)
    ]
    correlations = []
    for (before, after), result in zip(pairs, _correlated(values, pairs, confidence), strict=True):
        correlations.append(
            {
                "pretraining_metric": before.metric,
                "pretraining_attribute": before.attribute,
                "pretraining_dataset": before.dataset,
                "downstream_metric": after.metric,
                "downstream_attribute": after.attribute,
                "downstream_dataset": after.dataset,
                "view": GLOBAL if before.view == GLOBAL else f"group {before.group}",
                **result,
                "models": [
                    model for model, has_both in zip(models, _both(values, before, after), strict=True) if has_both
                ],
            }
        )
    return pa.Table.from_pylist(_with_q(correlations), TRANSFER)


def locality_table(rows: Sequence[BiasRow], models: Sequence[str], confidence: float) -> pa.Table:
    """Correlates each group's bias with the bias over all images, by metric and attribute (Ramos et al. 2025,
    Table 2)."""
    values = by_key(rows, models)
    global_key = {(key.dataset, key.metric, key.attribute): key for key in values if key.view == GLOBAL}
    local = [key for key in values if key.view != GLOBAL]
    pairs = [(key, global_key[key.dataset, key.metric, key.attribute]) for key in local]
    correlations = [
        {
            "dataset": key.dataset, "metric": key.metric, "attribute": key.attribute, "group": key.group, **result,
        }
        for (key, _), result in zip(pairs, _correlated(values, pairs, confidence), strict=True)
    ]  # fmt: skip
    return pa.Table.from_pylist(_with_q(correlations), LOCALITY)


def _comparable(before: Key, after: Key, datasets: Mapping[str, str]) -> bool:
    if before.view == GLOBAL or after.view == GLOBAL:
        return before.view == after.view
    return before.group == after.group and datasets[after.dataset] == before.dataset


def _both(values: ByKey, first: Key, second: Key) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(np.isfinite(values[first]) & np.isfinite(values[second]))


def _correlated(values: ByKey, pairs: Sequence[tuple[Key, Key]], confidence: float) -> Iterator[dict[str, float | int]]:
    """Yields the correlation of each pair over the models that have both; pairs with the same models are computed
    together."""
    by_models: dict[bytes, list[int]] = {}
    for number, (first_key, other) in enumerate(pairs):
        by_models.setdefault(_both(values, first_key, other).tobytes(), []).append(number)
    done: dict[int, dict[str, float | int]] = {}
    for mask, numbers in by_models.items():
        has_both = np.frombuffer(mask, bool)
        first = list(dict.fromkeys(pairs[number][0] for number in numbers))
        second = list(dict.fromkeys(pairs[number][1] for number in numbers))
        x, y = (np.stack([values[key][has_both] for key in keys]) for keys in (first, second))
        result = rank_correlations(x, y, confidence)
        row, column = ({key: i for i, key in enumerate(keys)} for keys in (first, second))
        for number in numbers:
            cell = row[pairs[number][0]], column[pairs[number][1]]
            done[number] = {
                "rho": float(result.rho[cell]),
                "rho_low": float(result.low[cell]),
                "rho_high": float(result.high[cell]),
                "p_value": float(result.p_value[cell]),
                "t_p_value": float(result.t_p_value[cell]),
                "n_models": int(has_both.sum()),
            }
    return (done[number] for number in range(len(pairs)))


def _with_q(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    q_values = benjamini_hochberg([row["p_value"] for row in rows])
    return [{**row, "q_value": float(q)} for row, q in zip(rows, q_values, strict=True)]
