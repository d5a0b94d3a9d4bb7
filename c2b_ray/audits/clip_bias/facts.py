"""What a run of `c2b clip-bias` measured: its tables and its manifest. Knows nothing of pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.audits.clip_bias.config import ClipBiasConfig
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.audits.clip_bias.steps.measure import ALL
from c2b_ray.report.method import mapping, number
from c2b_ray.report.redact import clean, distinct_names
from c2b_ray.tables.clip_bias import (
    BiasRow,
    ConvergenceRow,
    GapRow,
    GroupExampleRow,
    LocalityRow,
    ModelPairRow,
    RateRow,
    TransferRow,
)

Measure = tuple[str, str, str]
"""Dataset, metric, attribute."""


@dataclass(frozen=True)
class Facts:
    """The rows of a run's tables. `names`: each model's name on the page, in the config's order."""

    manifest: Mapping[str, Any]
    config: ClipBiasConfig
    names: Mapping[str, str]
    biases: Sequence[BiasRow] = ()
    transfer: Sequence[TransferRow] = ()
    locality: Sequence[LocalityRow] = ()
    pairs: Sequence[ModelPairRow] = ()
    gaps: Sequence[GapRow] = ()
    spaces: Sequence[ConvergenceRow] = ()
    examples: Sequence[GroupExampleRow] = ()
    rates: Sequence[RateRow] = ()

    @property
    def performance(self) -> dict[str, float]:
        """Model → its general performance, NaN where unknown."""
        recorded = mapping(self.manifest.get("performance"))
        return {str(model): number(value, math.nan) for model, value in recorded.items()}

    @property
    def correlations(self) -> list[TransferRow]:
        """The correlations of transfer that are known, the surest first."""
        known = [row for row in self.transfer if math.isfinite(row["rho"])]
        return sorted(known, key=lambda row: (row["p_value"], -abs(row["rho"])))

    def name(self, model: str) -> str:
        return self.names.get(model, clean(model))

    def is_established(self, row: BiasRow | TransferRow | LocalityRow) -> bool:
        return row["q_value"] <= self.config.alpha

    def values(self, measure: Measure, group: str = ALL) -> dict[str, float]:
        """Returns the bias of each model for which it is known."""
        rows = (bias for bias in self.biases if measure_of(bias) == measure and bias["group"] == group)
        return {bias["model"]: bias["value"] for bias in rows if is_known(bias)}


def measure_of(bias: BiasRow) -> Measure:
    return bias["dataset"], bias["metric"], bias["attribute"]


def is_known(bias: BiasRow) -> bool:
    return math.isfinite(bias["value"])


def read_facts(run: ClipBiasRun) -> Facts:
    return Facts(
        manifest=run.manifest,
        config=run.config,
        names=distinct_names(list(run.config.models), clean),
        biases=run.read("clip_bias").to_pylist(),
        transfer=run.read("transfer").to_pylist(),
        locality=run.read("locality").to_pylist(),
        pairs=run.read("model_pairs").to_pylist(),
        gaps=run.read("gaps").to_pylist(),
        spaces=run.read("convergence").to_pylist(),
        examples=run.read("examples").to_pylist(),
        rates=run.read("rates").to_pylist(),
    )
