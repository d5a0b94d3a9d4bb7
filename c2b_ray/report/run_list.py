"""The index page of many runs, one HTML document for any web server: a row a run with a link to its report, and the
history of each classifier.

It knows runs as they are listed, not their tables. Paths are shown relative to the folder that was listed, and linked
relative to the page.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Article,
    Bar,
    Cell,
    Cells,
    Page,
    Paragraph,
    Section,
    Segment,
    Table,
    marked,
    spec,
)
from c2b_ray.report.page import STYLES
from c2b_ray.report.redact import clean, clean_setting, names_of
from c2b_ray.report.words import Column, Span
from c2b_ray.storage import is_remote
from c2b_ray.storage.run import UNREADABLE, ListedRun

MOST_ROWS = 100
"""Rows that show at first; a filter looks through all."""
MOST_RUNS = 5000
"""Rows of the page, which is then below 5 MB."""
MOST_POINTS = 50
STATES = {"running": "not finished"}


def index_page(runs: Sequence[ListedRun], title: str, page: str) -> str:
    """Returns the page as HTML. `page`: where it will lie, from which links to reports begin."""
    names = names_of([spec for run in runs for spec in run.classifiers.values()])
    unreadable = sum(run.state == UNREADABLE for run in runs)
    tally = words.plural(len(runs), "run") + (f", {words.count(unreadable)} unreadable" if unreadable else "")
    return Page(
        title=clean_setting(title),
        suffix="runs",
        kicker="Runs of c2b-ray",
        head=[Paragraph(tally, "tally")],
        sections=[Section("All runs", [_table(runs, names, page)]), *_histories(runs, names, page)],
        styles=(*STYLES, "runs.css"),
    ).html()


def _table(runs: Sequence[ListedRun], names: Mapping[str, str], page: str) -> Table | Paragraph:
    if not runs:
        return Paragraph(marked("There is no run here. `c2b audit audit.yaml --out runs/NAME` makes one."))
    older = f"And {words.count(len(runs) - MOST_RUNS)} older runs, which `c2b runs --json` lists."
    return Table(
        [*(Column(name) for name in ("Run", "Date", "Kind", "State", "Of", "Result")), Column("Findings", number=True)],
        [_row(run, names, page) for run in runs[:MOST_RUNS]],
        name="All runs",
        style="runs",
        caption="The newest first. A name leads to the run's report.",
        sortable=True,
        filtered="runs",
        most=MOST_ROWS,
        more=marked(older) if len(runs) > MOST_RUNS else "",
    )


def _row(run: ListedRun, names: Mapping[str, str], page: str) -> Cells:
    return (
        _linked(run, page),
        Cell(run.date[:10], value="".join(filter(str.isdigit, run.date[:19]))),
        run.kind,
        STATES.get(run.state, run.state),
        ", ".join(dict.fromkeys(names[spec] for spec in run.classifiers.values())),
        clean(". ".join(filter(None, (run.headline, run.problem)))),
        words.count(sum(run.findings.values())) if run.findings else "",
    )


def _linked(run: ListedRun, page: str) -> Cell:
    return Cell(run.name, link=_link(run, page) if run.report else "")


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


def _histories(runs: Sequence[ListedRun], names: Mapping[str, str], page: str) -> list[Section]:
    """Returns the history of each classifier, by its spec, and kind of run of which there are several."""
    runs_of: dict[tuple[str, str], list[tuple[ListedRun, int]]] = {}
    for run in sorted(runs, key=lambda run: run.date):
        for name, spec_of in run.classifiers.items():
            if name in run.findings:
                runs_of.setdefault((spec_of, run.kind), []).append((run, run.findings[name]))
    articles = [
        Article((spec(names[classifier]), Span(f" {kind}")), [_history(history, page)])
        for (classifier, kind), history in sorted(runs_of.items())
        if len(history) > 1
    ]
    text = (
        "Findings by date, of classifiers with several runs of one kind. Two numbers compare where the runs asked the "
        "same of the classifier; `c2b compare` tests what changed."
    )
    intro = Paragraph(marked(text), "intro")
    return [Section("History of each classifier", [intro, *articles])] if articles else []


def _history(history: Sequence[tuple[ListedRun, int]], page: str) -> Table:
    """Returns one classifier's runs of one kind, the oldest first, of which the last are shown."""
    largest = max(findings for _, findings in history) or 1
    rows: list[Cells] = []
    for number, (run, findings) in list(enumerate(history))[-MOST_POINTS:]:
        change = findings - history[number - 1][1] if number else 0
        text = "" if not number else f"{change:+d}".replace("-", words.MINUS) if change else "±0"
        bar = Bar([Segment("against", str(round(100 * findings / largest)))])
        rows.append((run.date[:10], _linked(run, page), str(findings), text, bar))
    return Table(
        [
            Column("Date"), Column("Run"), Column("Findings", number=True), Column("Change", number=True),
            Column("Findings as a bar", hidden=True),
        ],
        rows,
        style="",
        more=f"And {words.count(len(history) - MOST_POINTS)} earlier ones." if len(history) > MOST_POINTS else "",
    )  # fmt: skip
