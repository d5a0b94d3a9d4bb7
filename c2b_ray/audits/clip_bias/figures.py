"""Figures on the similarity of embedding spaces: the paper's Figure 8. Knows facts and words, nothing of pages."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest

from c2b_ray.audits.clip_bias import wording
from c2b_ray.audits.clip_bias.facts import Correlation, Facts, Gap, Similar
from c2b_ray.audits.clip_bias.plots import Axis, MapCell, Figure, Point, heat_map, histogram, scatter, window
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
    by_stage = {
        stage: [pair for pair in facts.spaces if pair.stage == stage and math.isfinite(pair.similarity)]
        for stage in STAGES
    }
    if not all(by_stage.values()):
        return None
    low = min(pair.similarity for pairs in by_stage.values() for pair in pairs)
    figures = [_map(stage, by_stage[stage], low, facts) for stage in STAGES]
    series = [(stage, [pair.similarity for pair in by_stage[stage]]) for stage in STAGES]
    span = (min(low, 0.99), 1.0)
    figures.append(
        Figure("Both", "Similarities of every two models.", histogram(series, span, "similarity", "before and after"))
    )
    return Spaces(tuple(_row(stage, by_stage[stage], facts) for stage in STAGES), tuple(figures), _line(by_stage))


def _row(stage: str, pairs: list[Similar], facts: Facts) -> StageRow:
    values = np.array([pair.similarity for pair in pairs])
    worst = min(pairs, key=lambda pair: pair.similarity)
    return StageRow(
        stage=f"{stage} training",
        mean=f"{values.mean():.3f}",
        spread=f"{values.std():.3f}",
        centred=f"{np.mean([pair.centred for pair in pairs]):.3f}",
        worst=f"{worst.similarity:.3f} ({worst.low:.3f} to {worst.high:.3f})",
        worst_pair=f"{_name(worst.model_a, facts)} and {_name(worst.model_b, facts)}",
    )


def _line(by_stage: dict[str, list[Similar]]) -> str:
    similarities_before, similarities_after = (
        np.array([pair.similarity for pair in by_stage[stage]]) for stage in STAGES
    )
    spread = float(similarities_before.std())
    pairs = {(pair.model_a, pair.model_b): pair for pair in by_stage["before"]}
    matched = [(pairs[key], pair) for pair in by_stage["after"] if (key := (pair.model_a, pair.model_b)) in pairs]
    more_alike = sum(later.low > earlier.high for earlier, later in matched)
    line = f"{words.count(more_alike)} of {words.plural(len(matched), 'pair')} grew more alike, beyond both intervals."
    if spread > 0:
        z = (float(similarities_after.min()) - float(similarities_before.mean())) / spread
        where = "above" if z >= 0 else "below"
        line += f" The least alike pair after training is {abs(z):.2f} standard deviations {where} the mean before."
    return line


def _map(stage: str, pairs_of_stage: list[Similar], low: float, facts: Facts) -> Figure:
    models = list(dict.fromkeys(name for pair in pairs_of_stage for name in (pair.model_a, pair.model_b)))
    by_models = {(pair.model_a, pair.model_b): pair for pair in pairs_of_stage} | {
        (pair.model_b, pair.model_a): pair for pair in pairs_of_stage
    }
    names = [_name(model, facts) for model in models]
    cells = [[_cell((a, b), by_models.get((a, b)), low, facts) for b in models] for a in models]
    return Figure(
        f"{stage.capitalize()} training",
        f"From {low:.3f} to 1.",
        heat_map(names, names, cells, f"{stage} training", 30),
    )


def _cell(models: tuple[str, str], pair: Similar | None, low: float, facts: Facts) -> MapCell:
    a, b = (_name(model, facts) for model in models)
    if a == b:
        return MapCell(1.0, f"{a}: 1")
    if pair is None:
        return MapCell(math.nan, "not known")
    depth = (pair.similarity - low) / (1 - low) if low < 1 else 1.0
    return MapCell(depth, f"{a} and {b}: {pair.similarity:.4f} ({pair.low:.4f} to {pair.high:.4f})")


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
    correlations = [
        correlation for correlation in facts.transfer if math.isfinite(correlation.rho) and abs(correlation.rho) >= FAIR
    ]
    correlations.sort(key=lambda correlation: (correlation.p_value, -abs(correlation.rho)))
    return tuple(_plot(correlation, facts) for correlation in correlations[:MOST_PLOTS])


def _plot(correlation: Correlation, facts: Facts) -> Figure:
    group = "all" if correlation.view == "global" else correlation.view.removeprefix("group ")
    bias_before = facts.values(
        (correlation.pretraining_dataset, correlation.pretraining_metric, correlation.pretraining_attribute), group
    )
    bias_after = facts.values(
        (correlation.downstream_dataset, correlation.downstream_metric, correlation.downstream_attribute), group
    )
    models = [model for model in correlation.models if model in bias_before and model in bias_after]
    points = [Point(facts.names.get(m, m), bias_before[m].value, bias_after[m].value) for m in models]
    sides = (
        _side(correlation.pretraining_metric, correlation.pretraining_attribute),
        _side(correlation.downstream_metric, correlation.downstream_attribute),
    )
    axes = (Axis.over(sides[0], [p.x for p in points]), Axis.over(sides[1], [p.y for p in points]))
    return Figure(
        f"ρ = {words.signed(correlation.rho)}",
        f"{words.signed_range(correlation.rho_low, correlation.rho_high)}; p "
        f"{words.small_probability(correlation.p_value)}, q "
        f"{words.small_probability(correlation.q_value)}; {words.plural(len(points), 'model')}, {correlation.view}",
        scatter(points, axes, f"{sides[1]} against {sides[0]}, a point a model"),
    )


def distribution(facts: Facts) -> Figure | None:
    rhos = [correlation.rho for correlation in facts.transfer if math.isfinite(correlation.rho)]
    if not rhos:
        return None
    fair = sum(abs(rho) >= FAIR for rho in rhos)
    return Figure(
        "All correlations",
        f"{words.plural(len(rhos), 'correlation')}, {words.count(fair)} of |ρ| 0.3 or more.",
        histogram([("", rhos)], (-1.0, 1.0), "Spearman’s ρ", "how many correlations have which rho"),
    )


def rows(facts: Facts) -> tuple[TransferRow, ...]:
    correlations = sorted(
        (correlation for correlation in facts.transfer if math.isfinite(correlation.rho)),
        key=lambda correlation: (correlation.p_value, -abs(correlation.rho)),
    )
    return tuple(
        TransferRow(
            before=_side(correlation.pretraining_metric, correlation.pretraining_attribute),
            before_of=clean(correlation.pretraining_dataset),
            after=_side(correlation.downstream_metric, correlation.downstream_attribute),
            after_of=clean(correlation.downstream_dataset),
            view=correlation.view,
            rho=words.signed(correlation.rho),
            interval=words.signed_range(correlation.rho_low, correlation.rho_high),
            p=words.small_probability(correlation.p_value),
            q=words.small_probability(correlation.q_value),
            models=words.count(correlation.n_models),
            holds=correlation.q_value <= facts.alpha,
        )
        for correlation in correlations[:MOST_ROWS]
    )


def selection(facts: Facts) -> tuple[Figure, ...]:
    """Plots general performance against bias over all images, with the chosen models marked (Figure 6)."""
    performance, config = facts.performance, mapping(facts.manifest.get("config"))
    chosen_models = set(facts.manifest.get("window") or ())
    limits = config.get("window")
    ends = (float(limits[0]), float(limits[1])) if isinstance(limits, list) else None
    figures: list[Figure] = []
    for measure in dict.fromkeys(bias.of for bias in facts.biases if bias.stage == "pretraining"):
        if len(figures) == MOST_PLOTS:
            break
        values = facts.values(measure)
        models = [model for model in values if math.isfinite(performance.get(model, math.nan))]
        if len(models) < 2:
            continue
        points = [
            Point(facts.names.get(m, m), performance[m], values[m].value, "marked" if m in chosen_models else "faint")
            for m in models
        ]
        axes = (
            Axis.over("performance", [p.x for p in points]),
            Axis.over(wording.metric(measure[1]), [p.y for p in points]),
        )
        title = f"{clean(measure[2])}: {wording.metric(measure[1])}"
        figures.append(Figure(title, clean(measure[0]), window(points, axes, ends, f"{title} against performance")))
    return tuple(figures)


def quadrants(facts: Facts) -> tuple[Figure, ...]:
    """Plots gaps before against gaps after, one point per model (Figure 7)."""
    by_measure: dict[tuple[str, ...], list[Gap]] = {}
    for gap in facts.gaps:
        measure = (
            gap.attribute,
            gap.pretraining_metric,
            gap.pretraining_dataset,
            gap.downstream_metric,
            gap.downstream_dataset,
        )
        by_measure.setdefault(measure, []).append(gap)
    plotted = [gaps for gaps in by_measure.values() if len(gaps) > 1][: 2 * MOST_PLOTS]
    return tuple(_quadrant(gaps, facts) for gaps in plotted)


def _quadrant(gaps: list[Gap], facts: Facts) -> Figure:
    first, counts = gaps[0], Counter(gap.quadrant for gap in gaps)
    same_sign, other_sign = counts["I"] + counts["III"], counts["II"] + counts["IV"]
    chance = binomtest(same_sign, same_sign + other_sign).pvalue if same_sign + other_sign else math.nan
    points = [
        Point(facts.names.get(gap.model, gap.model), gap.pretraining_gap, gap.downstream_gap, "plain",
              gap.pretraining_reach, gap.downstream_reach)
        for gap in gaps
    ]  # fmt: skip
    names = (wording.score(first.pretraining_metric), wording.score(first.downstream_metric))
    sides = f"{clean(first.first)} − {clean(first.second)}"
    axes = (
        Axis.over(f"{names[0]}, {sides}", [p.x for p in points], zero=True),
        Axis.over(f"{names[1]}, {sides}", [p.y for p in points], zero=True),
    )
    return Figure(
        f"{clean(first.attribute)}: {names[0]} and {names[1]}",
        f"Gaps of one sign: {words.count(same_sign)} of {words.plural(same_sign + other_sign, 'model')} (binomial p "
        f"{words.small_probability(chance)}).",
        scatter(points, axes, f"gaps in {names[1]} against gaps in {names[0]}, a point a model", quadrants=True),
    )


def _side(metric: str, attribute: str) -> str:
    return f"{wording.metric(metric)}, {clean(attribute)}"
