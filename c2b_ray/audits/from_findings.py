"""What people do with a run of an audit that brings only its findings: summary, page, exports, comparison, estimate.

Of a finding's columns it knows `verdict`, `value` with its limits `value_low` and `value_high`, `n` and `doubt`; a
larger value is worse. An audit that has more to say declares functions of its own (`audits.audit.Audit`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, TypedDict

import numpy as np
import pyarrow as pa

from c2b_ray.audits.audit import Audit, audit_of
from c2b_ray.audits.gate import GateCell
from c2b_ray.audits.kit.comparison import Comparison, compared, compared_names, decide, differing, importance, refuse
from c2b_ray.audits.kit.models import one_of
from c2b_ray.errors import Argument, RunError
from c2b_ray.report import words
from c2b_ray.report.blocks import Page, Paragraph, Section, Table, made
from c2b_ray.report.comparison import DIFFERENCE, Heading, Pages, difference_texts
from c2b_ray.report.export import about, csv_of, exported, json_of, parquet_of
from c2b_ray.report.method import method_of, times
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Summary
from c2b_ray.stats.resampling import SampledEstimate, difference_of_estimates
from c2b_ray.storage import files
from c2b_ray.storage.run import Run
from c2b_ray.tables.rows import NULLABLE, schema_of
from c2b_ray.text import finite

PROBLEMS = ("against", "failure", "found", "raises")
"""Verdicts that a classifier has a problem, as gates name them; they are counted in lists of runs."""


class FindingRow(TypedDict):
    """A finding of a run."""

    classifier: str
    finding: str
    verdict: str | None
    value: float | None
    value_low: float | None
    value_high: float | None
    n: int | None
    doubt: str | None


class FindingsComparisonRow(TypedDict):
    """A finding of two runs, A and B."""

    finding: str
    verdict_a: str | None
    verdict_b: str | None
    value_a: float | None
    value_b: float | None
    n_a: Annotated[int, NULLABLE]
    n_b: Annotated[int, NULLABLE]
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    change: str


FINDINGS = schema_of(FindingRow)
FINDINGS_COMPARISON = schema_of(FindingsComparisonRow)
MOST_ROWS = 20
ALPHA = 0.05
"""The level of intervals where the config names none (`alpha`)."""


def findings_of(run: Run, classifier: str | None = None) -> list[GateCell]:
    return audit_of(run).findings_of(run, classifier)


def table_of(findings: Sequence[GateCell]) -> pa.Table:
    """Returns the findings as a table of `FINDINGS`; numbers that are not known are null."""
    rows = [
        {
            **{name: finding.values.get(name) for name in FINDINGS.names},
            "classifier": finding.classifier,
            "finding": finding.name,
        }
        for finding in findings
    ]
    return pa.Table.from_pylist(finite(rows), FINDINGS)


def summary(run: Run) -> Summary:
    findings = findings_of(run)
    rows = sorted(findings, key=_order)
    top_rows = rows[:MOST_ROWS]
    problems = Counter(finding.classifier for finding in findings if _is_problem(finding))
    return Summary(
        title=words.shown_of("Results", len(top_rows), len(rows)),
        columns=_COLUMNS,
        rows=[_texts(finding) for finding in top_rows],
        marks=["bad" if _is_problem(finding) else "" for finding in top_rows],
        lines=[f"{_tally(rows)}."],
        report=run.report,
        headline=_headline(rows),
        findings={finding.classifier: problems[finding.classifier] for finding in findings},
        to_json={"run": run.path, "report": run.report, "findings": table_of(findings).to_pylist()},
    )


def _tally(findings: Sequence[GateCell]) -> str:
    problems = sum(map(_is_problem, findings))
    return f"{words.plural(problems, 'finding')} among {words.plural(len(findings), 'result')}"


def _headline(rows: Sequence[GateCell]) -> str:
    """Returns the first finding where that is a problem, and the tally; `rows`: findings in the order of `_order`."""
    if not rows or not _is_problem(rows[0]):
        return _tally(rows)
    return f"{clean(rows[0].name)}: {_number(rows[0].values.get('value'))}. {_tally(rows)}"


_COLUMNS = (
    Column("finding"),
    Column("classifier"),
    Column("verdict"),
    *(Column(name, number=True) for name in ("value", "interval", "n")),
    Column("doubt"),
)


def _is_problem(finding: GateCell) -> bool:
    return finding.values.get("verdict") in PROBLEMS and not finding.values.get("doubt")


def _order(finding: GateCell) -> tuple[bool, float]:
    """Sorts problems first, then by falling value; unknown values come last."""
    value = finding.values.get("value")
    return not _is_problem(finding), np.inf if value is None or value != value else -value


def _texts(finding: GateCell) -> tuple[str, ...]:
    values = finding.values
    low, high = _number(values.get("value_low")), _number(values.get("value_high"))
    return (
        clean(finding.name),
        clean(finding.classifier),
        str(values.get("verdict") or words.UNKNOWN),
        _number(values.get("value")),
        words.UNKNOWN if words.UNKNOWN in (low, high) else f"{low} to {high}",
        words.count(int(values.get("n") or 0)),
        clean(str(values.get("doubt") or "")),
    )


def _number(value: float | None) -> str:
    return words.UNKNOWN if value is None or value != value else f"{value:.4g}".replace("-", words.MINUS)


def _signed(value: float) -> str:
    """Returns a difference to as many digits as the values: nobody knows their unit, so decimals might hide it."""
    return f"{'+' if value > 0 else ''}{_number(value)}"


def write_report(run: Run) -> str:
    """Writes report.html, whole or not at all; returns its path."""
    audit, config = audit_of(run), run.config
    findings = sorted(findings_of(run), key=_order)
    counts = {name: name.replace("_", " ") for name in audit.tables}
    method = method_of(run.manifest, tuple(times(run.manifest)), counts, f"{audit.command} {audit.name}.yaml")
    rows = [_texts(finding) for finding in findings]
    columns = [Column(column.name.capitalize(), column.number) for column in _COLUMNS]
    table = Table(columns, rows, "Results", style="open", sortable=True, filtered="Results", most=40)
    page = Page(
        title=clean(str(getattr(config, "task", None) or getattr(config, "name", None) or audit.name)),
        suffix=audit.question,
        kicker=audit.question,
        head=[Paragraph(f"{_headline(findings)}.", "tally")],
        sections=(
            Section("Results", [table if rows else Paragraph("Nothing was measured.")]),
            made(method, f"{audit.name}.yaml"),
        ),
    )
    files.write_bytes(run.report, page.html().encode())
    return run.report


def csv(run: Run, classifier: str | None = None) -> bytes:
    return csv_of(_exported(run, classifier))


def parquet(run: Run, classifier: str | None = None) -> bytes:
    return parquet_of(_exported(run, classifier))


def json(run: Run, classifier: str | None = None) -> bytes:
    """One object: the run's id, its settings and models, and its findings."""
    return json_of({**about(run), "findings": _exported(run, classifier).to_pylist()})


def _exported(run: Run, classifier: str | None) -> pa.Table:
    """Returns the findings of a classifier, or all (None). Raises ConfigError for one that has no finding."""
    chosen = None if classifier is None else one_of(_classifiers_of(run), classifier, Argument.CLASSIFIER, run.path)
    return exported(table_of(findings_of(run, chosen)))


EXPORTS: Mapping[str, Callable[[Run, str | None], bytes]] = MappingProxyType(
    {"csv": csv, "json": json, "parquet": parquet}
)


def compare(run_a: Run, run_b: Run, classifier_a: str | None = None, classifier_b: str | None = None) -> Comparison:
    """Compares the findings of the same name, B against A, or of two classifiers of one run.

    The difference of two values has the MOVER interval of Zou & Donner (2008) from both intervals, for independent
    samples: conservative where both saw the same images. Intervals are taken to be of level 1 - `alpha` of the config,
    by default 0.05; runs with another alpha are refused. Changes are those with q at most alpha (Benjamini & Hochberg
    1995) over all that can be compared.

    Raises ConfigError where it is unclear which classifiers are meant; RunError for runs that differ in the fields that
    the audit declares as `same`, or without a finding in common.
    """
    audit = audit_of(run_a)
    a, b = compared_names((run_a, run_b), (classifier_a, classifier_b), _classifiers_of, _check_same)
    alpha = _alpha_of(run_a)
    findings_of_a, findings_of_b = (
        {finding.name: finding for finding in findings_of(run, name_of_classifier)}
        for run, name_of_classifier in ((run_a, a), (run_b, b))
    )
    rows = [
        _row(name, findings_of_a[name], findings_of_b[name], alpha) for name in findings_of_a if name in findings_of_b
    ]
    if not any(row["p_value"] is not None for row in rows):
        raise RunError(
            f"{run_a.path} and {run_b.path} have no finding in common that can be compared; run {audit.command} for "
            "both with the same settings"
        )
    decide(rows, alpha)
    rows.sort(key=importance)
    cells = pa.Table.from_pylist(finite(rows), FINDINGS_COMPARISON)
    return Comparison((run_a.path, run_b.path), (a, b), alpha, cells, PAGES, [_gated(b, row) for row in rows])


def _classifiers_of(run: Run) -> list[str]:
    return list(dict.fromkeys(finding.classifier for finding in findings_of(run)))


def _check_same(run_a: Run, run_b: Run) -> None:
    audit = audit_of(run_a)
    why = f"their findings mean different things: run {audit.command} for both with the same settings"
    refuse(run_a, run_b, differing(run_a, run_b, audit.same), why)
    if _alpha_of(run_a) != _alpha_of(run_b):
        why = f"their intervals are of different levels: run {audit.command} for both with the same alpha"
        refuse(run_a, run_b, ["alpha"], why)


def _alpha_of(run: Run) -> float:
    return float(getattr(run.config, "alpha", ALPHA))


def _row(name: str, a: GateCell, b: GateCell, alpha: float) -> FindingsComparisonRow:
    estimate_a, estimate_b, row = _estimate(a), _estimate(b), compared()
    if np.isfinite(
        [estimate_a.value, estimate_a.low, estimate_a.high, estimate_b.value, estimate_b.low, estimate_b.high]
    ).all():
        low, high, p_value = difference_of_estimates(estimate_b, estimate_a, 1 - alpha, paired=False)
        row = compared(estimate_b.value - estimate_a.value, low, high, p_value)
    return {
        **row,
        "finding": name,
        "verdict_a": a.values.get("verdict"),
        "verdict_b": b.values.get("verdict"),
        "value_a": a.values.get("value"),
        "value_b": b.values.get("value"),
        "n_a": int(a.values.get("n") or 0),
        "n_b": int(b.values.get("n") or 0),
    }


def _estimate(finding: GateCell) -> SampledEstimate:
    """Returns a finding's value with its interval; NaN where it is unknown or in doubt."""
    values = (finding.values.get(name) for name in ("value", "value_low", "value_high"))
    value, low, high = (np.nan if number is None or finding.values.get("doubt") else float(number) for number in values)
    return SampledEstimate(value, low, high, np.array([np.nan]))


def _gated(classifier: str, row: FindingsComparisonRow) -> GateCell:
    """Returns the finding for gates. `verdict`, `value` and `n` are B's."""
    values = {**row, "verdict": row["verdict_b"], "value": row["value_b"], "n": row["n_b"]}
    values["pairs"] = 0 if row["p_value"] is None else min(row["n_a"], row["n_b"])
    return GateCell(classifier, row["finding"], values)


def _compared_texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        clean(row["finding"]),
        _number(row["value_a"]),
        _number(row["value_b"]),
        *difference_texts(row, _signed),
    )


PAGES = Pages(
    kicker="Two runs compared",
    title="What changed from A to B",
    caption="Values of the findings that both have, the surest difference first",
    terms=(
        "Findings of the same name are compared. The interval of a difference follows from both intervals (MOVER, "
        "Zou & Donner 2008), as of independent samples. **Larger** and **smaller** where q is at most {alpha}, "
        "adjusted for the false discovery rate over all that can be compared (Benjamini & Hochberg 1995).",
    ),
    titles={"worse": "Larger", "better": "Smaller", "undetermined": "Undetermined"},
    headings=(
        Heading("finding"),
        Heading("A", number=True),
        Heading("B", number=True),
        *DIFFERENCE,
    ),
    texts=_compared_texts,
    rising=True,
)


def estimate(audit: Audit, file: str) -> Summary:
    """Returns the most images that models answer about in a run of this file."""
    images = audit.images_at_most(audit.config_file.read(file).model_dump())
    line = "The file does not say how many images." if images is None else f"At most {words.plural(images, 'image')}."
    return Summary("", [], [], [], [line], to_json={"images_at_most": images})
