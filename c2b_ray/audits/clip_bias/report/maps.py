"""Bias by model and group as maps, local against global bias as a table: the paper's Figure 3 and Table 2.

Knows facts and words; knows nothing of pages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

from c2b_ray.audits.clip_bias.report import method
from c2b_ray.audits.clip_bias.report.facts import ALL, Bias, Facts
from c2b_ray.audits.clip_bias.report.plots import Cell, heat_map
from c2b_ray.report import words
from c2b_ray.report.redact import clean

MOST_MAPS = 24


@dataclass(frozen=True)
class Figure:
    """A plot with what stands above it."""

    title: str
    caption: str
    svg: str


@dataclass(frozen=True)
class LocalRow:
    metric: str
    attribute: str
    dataset: str
    group: str
    rho: str
    interval: str
    p: str
    q: str
    models: str
    holds: bool


def maps(facts: Facts) -> tuple[Figure, ...]:
    """One for each metric, attribute and dataset: rows are groups, columns models by descending global bias, shade the
    bias between the row's least and largest. Where most of it is unknown there is none."""
    several = dict.fromkeys(one.of for one in facts.biases)
    drawn = (figure for of in several if (figure := _map(facts, of)) is not None)
    return tuple(islice(drawn, MOST_MAPS))


def _map(facts: Facts, of: tuple[str, str, str]) -> Figure | None:
    rows = [one for one in facts.biases if one.of == of]
    known = [one for one in rows if one.known]
    if not known or len(known) < len(rows) / 2:
        return None
    whole = {one.model: one.value for one in rows if one.group == ALL}
    models = sorted(whole, key=lambda model: -whole[model] if math.isfinite(whole[model]) else math.inf)
    groups = list(dict.fromkeys(one.group for one in rows))
    at = {(one.group, one.model): one for one in rows}
    least, most = min(one.value for one in known), max(one.value for one in known)
    cells = [[_cell(at.get((group, model)), least, most, facts) for model in models] for group in groups]
    dataset, metric, attribute = (clean(of[0]), method.metric(of[1]), clean(of[2]))
    return Figure(
        f"{attribute}: {metric}",
        f"{dataset}. From {method.amount(least)} to {method.amount(most)}.",
        heat_map(
            [method.group(group) for group in groups],
            [facts.names.get(model, clean(model)) for model in models],
            cells,
            f"{metric} of {attribute} on {dataset}, by group and model, models by descending bias over all images",
        ),
    )


def _cell(one: Bias | None, least: float, most: float, facts: Facts) -> Cell:
    if one is None or not one.known:
        return Cell(math.nan, clean(one.note or "") if one is not None else "not measured")
    depth = (one.value - least) / (most - least) if most > least else 0.0
    title = (
        f"{facts.names.get(one.model, one.model)}, {method.group(one.group)}: {method.amount(one.value)} "
        f"({method.amounts(one.value_low, one.value_high)}; by chance {method.amount(one.expected)}; "
        f"q {words.small_probability(one.q_value)}; {words.plural(one.n, 'image')})"
    )
    return Cell(depth, title, marked=one.q_value <= facts.alpha)


def local_rows(facts: Facts) -> tuple[LocalRow, ...]:
    return tuple(
        LocalRow(
            metric=method.metric(one.metric),
            attribute=clean(one.attribute),
            dataset=clean(one.dataset),
            group=method.group(one.group),
            rho=words.signed(one.rho),
            interval=words.signed_range(one.rho_low, one.rho_high),
            p=words.small_probability(one.p_value),
            q=words.small_probability(one.q_value),
            models=words.count(one.n_models),
            holds=one.q_value <= facts.alpha,
        )
        for one in facts.locality
        if math.isfinite(one.rho)
    )
