"""The figures of a run of `c2b clip-bias`: maps of bias by model and group (the paper's Figure 3), transfer (Figures 4
to 7) and embedding spaces (Figure 8)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice

from scipy.stats import binomtest

from c2b_ray.audits.clip_bias import wording
from c2b_ray.audits.clip_bias.facts import Facts, Measure, is_known, measure_of
from c2b_ray.audits.clip_bias.plots import Axis, MapCell, Point, heat_map, histogram, scatter, window
from c2b_ray.audits.clip_bias.steps.measure import ALL
from c2b_ray.report import words
from c2b_ray.report.blocks import Figure
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Span
from c2b_ray.tables.clip_bias import BiasRow, ConvergenceRow, GapRow, TransferRow

FAIR = 0.3
"""The |rho| from which the paper speaks of a fair correlation, and plots it."""
MOST_MAPS, MOST_PLOTS = 24, 6


def _figure(title: str, caption: str, svg: str) -> Figure:
    return Figure(svg, (Span(title, strong=True), Span(caption)), style="")


# Bias by model and group.


def maps(facts: Facts) -> list[Figure]:
    """Returns one for each metric, attribute and dataset: rows are groups, columns models by descending global bias,
    shade the bias between the row's least and largest. Where most of it is unknown there is none."""
    measures = dict.fromkeys(map(measure_of, facts.biases))
    figures = (figure for measure in measures if (figure := _map(facts, measure)) is not None)
    return list(islice(figures, MOST_MAPS))


def _map(facts: Facts, measure: Measure) -> Figure | None:
    rows = [bias for bias in facts.biases if measure_of(bias) == measure]
    measured = [bias["value"] for bias in rows if is_known(bias)]
    if not measured or len(measured) < len(rows) / 2:
        return None
    over_all_images = {bias["model"]: bias["value"] for bias in rows if bias["group"] == ALL}
    models = sorted(
        over_all_images,
        key=lambda model: -over_all_images[model] if math.isfinite(over_all_images[model]) else math.inf,
    )
    groups = list(dict.fromkeys(bias["group"] for bias in rows))
    by_group_and_model = {(bias["group"], bias["model"]): bias for bias in rows}
    least, most = min(measured), max(measured)
    cells = [
        [_map_cell(by_group_and_model.get((group, model)), least, most, facts) for model in models] for group in groups
    ]
    dataset, metric, attribute = (clean(measure[0]), wording.metric(measure[1]), clean(measure[2]))
    return _figure(
        f"{attribute}: {metric}",
        f"{dataset}. From {wording.amount(least)} to {wording.amount(most)}.",
        heat_map(
            [wording.group(group) for group in groups],
            [facts.name(model) for model in models],
            cells,
            f"{metric} of {attribute} on {dataset}, by group and model, models by descending bias over all images",
        ),
    )


def _map_cell(bias: BiasRow | None, least: float, most: float, facts: Facts) -> MapCell:
    if bias is None or not is_known(bias):
        return MapCell(math.nan, clean(bias["note"] or "") if bias is not None else "not measured")
    depth = (bias["value"] - least) / (most - least) if most > least else 0.0
    title = (
        f"{facts.name(bias['model'])}, {wording.group(bias['group'])}: {wording.amount(bias['value'])} "
        f"({wording.amounts(bias['value_low'], bias['value_high'])}; by chance {wording.amount(bias['expected'])}; "
        f"q {words.small_probability(bias['q_value'])}; {words.plural(bias['n'], 'image')})"
    )
    return MapCell(depth, title, marked=facts.is_established(bias))


# Transfer: all correlations, the strongest of them, the models that were chosen, gaps by quadrant.


def distribution(facts: Facts) -> list[Figure]:
    """Returns the histogram of all correlations; none where none is known."""
    rhos = [row["rho"] for row in facts.correlations]
    if not rhos:
        return []
    fair = sum(abs(rho) >= FAIR for rho in rhos)
    caption = f"{words.plural(len(rhos), 'correlation')}, {words.count(fair)} of |ρ| 0.3 or more."
    plot = histogram([("", rhos)], (-1.0, 1.0), "Spearman’s ρ", "how many correlations have which rho")
    return [_figure("All correlations", caption, plot)]


def strongest(facts: Facts) -> list[Figure]:
    """Returns the fair correlations with the least p, a point a model."""
    fair = [row for row in facts.correlations if abs(row["rho"]) >= FAIR]
    return [_correlation(row, facts) for row in fair[:MOST_PLOTS]]


def _correlation(row: TransferRow, facts: Facts) -> Figure:
    group = ALL if row["view"] == "global" else row["view"].removeprefix("group ")
    before = facts.values((row["pretraining_dataset"], row["pretraining_metric"], row["pretraining_attribute"]), group)
    after = facts.values((row["downstream_dataset"], row["downstream_metric"], row["downstream_attribute"]), group)
    points = [Point(facts.name(m), before[m], after[m]) for m in row["models"] if m in before and m in after]
    sides = (
        wording.bias(row["pretraining_metric"], row["pretraining_attribute"]),
        wording.bias(row["downstream_metric"], row["downstream_attribute"]),
    )
    axes = (Axis.over(sides[0], [p.x for p in points]), Axis.over(sides[1], [p.y for p in points]))
    caption = (
        f"{words.signed_range(row['rho_low'], row['rho_high'])}; p {words.small_probability(row['p_value'])}, q "
        f"{words.small_probability(row['q_value'])}; {words.plural(len(points), 'model')}, {row['view']}"
    )
    plot = scatter(points, axes, f"{sides[1]} against {sides[0]}, a point a model")
    return _figure(f"ρ = {words.signed(row['rho'])}", caption, plot)


def selection(facts: Facts) -> list[Figure]:
    """Returns general performance against bias over all images, with the chosen models marked (Figure 6)."""
    performance = facts.performance
    chosen_models = set(facts.manifest.get("window") or ())
    figures: list[Figure] = []
    for measure in dict.fromkeys(measure_of(bias) for bias in facts.biases if bias["stage"] == "pretraining"):
        if len(figures) == MOST_PLOTS:
            break
        values = facts.values(measure)
        models = [model for model in values if math.isfinite(performance.get(model, math.nan))]
        if len(models) < 2:
            continue
        points = [
            Point(facts.name(m), performance[m], values[m], "marked" if m in chosen_models else "faint") for m in models
        ]
        axes = (
            Axis.over("performance", [p.x for p in points]),
            Axis.over(wording.metric(measure[1]), [p.y for p in points]),
        )
        title = f"{clean(measure[2])}: {wording.metric(measure[1])}"
        plot = window(points, axes, facts.config.window, f"{title} against performance")
        figures.append(_figure(title, clean(measure[0]), plot))
    return figures


def quadrants(facts: Facts) -> list[Figure]:
    """Returns gaps before against gaps after, a point a model (Figure 7)."""
    by_measure: dict[tuple[str, ...], list[GapRow]] = {}
    for gap in facts.gaps:
        measure = (
            gap["attribute"], gap["pretraining_metric"], gap["pretraining_dataset"], gap["downstream_metric"],
            gap["downstream_dataset"],
        )  # fmt: skip
        by_measure.setdefault(measure, []).append(gap)
    plotted = [gaps for gaps in by_measure.values() if len(gaps) > 1][: 2 * MOST_PLOTS]
    return [_quadrant(gaps, facts) for gaps in plotted]


def _quadrant(gaps: Sequence[GapRow], facts: Facts) -> Figure:
    first, counts = gaps[0], Counter(gap["quadrant"] for gap in gaps)
    same_sign, other_sign = counts["I"] + counts["III"], counts["II"] + counts["IV"]
    chance = binomtest(same_sign, same_sign + other_sign).pvalue if same_sign + other_sign else math.nan
    points = [
        Point(facts.name(gap["model"]), gap["pretraining_gap"], gap["downstream_gap"], "plain",
              gap["pretraining_reach"], gap["downstream_reach"])
        for gap in gaps
    ]  # fmt: skip
    names = (wording.score(first["pretraining_metric"]), wording.score(first["downstream_metric"]))
    sides = f"{clean(first['first'])} − {clean(first['second'])}"
    axes = (
        Axis.over(f"{names[0]}, {sides}", [p.x for p in points], zero=True),
        Axis.over(f"{names[1]}, {sides}", [p.y for p in points], zero=True),
    )
    return _figure(
        f"{clean(first['attribute'])}: {names[0]} and {names[1]}",
        f"Gaps of one sign: {words.count(same_sign)} of {words.plural(same_sign + other_sign, 'model')} (binomial p "
        f"{words.small_probability(chance)}).",
        scatter(points, axes, f"gaps in {names[1]} against gaps in {names[0]}, a point a model", quadrants=True),
    )


# The similarity of embedding spaces.


def similarities(by_stage: Mapping[str, Sequence[ConvergenceRow]], facts: Facts) -> list[Figure]:
    """Returns a map of the similarities of every two models in each stage, and the histogram of both."""
    low = min(pair["similarity"] for pairs in by_stage.values() for pair in pairs)
    figures = [_similarity_map(stage, pairs, low, facts) for stage, pairs in by_stage.items()]
    series = [(stage, [pair["similarity"] for pair in pairs]) for stage, pairs in by_stage.items()]
    plot = histogram(series, (min(low, 0.99), 1.0), "similarity", "before and after")
    return [*figures, _figure("Both", "Similarities of every two models.", plot)]


def _similarity_map(stage: str, pairs: Sequence[ConvergenceRow], low: float, facts: Facts) -> Figure:
    models = list(dict.fromkeys(name for pair in pairs for name in (pair["model_a"], pair["model_b"])))
    by_models = {(pair["model_a"], pair["model_b"]): pair for pair in pairs}
    by_models |= {(pair["model_b"], pair["model_a"]): pair for pair in pairs}
    names = [facts.name(model) for model in models]
    cells = [[_similarity((a, b), by_models.get((a, b)), low, facts) for b in models] for a in models]
    plot = heat_map(names, names, cells, f"{stage} training", 30)
    return _figure(f"{stage.capitalize()} training", f"From {low:.3f} to 1.", plot)


def _similarity(models: tuple[str, str], pair: ConvergenceRow | None, low: float, facts: Facts) -> MapCell:
    a, b = map(facts.name, models)
    if a == b:
        return MapCell(1.0, f"{a}: 1")
    if pair is None:
        return MapCell(math.nan, "not known")
    depth = (pair["similarity"] - low) / (1 - low) if low < 1 else 1.0
    return MapCell(depth, f"{a} and {b}: {pair['similarity']:.4f} ({pair['low']:.4f} to {pair['high']:.4f})")
