"""The failure rates of a finding's captions and of their baseline, on a logarithmic axis, as an SVG text.

Knows hypotheses and tallies; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from c2b_ray.report.failures.captions import DRESSES
from c2b_ray.report.failures.families import Finding
from c2b_ray.report.failures.rows import Hypothesis
from c2b_ray.report.failures.sentences import says, target_of
from c2b_ray.report.kit import words
from c2b_ray.report.kit.forest import RULE, Forest, ForestRow, forest_svg
from c2b_ray.report.kit.redact import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 12
ENDS = ("← rarer", "failure rate →")
BASELINE = "baseline"


def rates_plot(finding: Finding, baseline: tuple[float, float, float], salt: str) -> str:
    """An <svg> element. `baseline`: rate, low and high; `salt` keeps its ids apart from other plots' on a page."""
    captions = [one for one in finding.captions if one.target == finding.lead.target][:MOST_ROWS]
    least = _least([value for one in captions for value in (one.rate, one.rate_low)] + list(baseline))
    rows = [
        _row(BASELINE, baseline, "none", least),
        *(_row(says(one), (one.rate, one.rate_low, one.rate_high), DRESSES[one.verdict], least) for one in captions),
    ]
    forest = Forest(rows, description(captions, baseline), ENDS)
    return forest_svg(forest, lambda axes: _dress(axes, rows, least), salt)


def description(captions: Sequence[Hypothesis], baseline: tuple[float, float, float]) -> str:
    """The text for a reader who cannot see the plot."""
    lead = captions[0]
    parts = [f"{says(one)} {words.rate(one.rate)}" for one in captions]
    return (
        f"How often {clean(lead.label)} is taken for {target_of(lead)}: baseline {words.rate(baseline[0])}; "
        f"{'; '.join(parts)}."
    )


def _least(values: Sequence[float]) -> float:
    """Returns a power of ten below every rate that is not 0, where the axis begins and 0 is drawn."""
    above = [value for value in values if value > 0]
    return 10.0 ** (math.floor(math.log10(min(above))) - 1) if above else 1e-6


def _row(label: str, rate: tuple[float, float, float], verdict: str, least: float) -> ForestRow:
    value, low, high = (limit if limit != limit else max(limit, least) for limit in rate)
    return ForestRow(label, value, low, high, verdict)


def _dress(axes: Axes, rows: Sequence[ForestRow], least: float) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    highest = max((limit for row in rows for limit in (row.value, row.high) if limit == limit), default=1.0)
    axes.set_xscale("log")
    axes.set_xlim(least, min(1.5, 1.5 * highest) if highest > least else 1.5)
    if rows[0].value == rows[0].value:
        axes.axvline(rows[0].value, color=RULE, linewidth=1, clip_on=False)
    axes.xaxis.set_major_locator(LogLocator(10, numticks=5))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value <= least else _tick(value)))


def _tick(value: float) -> str:
    """Formats a power of ten in percent: 0.001 %."""
    digits = f"{100 * value:.12f}".rstrip("0").rstrip(".")
    return f"{digits}{words.THIN}%"
