"""Captions with their numbers, as tables: of the run, of its classifiers side by side, and on other images."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from c2b_ray.audits.failures.report.facts import Facts
from c2b_ray.audits.failures.report.labels import at_baseline
from c2b_ray.audits.failures.report.rows import FAILURE, NOT_SHOWN, UNDETERMINED, Hypothesis, Tally, share
from c2b_ray.audits.failures.report.sentences import ANY, says, target_of
from c2b_ray.report import words
from c2b_ray.report.blocks import Bar, Cell, Paragraph, Section, Segment, Table, TableRow, Verdict, spec
from c2b_ray.report.redact import clean, names_of
from c2b_ray.report.words import Column, Span

SIGNS = {FAILURE: "▼", NOT_SHOWN: "○", UNDETERMINED: "◇"}
NAMES = {FAILURE: "failure", NOT_SHOWN: "not shown", UNDETERMINED: "undetermined"}
STYLES = {FAILURE: "against", NOT_SHOWN: "none", UNDETERMINED: "undetermined"}
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


def in_numbers(facts: Facts) -> list[Section]:
    """Returns the table of all hypotheses that were confirmed; those of findings first, in their order."""
    of_findings = (hypothesis for finding in facts.findings for hypothesis in finding.confirmed)
    confirmed = dict.fromkeys([*of_findings, *(each for each in facts.hypotheses if each.confirmed)])
    if not confirmed:
        return []
    evidence = (
        "q is the probability of such a difference between clusters by chance, corrected for all hypotheses of the run."
        if facts.cluster
        else "e is the evidence that the caption fails more often than its baseline, q what e-BH makes of it over all "
        "hypotheses of the run."
    )
    legend = (
        "Every hypothesis that was confirmed. A rate is from a number of images that was fixed before they were drawn; "
        f"beneath it is its {words.percent(facts.confidence)} interval. {evidence}"
    )
    blocks = [Paragraph(legend, "legend"), caption_table(list(confirmed), facts, "numbers")]
    return [Section("In numbers", blocks, "numbers", "In numbers")]


def caption_table(hypotheses: Sequence[Hypothesis], facts: Facts, name: str) -> Table:
    """Returns captions with their numbers. `name`: of the rows that are filtered together."""
    columns = [
        Column("Label"),
        Column("Taken for"),
        Column("The caption says"),
        *([Column("Classifier", spec=True)] if len(facts.names) > 1 else []),
        *(Column(number, number=True) for number in ("Any failure", "Rate", "Baseline", "Times", "e", "q")),
        Column("Verdict"),
    ]
    return Table(
        columns,
        [_caption_row(hypothesis, facts) for hypothesis in hypotheses[:MOST_ROWS]],
        style="facts captions",
        sortable=True,
        filtered=name,
        most=12,
        more=words.further(len(hypotheses), MOST_ROWS, "in the run’s hypotheses.parquet"),
    )


def _baseline_of_label(tally: Tally) -> list[str]:
    """Returns how often the label fails at its baseline, on all images of confirmation: more than the rate beside it is
    compared with, so that the two differ."""
    return [f"baseline {words.rate(share(tally.failures, tally.draws))}", f"of {words.plural(tally.draws, 'image')}"]


def _caption_row(hypothesis: Hypothesis, facts: Facts) -> TableRow:
    baseline, classifier = facts.at_baseline(hypothesis), facts.names[hypothesis.classifier]
    label, target = clean(hypothesis.label), target_of(hypothesis)
    verdict = NAMES.get(hypothesis.verdict, hypothesis.verdict)
    style, sign = STYLES.get(hypothesis.verdict, "undetermined"), SIGNS.get(hypothesis.verdict, "◇")
    images = words.plural(hypothesis.draws, "image") + of_clusters(hypothesis, facts.cluster)
    origin = _ORIGINS.get(hypothesis.origin, hypothesis.origin)
    doubts = "; ".join(clean(doubt) for doubt in hypothesis.doubts)
    in_doubt = (Span("in doubt", style="doubt", title=doubts), Span(f": {doubts}", style="unseen")) if doubts else ""
    any_failure = words.rate(share(hypothesis.any_failures, hypothesis.draws))
    return TableRow(
        (
            label,
            target,
            Cell(says(hypothesis, 2_000), [origin], "says", title=clean(hypothesis.caption)),
            *([classifier] if len(facts.names) > 1 else []),
            Cell(any_failure, _baseline_of_label(baseline)),
            Cell(words.rate(hypothesis.rate), [words.rate_range(hypothesis.rate_low, hypothesis.rate_high), images]),
            Cell(words.rate(hypothesis.baseline_rate), [words.plural(hypothesis.baseline_draws, "image")]),
            Cell(
                words.times(hypothesis.ratio),
                [words.times_range(hypothesis.ratio_low, hypothesis.ratio_high)],
                value=_plain(hypothesis.ratio),
            ),
            Cell(e_value(hypothesis.e_value), value=_plain(hypothesis.e_value)),
            words.small_probability(hypothesis.q_value),
            Cell("", [in_doubt], "ruling", mark=Verdict(style, sign, verdict)),
        ),
        data={
            "label": label,
            "target": target,
            "verdict": verdict,
            **({"classifier": classifier} if len(facts.names) > 1 else {}),
        },
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


def has_transfers(facts: Facts) -> bool:
    return bool(_of_others(facts.tables.transfers, facts.primary))


def elsewhere(facts: Facts) -> list[Section]:
    says_of = {hypothesis.caption_id: says(hypothesis) for hypothesis in facts.hypotheses}
    return on_other_images(facts.tables.transfers, says_of, facts.names, 1 - facts.confidence, facts.primary)


def on_other_images(
    table: pa.Table, says_of: Mapping[str, str], names: Mapping[str, str], alpha: float, measured: Collection[str] = ()
) -> list[Section]:
    """Returns the table of comparisons on other images. `says_of`: what each caption says, by its id; `names`: what
    each classifier is called; `measured`: the sources of the images that measured the findings."""
    rows = _of_others(table, measured)
    if not rows:
        return []
    sources = names_of([row["source"] for row in rows])
    rows.sort(key=lambda row: (not _is_tested(row), row["p_value"] or 0.0))
    columns = [
        Column("Label"),
        Column("Taken for"),
        Column("The caption says"),
        Column("Images from", spec=True),
        *([Column("Classifier", spec=True)] if len(names) > 1 else []),
        *(Column(number, number=True) for number in ("Baseline", "Caption", "Any failure", "p")),
    ]
    lines: list[Sequence[str | Cell | Bar]] = [
        (
            clean(row["label"]),
            ANY if row["target"] is None else clean(row["target"]),
            Cell(says_of.get(row["caption_id"], words.UNKNOWN), style="says"),
            sources[row["source"]],
            *([names.get(row["classifier"], clean(row["classifier"]))] if len(names) > 1 else []),
            _rate(row["baseline_rates"], row["baseline_failures"], row["baseline_draws"]),
            Cell(_rate(row["rates"], row["failures"], row["draws"]), [_images_and_runs(row)]),
            words.rate(share(row["any_failures"], row["draws"])),
            Cell((Span(p_value(row["p_value"]), strong=_holds(row, alpha)),)),
        )
        for row in rows[:MOST_TRANSFERS]
    ]
    more = words.further(len(rows), MOST_TRANSFERS, "in the run’s transfers.parquet")
    shown = Table(columns, lines, style="facts elsewhere", sortable=True, more=more)
    return [Section("On other images", [Paragraph(_line(rows, alpha)), shown], "elsewhere", "On other images")]


def _of_others(table: pa.Table, measured: Collection[str]) -> list[Mapping[str, Any]]:
    return [row for row in table.to_pylist() if row["rates"] or row["source"] not in measured]


def _images_and_runs(row: Mapping[str, Any]) -> str:
    runs = f", {words.plural(len(row['rates']), 'run')}" if row["rates"] else ""
    return f"{words.plural(row['draws'], 'image')}{runs}"


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


# A comparison of several classifiers on the same images, at the baselines and on the captions of findings.


MOST_COMPARED = 60


def compared(facts: Facts) -> list[Section]:
    """Returns a line per classifier, and a row per finding's caption with the rates of all; nothing where there is one
    classifier alone, or no finding."""
    leads: dict[tuple[str, str | None, str], Hypothesis] = {}
    for finding in facts.findings:
        lead = finding.lead
        leads.setdefault((lead.caption_id, lead.target, lead.generator), lead)
    if len(facts.names) < 2 or not leads:
        return []
    columns = [
        Column("Label"), Column("Taken for"), Column("The caption says"),
        *(Column(name, number=True, heading=(spec(name),)) for name in facts.names.values()),
    ]  # fmt: skip
    caption = (
        "The caption of each finding: how often each classifier fails so, with its "
        f"{words.percent(facts.confidence)} interval and the baseline’s rate; ▼ marks confirmed failures"
    )
    of_findings = Table(
        columns,
        [_compared_row(lead, facts) for lead in list(leads.values())[:MOST_COMPARED]],
        "Findings of all classifiers",
        "matrix",
        caption,
        more=words.further(len(leads), MOST_COMPARED, "in the run’s rounds"),
    )
    intro = (
        "All classifiers answered for the same images. A caption was tried on all of them, whichever failures it was "
        "made from."
    )
    blocks = [Paragraph(intro), _mean_rates(facts), of_findings]
    return [Section("Classifiers compared", blocks, "compared", "Classifiers compared")]


def _mean_rates(facts: Facts) -> Table:
    """Returns each classifier's mean rate of any failure, at the baselines and on the captions of findings."""
    on_captions = {finding.lead.caption_id for finding in facts.findings}
    rates = {name: (mean_at_baselines(facts, name), _on_captions(facts, name, on_captions)) for name in facts.names}
    largest = max((rate for pair in rates.values() for rate in pair if rate == rate), default=0.0) or 1.0
    findings = Counter(finding.lead.classifier for finding in facts.findings)
    columns = [
        Column("Classifier", spec=True), Column("Findings", number=True), Column("Baselines", number=True),
        Column("Share", hidden=True), Column("Captions", number=True), Column("Share", hidden=True),
    ]  # fmt: skip
    rows = [
        (
            facts.names[name],
            words.count(findings[name]),
            words.rate(at_baselines),
            Bar([Segment("none", _width(at_baselines, largest))]),
            words.rate(on_findings),
            Bar([Segment("against", _width(on_findings, largest))]),
        )
        for name, (at_baselines, on_findings) in rates.items()
    ]
    caption = "Mean rate of any failure: over the labels’ baselines, and over the captions of all findings"
    return Table(columns, rows, caption=caption, style="facts ratios")


def mean_at_baselines(facts: Facts, classifier: str) -> float:
    """Computes the mean over all labels of the rate of any failure at the baseline, as the table of labels has them."""
    return _mean(at_baseline(facts, label, classifier)[1] for label in facts.baselines)


def _on_captions(facts: Facts, classifier: str, captions: set[str]) -> float:
    return _mean(
        tally
        for (caption, name, generator), tally in facts.tallies.confirmed.items()
        if name == classifier and caption in captions and generator in facts.primary
    )


def _mean(tallies: Iterable[Tally]) -> float:
    """Computes the mean of the rates of any failure; each tally has the same weight."""
    rates = [tally.failures / tally.draws for tally in tallies if tally.draws]
    return sum(rates) / len(rates) if rates else math.nan


def _compared_row(hypothesis: Hypothesis, facts: Facts) -> list[str | Cell]:
    """Returns a caption's rates of the hypothesis's failure. Bars are in percent of the row's largest rate."""
    target = hypothesis.target
    tallies = {name: facts.tallies.of(hypothesis.caption_id, name, hypothesis.generator) for name in facts.names}
    rates = {name: share(tally.towards(target), tally.draws) for name, tally in tallies.items()}
    largest = max((rate for rate in rates.values() if rate == rate), default=0.0) or 1.0
    confirmed = {
        each.classifier
        for finding in facts.findings
        for each in finding.captions
        if (each.caption_id, each.target) == (hypothesis.caption_id, target)
    }
    return [
        clean(hypothesis.label),
        target_of(hypothesis),
        Cell(says(hypothesis), style="says"),
        *(_compared_rate(hypothesis, name, tallies[name], facts, largest, name in confirmed) for name in facts.names),
    ]


def _compared_rate(
    hypothesis: Hypothesis, name: str, tally: Tally, facts: Facts, largest: float, is_confirmed: bool
) -> Cell:
    base, failures = facts.at_baseline(hypothesis, name), tally.towards(hypothesis.target)
    limits, rate = facts.rate(failures, tally.draws), share(failures, tally.draws)
    interval = words.rate_range(float(limits.low), float(limits.high)) if tally.draws else ""
    style = "against" if is_confirmed else "none"
    return Cell(
        (Span("confirmed:", style="unseen"), Span(f" {words.rate(rate)}")) if is_confirmed else words.rate(rate),
        [interval, f"baseline {words.rate(share(base.towards(hypothesis.target), base.draws))}"],
        "against" if is_confirmed else "",
        mark=Verdict("against", "▼", "") if is_confirmed else None,
        bar=Bar([Segment(style, _width(rate, largest))]),
    )


def _width(rate: float, largest: float) -> str:
    return "0" if rate != rate else f"{100 * rate / largest:.1f}"


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
