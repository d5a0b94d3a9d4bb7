"""The contents of a run of `c2b clip-bias`, typed: biases, correlations, and their context.

Reads tables and the manifest; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import pyarrow as pa

from c2b_ray.audits.clip_bias import wording
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.report import words
from c2b_ray.report.method import mapping, number
from c2b_ray.report.redact import clean, distinct_names
from c2b_ray.report.words import Column, Summary
from c2b_ray.tables.clip_bias import BiasRow
from c2b_ray.text import finite

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
    favoured: str | None = None  # of MaxSkew; this and the two below are not in runs of older releases
    favoured_texts: int | None = None
    texts: int | None = None

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
        recorded = mapping(self.manifest.get("performance"))
        return {str(model): number(value, math.nan) for model, value in recorded.items()}

    def values(self, of: tuple[str, str, str], group: str = ALL) -> dict[str, Bias]:
        """Returns the bias of each model."""
        return {bias.model: bias for bias in self.biases if bias.of == of and bias.group == group and bias.known}


def read_facts(run: ClipBiasRun) -> Facts:
    manifest, config = run.manifest, run.config
    names = distinct_names(list(config.models), clean)
    return Facts(
        manifest=manifest,
        names=names,
        alpha=config.alpha,
        margin=config.margin,
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
    names = [field.name for field in fields(kind) if field.name in table.column_names]  # type: ignore[arg-type]
    return [kind(**row) for row in table.select(names).to_pylist()]


# The terminal summary of a run of `c2b clip-bias`: biases beyond chance, and transfer.


MOST_ROWS = 15
COLUMNS = (
    *(Column(name) for name in ("model", "dataset", "metric", "attribute", "view")),
    *(Column(name, number=True) for name in ("bias", "interval", "by chance", "q")),
)


def summary(run: ClipBiasRun) -> Summary:
    biases = run.read("clip_bias").to_pylist()
    transfer = [row for row in run.read("transfer").to_pylist() if math.isfinite(row["rho"])]
    alpha = run.config.alpha
    significant = sorted(
        (row for row in biases if row["q_value"] <= alpha), key=lambda row: (row["q_value"], -row["value"])
    )
    moved = [row for row in transfer if row["q_value"] <= alpha]
    measured = sum(math.isfinite(row["value"]) for row in biases)
    lines = [
        f"{words.count(len(significant))} of {words.plural(measured, 'bias', 'biases')} beyond chance at a false "
        f"discovery rate of {words.decimal(alpha)}.",
        *(
            [
                f"{words.count(len(moved))} of {words.plural(len(transfer), 'rank correlation')} of pre-training with "
                "downstream bias established."
            ]
            if transfer
            else []
        ),
        *(clean(note) for note in run.manifest.get("notes") or ()),
    ]
    shown_rows = significant[:MOST_ROWS]
    return Summary(
        title=words.shown_of("Biases", len(shown_rows), len(significant)),
        columns=COLUMNS,
        rows=[_row(row) for row in shown_rows],
        marks=["bad"] * len(shown_rows),
        lines=lines,
        report=run.report,
        headline=lines[0].rstrip("."),
        findings={
            name: sum(row["model"] == name for row in significant) for name in sorted({row["model"] for row in biases})
        },
        to_json={
            "run": run.path,
            "report": run.report,
            "biases": finite(significant),
            "transfer": finite(moved),
            "measured": measured,
            "correlations": len(transfer),
        },
    )


def _row(row: BiasRow) -> tuple[str, ...]:
    view = row["view"] if row["group"] == "all" else f"group {row['group']}"
    return (
        clean(row["model"]), clean(row["dataset"]), row["metric"], clean(row["attribute"]), view,
        wording.amount(row["value"]), wording.amounts(row["value_low"], row["value_high"]),
        wording.amount(row["expected"]), words.small_probability(row["q_value"]),
    )  # fmt: skip
