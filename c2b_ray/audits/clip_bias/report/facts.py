"""The contents of a run of `c2b clip-bias`, typed: biases, correlations, and their context.

Reads tables and the manifest; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import pyarrow as pa

from c2b_ray.report.method import mapping, number
from c2b_ray.report.redact import clean, distinct_names
from c2b_ray.storage.run import Run

T = TypeVar("T")
ALL = "all"


@dataclass(frozen=True)
class Bias:
    model: str
    dataset: str
    metric: str
    attribute: str
    group: str
    value: float
    value_low: float
    value_high: float
    n: int
    expected: float
    q_value: float
    stage: str
    note: str | None

    @property
    def of(self) -> tuple[str, str, str]:
        return self.dataset, self.metric, self.attribute

    @property
    def known(self) -> bool:
        return math.isfinite(self.value)


@dataclass(frozen=True)
class Correlation:
    """A correlation of pre-training with downstream bias."""

    pretraining_metric: str
    pretraining_attribute: str
    pretraining_dataset: str
    downstream_metric: str
    downstream_attribute: str
    downstream_dataset: str
    view: str
    rho: float
    rho_low: float
    rho_high: float
    p_value: float
    q_value: float
    n_models: int
    t_p_value: float
    models: list[str]


@dataclass(frozen=True)
class Local:
    """A correlation of local with global bias."""

    dataset: str
    metric: str
    attribute: str
    group: str
    rho: float
    rho_low: float
    rho_high: float
    p_value: float
    q_value: float
    n_models: int


@dataclass(frozen=True)
class Pair:
    model_a: str
    model_b: str
    dataset: str
    metric: str
    attribute: str
    difference: float
    difference_low: float
    difference_high: float
    q_value: float
    verdict: str


@dataclass(frozen=True)
class Gap:
    model: str
    attribute: str
    first: str
    second: str
    pretraining_metric: str
    pretraining_dataset: str
    downstream_metric: str
    downstream_dataset: str
    pretraining_gap: float
    pretraining_reach: float
    downstream_gap: float
    downstream_reach: float
    quadrant: str


@dataclass(frozen=True)
class Rate:
    """How often a model is right on the images of one value."""

    model: str
    dataset: str
    metric: str
    attribute: str
    attribute_value: str
    group: str
    rate: float
    n: int


@dataclass(frozen=True)
class Similar:
    stage: str
    model_a: str
    model_b: str
    similarity: float
    low: float
    high: float
    centred: float
    n: int


@dataclass(frozen=True)
class Example:
    dataset: str
    group: str
    key: str
    caption: str | None
    bytes: bytes | None


@dataclass(frozen=True)
class Facts:
    """All facts of a run. `names`: each model's name on the page, in the config's order."""

    manifest: Mapping[str, Any]
    names: dict[str, str]
    alpha: float
    margin: float
    biases: list[Bias]
    transfer: list[Correlation]
    locality: list[Local]
    pairs: list[Pair]
    gaps: list[Gap]
    spaces: list[Similar]
    examples: list[Example]
    rates: list[Rate]

    @property
    def performance(self) -> dict[str, float]:
        known = mapping(self.manifest.get("performance"))
        return {str(model): number(value, math.nan) for model, value in known.items()}

    def values(self, of: tuple[str, str, str], group: str = ALL) -> dict[str, Bias]:
        """Returns the bias of each model."""
        return {one.model: one for one in self.biases if one.of == of and one.group == group and one.known}


def read_facts(run: Run) -> Facts:
    manifest = run.manifest
    config = mapping(manifest.get("config"))
    names = distinct_names([str(name) for name in mapping(config.get("models"))], clean)
    return Facts(
        manifest=manifest,
        names=names,
        alpha=number(config.get("alpha"), 0.05),
        margin=number(config.get("margin"), 0.0),
        biases=_typed(run.read("clip_bias"), Bias),
        transfer=_typed(run.read("transfer"), Correlation),
        locality=_typed(run.read("locality"), Local),
        pairs=_typed(run.read("model_pairs"), Pair),
        gaps=_typed(run.read("gaps"), Gap),
        spaces=_typed(run.read("convergence"), Similar),
        examples=_typed(run.read("examples"), Example),
        rates=_typed(run.read("rates"), Rate),
    )


def _typed(table: pa.Table, kind: type[T]) -> list[T]:
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return [kind(**row) for row in table.select(names).to_pylist()]
