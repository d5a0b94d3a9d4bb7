"""Figures on the similarity of embedding spaces: the paper's Figure 8. Knows facts and words, nothing of pages."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from c2b_ray.audits.clip_bias.report.facts import Facts, Similar
from c2b_ray.audits.clip_bias.report.maps import Figure
from c2b_ray.audits.clip_bias.report.plots import Cell, heat_map, histogram
from c2b_ray.report import words

STAGES = ("before", "after")


@dataclass(frozen=True)
class StageRow:
    stage: str
    mean: str
    spread: str
    centred: str
    worst: str
    worst_pair: str


@dataclass(frozen=True)
class Spaces:
    rows: tuple[StageRow, ...]
    figures: tuple[Figure, ...]
    line: str


def spaces(facts: Facts) -> Spaces | None:
    of = {
        stage: [one for one in facts.spaces if one.stage == stage and math.isfinite(one.similarity)] for stage in STAGES
    }
    if not all(of.values()):
        return None
    low = min(one.similarity for some in of.values() for one in some)
    figures = [_map(stage, of[stage], low, facts) for stage in STAGES]
    series = [(stage, [one.similarity for one in of[stage]]) for stage in STAGES]
    span = (min(low, 0.99), 1.0)
    figures.append(
        Figure("Both", "Similarities of every two models.", histogram(series, span, "similarity", "before and after"))
    )
    return Spaces(tuple(_row(stage, of[stage], facts) for stage in STAGES), tuple(figures), _line(of))


def _row(stage: str, some: list[Similar], facts: Facts) -> StageRow:
    values = np.array([one.similarity for one in some])
    worst = min(some, key=lambda one: one.similarity)
    return StageRow(
        stage=f"{stage} training",
        mean=f"{values.mean():.3f}",
        spread=f"{values.std():.3f}",
        centred=f"{np.mean([one.centred for one in some]):.3f}",
        worst=f"{worst.similarity:.3f} ({worst.low:.3f} to {worst.high:.3f})",
        worst_pair=f"{_name(worst.model_a, facts)} and {_name(worst.model_b, facts)}",
    )


def _line(of: dict[str, list[Similar]]) -> str:
    before, after = (np.array([one.similarity for one in of[stage]]) for stage in STAGES)
    spread = float(before.std())
    pairs = {(one.model_a, one.model_b): one for one in of["before"]}
    both = [(pairs[at], one) for one in of["after"] if (at := (one.model_a, one.model_b)) in pairs]
    grew = sum(later.low > earlier.high for earlier, later in both)
    line = f"{words.count(grew)} of {words.plural(len(both), 'pair')} grew more alike, beyond both intervals."
    if spread > 0:
        far = (float(after.min()) - float(before.mean())) / spread
        where = "above" if far >= 0 else "below"
        line += f" The least alike pair after training is {abs(far):.2f} standard deviations {where} the mean before."
    return line


def _map(stage: str, some: list[Similar], low: float, facts: Facts) -> Figure:
    models = list(dict.fromkeys(name for one in some for name in (one.model_a, one.model_b)))
    at = {(one.model_a, one.model_b): one for one in some} | {(one.model_b, one.model_a): one for one in some}
    names = [_name(model, facts) for model in models]
    cells = [[_cell((a, b), at.get((a, b)), low, facts) for b in models] for a in models]
    return Figure(
        f"{stage.capitalize()} training",
        f"From {low:.3f} to 1.",
        heat_map(names, names, cells, f"{stage} training", 30),
    )


def _cell(models: tuple[str, str], one: Similar | None, low: float, facts: Facts) -> Cell:
    a, b = (_name(model, facts) for model in models)
    if a == b:
        return Cell(1.0, f"{a}: 1")
    if one is None:
        return Cell(math.nan, "not known")
    depth = (one.similarity - low) / (1 - low) if low < 1 else 1.0
    return Cell(depth, f"{a} and {b}: {one.similarity:.4f} ({one.low:.4f} to {one.high:.4f})")


def _name(model: str, facts: Facts) -> str:
    return facts.names.get(model, model)
