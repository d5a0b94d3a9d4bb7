"""Correlates biases over several models: local with global, pre-training with downstream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.metrics import Floats, benjamini_hochberg
from c2b_ray.metrics.rank_correlation import rank_correlations
from c2b_ray.schemas.clip_bias import LOCALITY, TRANSFER
from c2b_ray.steps.clip_bias.attributes import GLOBAL
from c2b_ray.steps.clip_bias.rows import DOWNSTREAM, PRETRAINING, BiasRow, Key

ByKey = Mapping[Key, Floats]


def by_key(rows: Sequence[BiasRow], models: Sequence[str]) -> dict[Key, Floats]:
    """Returns the values of these models, in their order, by `Key`; NaN where a model has none."""
    at = {model: number for number, model in enumerate(models)}
    result: dict[Key, Floats] = {}
    for row in rows:
        if row.model in at:
            result.setdefault(row.key, np.full(len(models), np.nan))[at[row.model]] = row.value
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
                "models": [model for model, held in zip(models, _both(values, before, after), strict=True) if held],
            }
        )
    return pa.Table.from_pylist(_with_q(correlations), TRANSFER)


def locality_table(rows: Sequence[BiasRow], models: Sequence[str], confidence: float) -> pa.Table:
    """Correlates each group's bias with the bias over all images, by metric and attribute (Ramos et al. 2025,
    Table 2)."""
    values = by_key(rows, models)
    whole = {(key.dataset, key.metric, key.attribute): key for key in values if key.view == GLOBAL}
    local = [key for key in values if key.view != GLOBAL]
    pairs = [(key, whole[key.dataset, key.metric, key.attribute]) for key in local]
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


def _both(values: ByKey, one: Key, other: Key) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(np.isfinite(values[one]) & np.isfinite(values[other]))


def _correlated(values: ByKey, pairs: Sequence[tuple[Key, Key]], confidence: float) -> Iterator[dict[str, float | int]]:
    """Yields the correlation of each pair over the models that have both; pairs with the same models are computed
    together."""
    together: dict[bytes, list[int]] = {}
    for number, (one, other) in enumerate(pairs):
        together.setdefault(_both(values, one, other).tobytes(), []).append(number)
    done: dict[int, dict[str, float | int]] = {}
    for mask, numbers in together.items():
        held = np.frombuffer(mask, bool)
        first = list(dict.fromkeys(pairs[number][0] for number in numbers))
        second = list(dict.fromkeys(pairs[number][1] for number in numbers))
        x, y = (np.stack([values[key][held] for key in keys]) for keys in (first, second))
        result = rank_correlations(x, y, confidence)
        row, column = ({key: at for at, key in enumerate(keys)} for keys in (first, second))
        for number in numbers:
            at = row[pairs[number][0]], column[pairs[number][1]]
            done[number] = {
                "rho": float(result.rho[at]),
                "rho_low": float(result.low[at]),
                "rho_high": float(result.high[at]),
                "p_value": float(result.p_value[at]),
                "t_p_value": float(result.t_p_value[at]),
                "n_models": int(held.sum()),
            }
    return (done[number] for number in range(len(pairs)))


def _with_q(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    q_values = benjamini_hochberg([row["p_value"] for row in rows])
    return [{**row, "q_value": float(q)} for row, q in zip(rows, q_values, strict=True)]
