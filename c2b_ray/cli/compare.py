"""`c2b compare` and `c2b gate`: two classifiers compared, and conditions that a build must not meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from c2b_ray.cli import show
from c2b_ray.errors import ConfigError
from c2b_ray.steps.gate import ALLOW, OPTION, Check, failed
from c2b_ray.store import files

if TYPE_CHECKING:
    from c2b_ray.audits.c2b.comparison import Comparison

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        OPTION,
        metavar="GATE",
        help="Exit 1 where this holds of a cell: worse, against, phi<-0.2, bus/weather/fog:worse; of a caption: "
        "failure, rate>0.01, fly/bee/*:failure. Again for more.",
    ),
]
Junit = Annotated[str | None, typer.Option("--junit", metavar="FILE", help="Write the gates' checks as JUnit XML.")]
AllowUnchecked = Annotated[
    bool, typer.Option(ALLOW, help="Let a gate pass of which no cell could be checked: no images, or all in doubt.")
]
MOST_ROWS = 15
STYLES = {"worse": "bold red", "better": "bold green"}


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A run directory.")],
    b: Annotated[str | None, typer.Argument(metavar="[B]", help="Another; by default A, with two classifiers.")] = None,
    classifier_a: Annotated[str | None, typer.Option(metavar="SPEC", help="Which classifier of A.")] = None,
    classifier_b: Annotated[str | None, typer.Option(metavar="SPEC", help="Which classifier of B.")] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Write comparison.parquet and .html there.")] = None,
    as_json: Json = False,
    fail_on: FailOn = None,
    junit_file: Junit = None,
    allow_unchecked: AllowUnchecked = False,
) -> None:
    """Compare two classifiers on identical images: what got better, what got worse, from A to B."""
    from c2b_ray.commands.runs import compare as run_compare

    _checked_options(fail_on, junit_file)
    comparison = run_compare(a, b, classifier_a, classifier_b)
    checks = comparison.check(fail_on or [], allow_unchecked)
    page = comparison.write(out) if out else None
    _write_junit(junit_file, "c2b compare", checks, _properties(comparison))
    if as_json:
        show.print_json(_jsonable(comparison, checks, page))
    else:
        _print(comparison, page)
        _print_checks(checks)
    if failed(checks):
        raise typer.Exit(1)


def gate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    fail_on: FailOn = None,
    classifier: Annotated[str | None, typer.Option(metavar="SPEC", help="One classifier; by default all.")] = None,
    as_json: Json = False,
    junit_file: Junit = None,
    allow_unchecked: AllowUnchecked = False,
) -> None:
    """Check a run's scores or hypotheses against conditions that must not hold; exit 1 where one does."""
    from c2b_ray.commands.runs import check

    if not fail_on:
        raise ConfigError(OPTION, "name what must not be, such as against or phi<-0.2")
    _checked_options(fail_on, junit_file)
    checks = check(run, fail_on, classifier, allow_unchecked)
    _write_junit(junit_file, "c2b gate", checks, {"run": run})
    if as_json:
        show.print_json({"run": run, "failed": failed(checks), "gates": [asdict(c) for c in checks]})
    else:
        _print_checks(checks)
    if failed(checks):
        raise typer.Exit(1)


def _checked_options(fail_on: list[str] | None, junit_file: str | None) -> None:
    if junit_file == "":  # an unset variable of a build, whose checks would be written nowhere
        raise ConfigError("--junit", "names no file; name one, or leave the option out")
    if junit_file and not fail_on:
        raise ConfigError("--junit", f"holds the checks of gates, so it needs {OPTION}")


def _properties(comparison: Comparison) -> dict[str, str]:
    return {
        "classifier_a": comparison.classifier_a,
        "classifier_b": comparison.classifier_b,
        "tau": str(comparison.tau),
        "alpha": str(comparison.alpha),
    }


def _write_junit(path: str | None, suite: str, checks: Sequence[Check], properties: Mapping[str, str]) -> None:
    if path:
        from c2b_ray.report.kit.junit import junit

        files.write_under(path, junit(suite, checks, properties))


def _jsonable(comparison: Comparison, checks: Sequence[Check], page: str | None) -> dict[str, Any]:
    rows = comparison.cells.to_pylist()
    return {
        "a": comparison.run_a.path,
        "b": comparison.run_b.path,
        "classifier_a": comparison.classifier_a,
        "classifier_b": comparison.classifier_b,
        "tau": comparison.tau,
        "alpha": comparison.alpha,
        "changes": {
            name: sum(r["change"] == name for r in rows) for name in ("worse", "better", "same", "undetermined")
        },
        "left_out": {name: sum(row[name] for row in rows) for name in ("unshared", "unanswered")},
        "cells": rows,
        "pooled": comparison.pooled.to_pylist(),
        "page": page,
        "failed": failed(checks),
        "gates": [asdict(check) for check in checks],
    }


def _print(comparison: Comparison, page: str | None) -> None:
    from c2b_ray.report.comparison.disagreements import image_lines
    from c2b_ray.report.comparison.page import by_change, left_out, pooled_lines, tally

    console = show.out()
    rows = comparison.cells.to_pylist()
    console.print(f"A: {escape(comparison.classifier_a)}\nB: {escape(comparison.classifier_b)}", soft_wrap=True)
    for change in STYLES:
        chosen = by_change(rows, change)
        if chosen:
            console.print(_table(f"Got {change}", chosen, STYLES[change]))
    for line in image_lines(comparison.cells, comparison.disagreements(), comparison.run_b)[:MOST_ROWS]:
        show.line(line)
    for line in pooled_lines(comparison.pooled.to_pylist()):
        console.print(escape(line), soft_wrap=True)
    console.print(tally(rows))
    if line := left_out(rows):
        console.print(escape(line))
    if page:
        show.line(f"comparison: {page}")


def _table(title: str, rows: Sequence[Mapping[str, Any]], style: str) -> Table:
    table = Table(title=f"{title} ({min(MOST_ROWS, len(rows))} of {len(rows)})", title_justify="left")
    for name in ("class", "attribute", "value"):
        table.add_column(name, overflow="fold")
    for name in ("A right", "B right", "difference", "interval", "change of φ", "n"):
        table.add_column(name, justify="right")
    for row in rows[:MOST_ROWS]:
        table.add_row(
            *(escape(row[name]) for name in ("target_class", "attribute", "bias_class")),
            f"{row['accuracy_a']:.0%}",
            f"{row['accuracy_b']:.0%}",
            f"[{style}]{row['difference']:+.2f}[/]",
            f"{row['difference_low']:+.2f} … {row['difference_high']:+.2f}",
            f"{row['phi_difference']:+.2f}",
            str(row["n"]),
        )
    return table


def _print_checks(checks: Sequence[Check]) -> None:
    """A line per gate; beneath it the cells that fail it."""
    console = show.out()
    several = len({check.classifier for check in checks}) > 1
    for gate_text in dict.fromkeys(check.gate for check in checks):
        of_gate = [check for check in checks if check.gate == gate_text]
        of = Counter(check.outcome for check in of_gate)
        word = "[bold red]failed[/]" if of["failed"] else "[green]passed[/]"
        unknown = f", {of['skipped']} not known" if of["skipped"] else ""
        console.print(f"{word} {escape(gate_text)}: {of['failed']} of {len(of_gate)} cells{unknown}", soft_wrap=True)
        failing = [check for check in of_gate if check.outcome == "failed"]
        for check in failing[:MOST_ROWS]:
            whose = f" ({check.classifier})" if several else ""
            console.print(f"  {escape(check.cell + whose)}: {escape(check.message)}", soft_wrap=True)
        if len(failing) > MOST_ROWS:
            console.print(f"  and {len(failing) - MOST_ROWS} more")
