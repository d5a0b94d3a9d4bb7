"""Figures on the similarity of embedding spaces: the paper's Figure 8. Knows facts and words, nothing of pages."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from c2b_ray.audits.clip_bias.report import method
from c2b_ray.audits.clip_bias.report.facts import Correlation, Facts, Gap, Similar
from c2b_ray.audits.clip_bias.report.plots import Axis, Cell, Figure, Point, heat_map, histogram, scatter, window
from c2b_ray.report import words
from c2b_ray.report.method import mapping
from c2b_ray.report.redact import clean

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


# Figures on the transfer of bias: the strongest correlations, all of them as a histogram, the models that were
# chosen, and the gaps by quadrant (the paper's Figures 4 to 7). Knows facts and words; knows nothing of pages.


FAIR = 0.3
"""The |rho| from which the paper speaks of a fair correlation, and plots it."""
MOST_PLOTS, MOST_ROWS = 6, 30


@dataclass(frozen=True)
class TransferRow:
    before: str
    before_of: str
    after: str
    after_of: str
    view: str
    rho: str
    interval: str
    p: str
    q: str
    models: str
    holds: bool


def strongest(facts: Facts) -> tuple[Figure, ...]:
    known = [one for one in facts.transfer if math.isfinite(one.rho) and abs(one.rho) >= FAIR]
    known.sort(key=lambda one: (one.p_value, -abs(one.rho)))
    return tuple(_plot(one, facts) for one in known[:MOST_PLOTS])


def _plot(one: Correlation, facts: Facts) -> Figure:
    group = "all" if one.view == "global" else one.view.removeprefix("group ")
    before = facts.values((one.pretraining_dataset, one.pretraining_metric, one.pretraining_attribute), group)
    after = facts.values((one.downstream_dataset, one.downstream_metric, one.downstream_attribute), group)
    models = [model for model in one.models if model in before and model in after]
    points = [Point(facts.names.get(m, m), before[m].value, after[m].value) for m in models]
    sides = (
        _side(one.pretraining_metric, one.pretraining_attribute),
        _side(one.downstream_metric, one.downstream_attribute),
    )
    axes = (Axis.over(sides[0], [p.x for p in points]), Axis.over(sides[1], [p.y for p in points]))
    return Figure(
        f"ρ = {words.signed(one.rho)}",
        f"{words.signed_range(one.rho_low, one.rho_high)}; p {words.small_probability(one.p_value)}, q "
        f"{words.small_probability(one.q_value)}; {words.plural(len(points), 'model')}, {one.view}",
        scatter(points, axes, f"{sides[1]} against {sides[0]}, a point a model"),
    )


def distribution(facts: Facts) -> Figure | None:
    rhos = [one.rho for one in facts.transfer if math.isfinite(one.rho)]
    if not rhos:
        return None
    fair = sum(abs(rho) >= FAIR for rho in rhos)
    return Figure(
        "All correlations",
        f"{words.plural(len(rhos), 'correlation')}, {words.count(fair)} of |ρ| 0.3 or more.",
        histogram([("", rhos)], (-1.0, 1.0), "Spearman’s ρ", "how many correlations have which rho"),
    )


def rows(facts: Facts) -> tuple[TransferRow, ...]:
    known = sorted(
        (one for one in facts.transfer if math.isfinite(one.rho)), key=lambda one: (one.p_value, -abs(one.rho))
    )
    return tuple(
        TransferRow(
            before=_side(one.pretraining_metric, one.pretraining_attribute),
            before_of=clean(one.pretraining_dataset),
            after=_side(one.downstream_metric, one.downstream_attribute),
            after_of=clean(one.downstream_dataset),
            view=one.view,
            rho=words.signed(one.rho),
            interval=words.signed_range(one.rho_low, one.rho_high),
            p=words.small_probability(one.p_value),
            q=words.small_probability(one.q_value),
            models=words.count(one.n_models),
            holds=one.q_value <= facts.alpha,
        )
        for one in known[:MOST_ROWS]
    )


def selection(facts: Facts) -> tuple[Figure, ...]:
    """Plots general performance against bias over all images, with the chosen models marked (Figure 6)."""
    performance, config = facts.performance, mapping(facts.manifest.get("config"))
    chosen = set(facts.manifest.get("window") or ())
    limits = config.get("window")
    ends = (float(limits[0]), float(limits[1])) if isinstance(limits, list) else None
    figures: list[Figure] = []
    for of in dict.fromkeys(one.of for one in facts.biases if one.stage == "pretraining"):
        if len(figures) == MOST_PLOTS:
            break
        values = facts.values(of)
        models = [model for model in values if math.isfinite(performance.get(model, math.nan))]
        if len(models) < 2:
            continue
        points = [
            Point(facts.names.get(m, m), performance[m], values[m].value, "marked" if m in chosen else "faint")
            for m in models
        ]
        axes = (
            Axis.over("performance", [p.x for p in points]),
            Axis.over(method.metric(of[1]), [p.y for p in points]),
        )
        title = f"{clean(of[2])}: {method.metric(of[1])}"
        figures.append(Figure(title, clean(of[0]), window(points, axes, ends, f"{title} against performance")))
    return tuple(figures)


def quadrants(facts: Facts) -> tuple[Figure, ...]:
    """Plots gaps before against gaps after, one point per model (Figure 7)."""
    several: dict[tuple[str, ...], list[Gap]] = {}
    for gap in facts.gaps:
        of = (
            gap.attribute,
            gap.pretraining_metric,
            gap.pretraining_dataset,
            gap.downstream_metric,
            gap.downstream_dataset,
        )
        several.setdefault(of, []).append(gap)
    shown = [some for some in several.values() if len(some) > 1][: 2 * MOST_PLOTS]
    return tuple(_quadrant(some, facts) for some in shown)


def _quadrant(gaps: list[Gap], facts: Facts) -> Figure:
    first, of = gaps[0], Counter(gap.quadrant for gap in gaps)
    same, other = of["I"] + of["III"], of["II"] + of["IV"]
    chance = binomtest(same, same + other).pvalue if same + other else math.nan
    points = [
        Point(facts.names.get(gap.model, gap.model), gap.pretraining_gap, gap.downstream_gap, "plain",
              gap.pretraining_reach, gap.downstream_reach)
        for gap in gaps
    ]  # fmt: skip
    names = (method.score(first.pretraining_metric), method.score(first.downstream_metric))
    sides = f"{clean(first.first)} − {clean(first.second)}"
    axes = (
        Axis.over(f"{names[0]}, {sides}", [p.x for p in points], zero=True),
        Axis.over(f"{names[1]}, {sides}", [p.y for p in points], zero=True),
    )
    return Figure(
        f"{clean(first.attribute)}: {names[0]} and {names[1]}",
        f"Gaps of one sign: {words.count(same)} of {words.plural(same + other, 'model')} (binomial p "
        f"{words.small_probability(chance)}).",
        scatter(points, axes, f"gaps in {names[1]} against gaps in {names[0]}, a point a model", quadrants=True),
    )


def _side(metric: str, attribute: str) -> str:
    return f"{method.metric(metric)}, {clean(attribute)}"
