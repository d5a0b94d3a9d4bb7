"""Measured biases as rows, and the tables of a run that they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pyarrow as pa

from c2b_ray.metrics import Floats, benjamini_hochberg
from c2b_ray.schemas.clip_bias import CLIP_BIAS, RATES, REPLICATES

NAN = float("nan")
PRETRAINING, DOWNSTREAM = "pretraining", "downstream"


@dataclass(frozen=True)
class Key:
    """Identifies a bias, apart from the model."""

    dataset: str
    metric: str
    attribute: str
    view: str
    group: str
    stage: str


@dataclass(frozen=True)
class BiasRow:
    """A row of `CLIP_BIAS`. `replicates`: the value in bootstrap samples that all models of the key share; None where
    the metric has none."""

    model: str
    key: Key
    value: float
    value_low: float
    value_high: float
    n: int
    expected: float
    p_value: float
    q_value: float = NAN
    k: int | None = None
    rule: str | None = None
    note: str | None = None
    replicates: Floats | None = None


@dataclass(frozen=True)
class RateRow:
    """A row of `RATES`. `reach`: the half-width of an interval of a contrast, in standard errors."""

    model: str
    key: Key
    rate_metric: str
    attribute_value: str
    rate: float
    standard_error: float
    reach: float
    n: int


@dataclass
class Measured:
    """The results of all models so far."""

    biases: list[BiasRow] = field(default_factory=list)
    rates: list[RateRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def unknown(self, models: Iterable[str], key: Key, n: int, note: str) -> None:
        """Adds rows without a value, with a note that says why."""
        self.biases += [BiasRow(model, key, NAN, NAN, NAN, n, NAN, NAN, note=note) for model in models]


def with_q_values(rows: Sequence[BiasRow]) -> list[BiasRow]:
    """Returns the rows with q-values (false discovery rate) over all rows that have a p-value."""
    q_values = benjamini_hochberg([row.p_value for row in rows])
    return [replace(row, q_value=float(q)) for row, q in zip(rows, q_values, strict=True)]


def bias_table(rows: Sequence[BiasRow]) -> pa.Table:
    names = [name for name in BiasRow.__dataclass_fields__ if name not in ("key", "replicates")]
    return pa.Table.from_pylist(
        [{**asdict(row.key), **{name: getattr(row, name) for name in names}} for row in rows], CLIP_BIAS
    )


def replicate_table(rows: Sequence[BiasRow]) -> pa.Table:
    """Returns the replicates of the rows that have any, as `REPLICATES`."""
    return pa.Table.from_pylist(
        [
            {"model": row.model, **asdict(row.key), "values": row.replicates}
            for row in rows
            if row.replicates is not None and np.isfinite(row.value)
        ],
        REPLICATES,
    )


def rate_table(rows: Sequence[RateRow]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                **{name: getattr(row.key, name) for name in ("dataset", "attribute", "view", "group")},
                "model": row.model,
                "metric": row.rate_metric,
                "attribute_value": row.attribute_value,
                "rate": row.rate,
                "standard_error": row.standard_error,
                "n": row.n,
            }
            for row in rows
        ],
        RATES,
    )
