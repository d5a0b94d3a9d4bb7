"""`c2b compare` and `c2b gate`: compares two classifiers, and checks conditions that must not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from c2b_ray.audits.gate import ALLOW, ALLOW_BEFORE, EVERY_CELL, OPTION, Check, failed, junit
from c2b_ray.cli import show
from c2b_ray.cli.progress import Log, log_run, trackers
from c2b_ray.errors import ConfigError
from c2b_ray.report import words
from c2b_ray.storage import files
from c2b_ray.storage.run import load_run

if TYPE_CHECKING:
    from c2b_ray.audits.runs import Comparison

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        OPTION,
        metavar="GATE",
        help="Exit 1 if this holds of a cell: worse, against, phi<-0.2, bus/weather/fog:worse; of a caption: "
        "failure, rate>0.01, fly/bee/*:failure; of a direction: found; of a CLIP's bias: value_low>0.01, "
        "people/kl_recall@5/*:q_value<0.05; of an evaluation: C2B/tested/*:hit<0.3. Repeatable.",
    ),
]
Junit = Annotated[str | None, typer.Option("--junit", metavar="FILE", help="Write the gates' checks as JUnit XML.")]
AllowUnchecked = Annotated[
    bool,
    typer.Option(
        ALLOW,
        ALLOW_BEFORE,
        help="Pass a gate if none of its cells could be checked (no images, in doubt) or decided (all undetermined).",
    ),
]
MOST_ROWS = 15
UNDECIDED = ("verdict is undetermined", "change is undetermined")


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A run directory.")],
    b: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Another run directory. Default: A, with two classifiers.")
    ] = None,
    classifier_a: Annotated[str | None, typer.Option(metavar="SPEC", help="The classifier of A.")] = None,
    classifier_b: Annotated[str | None, typer.Option(metavar="SPEC", help="The classifier of B.")] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="A directory for comparison.parquet and .html.")
    ] = None,
    as_json: Json = False,
    fail_on: FailOn = None,
    junit_file: Junit = None,
    allow_unchecked: AllowUnchecked = False,
) -> None:
    """Compare two classifiers on identical images: what improved and what got worse from A to B."""
    from c2b_ray.audits.runs import compare as run_compare

    check_options(fail_on, junit_file)
    comparison = run_compare(a, b, classifier_a, classifier_b)
    checks = comparison.check(fail_on or [], allow_unchecked)
    page = comparison.write(out) if out else None
    _write_junit(junit_file, "c2b compare", checks, comparison.properties())
    if as_json:
        gate_results = {"page": page, "failed": failed(checks), "gates": [check.to_json() for check in checks]}
        show.print_json({**comparison.to_json(), **gate_results})
    else:
        _print(comparison, page)
        _print_checks(checks)
    if failed(checks):
        raise typer.Exit(1)


def gate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    fail_on: FailOn = None,
    classifier: Annotated[str | None, typer.Option(metavar="SPEC", help="One classifier. Default: all.")] = None,
    log: Log = None,
    as_json: Json = False,
    junit_file: Junit = None,
    allow_unchecked: AllowUnchecked = False,
) -> None:
    """Check a run's results against conditions that must not hold; exit 1 if one does."""
    from c2b_ray.audits.runs import check

    if not fail_on:
        raise ConfigError(OPTION, "name a condition that must not hold, such as against or phi<-0.2")
    check_options(fail_on, junit_file)
    logs = trackers(log)
    loaded = load_run(run)
    checks = check(loaded, fail_on, classifier, allow_unchecked)
    _write_junit(junit_file, "c2b gate", checks, {"run": run})
    if as_json:
        show.print_json({"run": run, "failed": failed(checks), "gates": [c.to_json() for c in checks]})
    else:
        _print_checks(checks)
    log_run(loaded, logs, checks)
    if failed(checks):
        raise typer.Exit(1)


def check_options(fail_on: list[str] | None, junit_file: str | None) -> None:
    if junit_file == "":  # an unset variable in CI: the checks would be written nowhere
        raise ConfigError("--junit", "names no file; name one, or omit the option")
    if junit_file and not fail_on:
        raise ConfigError("--junit", f"holds the checks of gates, so it needs {OPTION}")


def _write_junit(path: str | None, suite: str, checks: Sequence[Check], properties: Mapping[str, str]) -> None:
    if path:
        files.write_under(path, junit(suite, checks, properties))


def _print(comparison: Comparison, page: str | None) -> None:
    for summary in comparison.summaries():
        if summary.rows:
            show.out().print(show.summary_table(summary))
        for text in summary.lines:
            show.line(text)
    if page:
        show.line(f"comparison: {page}")


def _print_checks(checks: Sequence[Check]) -> None:
    """Prints a line per gate, and below it the cells that fail it."""
    console = show.out()
    has_several = len({check.classifier for check in checks}) > 1
    for gate_text in dict.fromkeys(check.gate for check in checks):
        of_gate = [check for check in checks if check.gate == gate_text]
        counts = Counter(check.outcome for check in of_gate)
        word = "[bold red]failed[/]" if counts["failed"] else "[green]passed[/]"
        of_cells = Counter(check.outcome for check in of_gate if check.cell != EVERY_CELL)
        undecided = sum(check.outcome == "passed" and check.message in UNDECIDED for check in of_gate)
        others = {"unknown": counts["skipped"], "undetermined": undecided}
        rest = "".join(f", {words.count(number)} {name}" for name, number in others.items() if number)
        cells = f"{words.count(of_cells['failed'])} of {words.plural(of_cells.total(), 'cell')}"
        console.print(f"{word} {escape(gate_text)}: {cells}{rest}", soft_wrap=True)
        failing = [check for check in of_gate if check.outcome == "failed"]
        for check in failing[:MOST_ROWS]:
            suffix = f" ({check.classifier})" if has_several else ""
            console.print(f"  {escape(check.cell + suffix)}: {escape(check.message)}", soft_wrap=True)
        if len(failing) > MOST_ROWS:
            console.print(f"  and {words.count(len(failing) - MOST_ROWS)} more")
