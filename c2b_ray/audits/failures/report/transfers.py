"""The captions of findings on other images, from other generators or an index: the counterpart of Tables 5 and 6.

Rates of other classifiers on the images that measured a finding are no rows here: `compared` shows them.

Knows the table of `tables.TRANSFERS`; knows nothing of pages.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from c2b_ray.audits.failures.report.captions import DRESSES
from c2b_ray.audits.failures.report.rows import Finding, Hypothesis, share
from c2b_ray.audits.failures.report.sentences import ANY, says, target_of
from c2b_ray.report import words
from c2b_ray.report.forest import RULE, Forest, ForestRow, forest_svg
from c2b_ray.report.redact import clean, names_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_ROWS = 200


@dataclass(frozen=True)
class Transfer:
    """Rates are means over runs ± their standard deviation, of the caption and of its baseline; without runs, failures
    over images. `runs`: empty where there is none."""

    classifier: str
    source: str
    label: str
    target: str
    says: str
    baseline: str
    rate: str
    anyhow: str
    images: str
    runs: str
    p: str
    holds: bool


@dataclass(frozen=True)
class Transfers:
    present: bool
    line: str = ""
    rows: tuple[Transfer, ...] = ()
    more: int = 0


def transfers(
    table: pa.Table, says_of: Mapping[str, str], names: Mapping[str, str], alpha: float, measured: Collection[str] = ()
) -> Transfers:
    """`says_of`: what each caption says, by its id; `names`: what each classifier is called; `measured`: the sources of
    the images that measured the findings."""
    rows = [row for row in table.to_pylist() if row["rates"] or row["source"] not in measured]
    if not rows:
        return Transfers(present=False)
    sources = names_of([row["source"] for row in rows])
    rows.sort(key=lambda row: (not _is_tested(row), row["p_value"] or 0.0))
    transfer_rows = tuple(
        Transfer(
            classifier=names.get(row["classifier"], clean(row["classifier"])),
            source=sources[row["source"]],
            label=clean(row["label"]),
            target=ANY if row["target"] is None else clean(row["target"]),
            says=says_of.get(row["caption_id"], words.UNKNOWN),
            baseline=_rate(row["baseline_rates"], row["baseline_failures"], row["baseline_draws"]),
            rate=_rate(row["rates"], row["failures"], row["draws"]),
            anyhow=words.rate(share(row["any_failures"], row["draws"])),
            images=words.count(row["draws"]),
            runs=words.plural(len(row["rates"]), "run") if row["rates"] else "",
            p=p_value(row["p_value"]),
            holds=_holds(row, alpha),
        )
        for row in rows[:MOST_ROWS]
    )
    return Transfers(True, _line(rows, alpha), transfer_rows, max(len(rows) - MOST_ROWS, 0))


def _rate(rates: Sequence[float], failures: int, draws: int) -> str:
    return spread(rates) if rates else words.rate(share(failures, draws))


def spread(rates: Sequence[float]) -> str:
    """Formats mean ± standard deviation (n − 1) in percent; only the mean for one run."""
    measured = [rate for rate in rates if rate is not None and not math.isnan(rate)]
    if not measured:
        return words.UNKNOWN
    mean = words.rate(statistics.fmean(measured))
    if len(measured) < 2:
        return mean
    return f"{mean.removesuffix(f'{words.THIN}%')} ± {words.rate(statistics.stdev(measured))}"


def p_value(value: float | None) -> str:
    """Formats a p-value to two digits, however small."""
    if value is None or math.isnan(value):
        return words.UNKNOWN
    return words.rate(value / 100).removesuffix(f"{words.THIN}%") if value else "0"


def _is_tested(row: Mapping[str, Any]) -> bool:
    return row["p_value"] is not None and not math.isnan(row["p_value"])


def _holds(row: Mapping[str, Any], alpha: float) -> bool:
    is_higher = share(row["failures"], row["draws"]) > share(row["baseline_failures"], row["baseline_draws"])
    return _is_tested(row) and row["p_value"] <= alpha and is_higher


def _line(rows: Sequence[Mapping[str, Any]], alpha: float) -> str:
    tested = [row for row in rows if _is_tested(row)]
    holds = words.count(sum(_holds(row, alpha) for row in tested))
    of_tested = (
        f"{holds} of {words.plural(len(tested), 'comparison')} show more failures under the caption than at "
        f"its baseline, each taken alone (p at most {words.decimal(alpha)}). Nobody checked that these images show "
        "their label: an index gives the nearest that it has, and those that show something else count as failures. "
        "Mean rate over runs ± standard deviation; p is that of the exact Mann–Whitney test of the runs’ rates."
    )
    untested = "Rows without p are failures over images, and were not tested."
    return " ".join([*([of_tested] if tested else []), *([untested] if len(tested) < len(rows) else [])])


# The failure rates of a finding's captions and of their baseline, on a logarithmic axis, as an SVG text.


MOST_PLOTTED_ROWS = 12
ENDS = ("← rarer", "failure rate →")
BASELINE = "baseline"


def rates_plot(finding: Finding, baseline: tuple[float, float, float], salt: str) -> str:
    """An <svg> element. `baseline`: rate, low and high; `salt` keeps its ids apart from other plots' on a page."""
    captions = [caption for caption in finding.captions if caption.target == finding.lead.target][:MOST_PLOTTED_ROWS]
    least = _least([value for caption in captions for value in (caption.rate, caption.rate_low)] + list(baseline))
    rows = [
        _row(BASELINE, baseline, "none", least),
        *(
            _row(says(caption), (caption.rate, caption.rate_low, caption.rate_high), DRESSES[caption.verdict], least)
            for caption in captions
        ),
    ]
    forest = Forest(rows, description(captions, baseline), ENDS)
    return forest_svg(forest, lambda axes: _dress(axes, rows, least), salt)


def description(captions: Sequence[Hypothesis], baseline: tuple[float, float, float]) -> str:
    """The text for a reader who cannot see the plot."""
    lead = captions[0]
    parts = [f"{says(caption)} {words.rate(caption.rate)}" for caption in captions]
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


# The answer to a question to a run of failures, in a line for each classifier and wrong label.


BEFORE = "asked before; these are the answers of then, and nothing was drawn now"


def answer_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """`rows`: hypotheses of confirmation (`tables.HYPOTHESES`), with the counts of their baselines."""
    return [_answered_line(row) for row in rows]


def _answered_line(row: Mapping[str, Any]) -> str:
    towards = "any failure" if row["target"] is None else f"taken for {row['target']}"
    return (
        f"{row['classifier']} on {row['caption']!r}: {towards} {row['failures']} of {row['draws']} "
        f"({row['rate_low']:.2g} to {row['rate_high']:.2g}), baseline {row['baseline_failures']} of "
        f"{row['baseline_draws']}; {row['verdict'].replace('_', ' ')} (q {row['q_value']:.2g})"
    )
