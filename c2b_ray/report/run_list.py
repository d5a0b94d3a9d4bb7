"""The index page of many runs, one HTML document for any web server: a row a run with a link to its report, and the
history of each classifier.

It knows runs as they are listed, not their tables. Paths are shown relative to the folder that was listed, and linked
relative to the page.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from c2b_ray.report import words
from c2b_ray.report.page import STYLES, render
from c2b_ray.report.redact import clean, clean_setting, names_of
from c2b_ray.storage import is_remote
from c2b_ray.storage.run import UNREADABLE, ListedRun

MOST_ROWS = 100
"""Rows that show at first; a filter looks through all."""
MOST_RUNS = 5000
"""Rows of the page, which is then below 5 MB."""
MOST_POINTS = 50
STATES = {"running": "not finished"}


@dataclass(frozen=True)
class Line:
    """A row of the table of runs. `link`: the report's address relative to the page, "" where there is none; `order`:
    the time as a number, by which the page sorts."""

    name: str
    link: str
    kind: str
    state: str
    day: str
    order: str
    classifiers: str
    headline: str
    findings: str


@dataclass(frozen=True)
class RunPoint:
    """A run in a classifier's history. `share`: its findings of the most in this history, 0 to 100."""

    line: Line
    findings: int
    share: int
    change: str


@dataclass(frozen=True)
class History:
    """One classifier's runs of one kind, the oldest first; `earlier`: how many more there were before them."""

    classifier: str
    kind: str
    points: Sequence[RunPoint]
    earlier: str


@dataclass(frozen=True)
class Index:
    """The view of the page. `older`: how many runs it leaves out."""

    title: str
    tally: str
    older: str
    lines: Sequence[Line]
    histories: Sequence[History]
    most: int = MOST_ROWS


def index_page(runs: Sequence[ListedRun], title: str, page: str) -> str:
    """Returns the page. `page`: where it will lie, from which links to reports begin."""
    names = names_of([spec for run in runs for spec in run.classifiers.values()])
    lines = {run.path: _line(run, names, page) for run in runs}
    unreadable = sum(run.state == UNREADABLE for run in runs)
    tally = words.plural(len(runs), "run") + (f", {words.count(unreadable)} unreadable" if unreadable else "")
    older = words.count(len(runs) - MOST_RUNS) if len(runs) > MOST_RUNS else ""
    view = Index(clean_setting(title), tally, older, list(lines.values())[:MOST_RUNS], _histories(runs, lines, names))
    return render("runs.html.j2", view, (*STYLES, "runs.css"))


def _line(run: ListedRun, names: Mapping[str, str], page: str) -> Line:
    return Line(
        name=run.name,
        link=_link(run, page) if run.report else "",
        kind=run.kind,
        state=STATES.get(run.state, run.state),
        day=run.date[:10],
        order="".join(filter(str.isdigit, run.date[:19])),
        classifiers=", ".join(dict.fromkeys(names[spec] for spec in run.classifiers.values())),
        headline=clean(". ".join(filter(None, (run.headline, run.problem)))),
        findings=words.count(sum(run.findings.values())) if run.findings else "",
    )


def _link(run: ListedRun, page: str) -> str:
    """Returns the address of a run's report from the page; "" where they lie in different stores."""
    report = f"{run.path}/report.html"
    if is_remote(report) != is_remote(page):
        return ""
    if is_remote(report):
        (bucket, _, key), (of_page, _, page_key) = (
            text.removeprefix("s3://").partition("/") for text in (report, page)
        )
        if bucket != of_page:
            return ""
        report, page = f"/{key}", f"/{page_key}"
    # Every character that could begin a scheme or a query is escaped.
    return quote(os.path.relpath(os.path.abspath(report), os.path.dirname(os.path.abspath(page))), safe="/")


def _histories(runs: Sequence[ListedRun], lines: Mapping[str, Line], names: Mapping[str, str]) -> list[History]:
    """Returns a history for each classifier, by its spec, and kind of run of which there are several."""
    runs_of: dict[tuple[str, str], list[tuple[ListedRun, int]]] = {}
    for run in sorted(runs, key=lambda run: run.date):
        for name, spec in run.classifiers.items():
            if name in run.findings:
                runs_of.setdefault((spec, run.kind), []).append((run, run.findings[name]))
    return [
        History(
            names[spec],
            kind,
            _points(history_runs, lines)[-MOST_POINTS:],
            words.count(len(history_runs) - MOST_POINTS) if len(history_runs) > MOST_POINTS else "",
        )
        for (spec, kind), history_runs in sorted(runs_of.items())
        if len(history_runs) > 1
    ]


def _points(history_runs: Sequence[tuple[ListedRun, int]], lines: Mapping[str, Line]) -> list[RunPoint]:
    largest = max(findings for _, findings in history_runs) or 1
    previous: int | None = None
    points = []
    for run, findings in history_runs:
        change = (
            "" if previous is None else "±0" if findings == previous else f"{findings - previous:+d}".replace("-", "−")
        )
        points.append(RunPoint(lines[run.path], findings, round(100 * findings / largest), change))
        previous = findings
    return points
