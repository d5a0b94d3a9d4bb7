"""Captions and their numbers as rows of tables, on the run's images and on images of other origin."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from c2b_ray.audits.failures.report.rows import FAILURE, NOT_SHOWN, UNDETERMINED, Finding, Hypothesis, share
from c2b_ray.audits.failures.report.sentences import ANY, Facts, says, target_of
from c2b_ray.report import words
from c2b_ray.report.forest import RULE, Forest, ForestRow, forest_svg
from c2b_ray.report.redact import clean, names_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SIGNS = {FAILURE: "▼", NOT_SHOWN: "○", UNDETERMINED: "◇"}
NAMES = {FAILURE: "failure", NOT_SHOWN: "not shown", UNDETERMINED: "undetermined"}
DRESSES = {FAILURE: "against", NOT_SHOWN: "none", UNDETERMINED: "undetermined"}
"""A verdict's colour and marker, by their names in the style sheet."""

MOST_ROWS = 300
LARGEST = 1e300
_ORIGINS = {
    "cluster": "describes a cluster of failures",
    "sentence": "one sentence",
    "pair": "two sentences",
    "shorter": "a sentence left out",
    "adjective": "adjectives left out",
    "language_model": "by the language model",
    "person": "by a person",
    "file": "from the config",
}


@dataclass(frozen=True)
class CaptionRow:
    """A caption's numbers as text. `anyhow`: the rate of any failure; `baseline_anyhow`: the baseline's; `..._value`:
    the sort keys of a table."""

    classifier: str
    label: str
    target: str
    says: str
    caption: str
    origin: str
    anyhow: str
    baseline_anyhow: str
    rate: str
    interval: str
    draws: str
    baseline: str
    baseline_draws: str
    ratio: str
    ratio_interval: str
    ratio_value: str
    evidence: str
    evidence_value: str
    q: str
    dress: str
    sign: str
    verdict: str
    doubts: str


def caption_row(hypothesis: Hypothesis, facts: Facts) -> CaptionRow:
    baseline = facts.at_baseline(hypothesis)
    return CaptionRow(
        classifier=facts.names[hypothesis.classifier],
        label=clean(hypothesis.label),
        target=target_of(hypothesis),
        says=says(hypothesis, 2_000),
        caption=clean(hypothesis.caption),
        origin=_ORIGINS.get(hypothesis.origin, hypothesis.origin),
        anyhow=words.rate(share(hypothesis.any_failures, hypothesis.draws)),
        baseline_anyhow=words.rate(share(baseline.failures, baseline.draws)),
        rate=words.rate(hypothesis.rate),
        interval=words.rate_range(hypothesis.rate_low, hypothesis.rate_high),
        draws=words.plural(hypothesis.draws, "image") + of_clusters(hypothesis, facts.cluster),
        baseline=words.rate(hypothesis.baseline_rate),
        baseline_draws=words.count(hypothesis.baseline_draws),
        ratio=words.times(hypothesis.ratio),
        ratio_interval=words.times_range(hypothesis.ratio_low, hypothesis.ratio_high),
        ratio_value=_plain(hypothesis.ratio),
        evidence=e_value(hypothesis.e_value),
        evidence_value=_plain(hypothesis.e_value),
        q=words.small_probability(hypothesis.q_value),
        dress=DRESSES.get(hypothesis.verdict, "undetermined"),
        sign=SIGNS.get(hypothesis.verdict, "◇"),
        verdict=NAMES.get(hypothesis.verdict, hypothesis.verdict),
        doubts="; ".join(clean(doubt) for doubt in hypothesis.doubts),
    )


def of_clusters(hypothesis: Hypothesis, cluster: str) -> str:
    """Returns how many clusters a caption's images are of; empty where images are independent."""
    return "" if hypothesis.clusters is None else f", {clean(cluster)}: {words.count(hypothesis.clusters)}"


def e_value(value: float) -> str:
    if math.isnan(value):
        return words.UNKNOWN
    if value >= 1e6:
        return "∞" if math.isinf(value) else f"10{_superscript(math.floor(math.log10(value)))}"
    return words.count(round(value)) if value >= 100 else f"{value:.2g}"


def _plain(value: float) -> str:
    """Formats a number for scripts; infinity becomes the largest number."""
    return "" if math.isnan(value) else f"{min(value, LARGEST):.6f}"


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def undecided_first(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns the hypotheses that are no findings: undetermined ones first, those with more evidence before others."""
    undecided = [hypothesis for hypothesis in hypotheses if not hypothesis.confirmed]
    return sorted(
        undecided,
        key=lambda hypothesis: (
            hypothesis.verdict != UNDETERMINED,
            -(0.0 if math.isnan(hypothesis.e_value) else hypothesis.e_value),
            hypothesis.label,
            hypothesis.caption,
        ),
    )


# The captions of findings on other images, from other generators or an index: the counterpart of Tables 5 and 6.


MOST_TRANSFERS = 200


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
        for row in rows[:MOST_TRANSFERS]
    )
    return Transfers(True, _line(rows, alpha), transfer_rows, max(len(rows) - MOST_TRANSFERS, 0))


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
