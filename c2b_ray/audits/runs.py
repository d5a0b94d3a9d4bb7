"""Operations on runs of any kind: report, summary, exports, gates, a comparison with another, an index of many.

It calls the run's audit (`audits.audit`) and knows none. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from c2b_ray.audits.audit import audit_of
from c2b_ray.audits.gate import Check
from c2b_ray.report.run_list import index_page
from c2b_ray.report.words import Summary
from c2b_ray.storage import files
from c2b_ray.storage.run import Run, finished, load_run
from c2b_ray.storage.run_list import ListedRun, list_runs


class Comparison(Protocol):
    """Two classifiers compared, whatever the kind of their runs. `cells`: a table with a row for everything that
    changed or may have changed, with a column `change`."""

    @property
    def cells(self) -> pa.Table: ...

    def check(self, fail_on: Sequence[str], allow_unchecked: bool = False) -> list[Check]:
        """Checks gates on how cells changed."""
        ...

    def page(self) -> str:
        """Returns the comparison as one HTML page."""
        ...

    def write(self, out: str | Path) -> str:
        """Writes comparison.parquet and comparison.html into a directory; returns the page's path."""
        ...

    def properties(self) -> dict[str, str]:
        """Returns what was compared, and at which levels."""
        ...

    def summaries(self) -> list[Summary]:
        """Returns the summaries that a terminal shows, in this order."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Returns the comparison for programs."""
        ...


def write_report(run: str | Path | Run) -> str:
    """Writes the run's report.html again; returns its path."""
    loaded = run if isinstance(run, Run) else load_run(run)
    return audit_of(loaded).write_report(loaded)


def summary(run: Run) -> Summary:
    """Returns a run's summary for a terminal."""
    result: Summary = audit_of(run).summarise(run)
    return result


def export(run: str | Path | Run, form: str, classifier: str | None = None) -> bytes:
    """Returns a run as one document, in a format of its kind. `classifier`: needed for formats of a single classifier.

    Raises RunError for a run that holds nothing to export yet, ConfigError for another format or where it is unclear
    which classifier is meant.
    """
    loaded = run if isinstance(run, Run) else load_run(run)
    return audit_of(loaded).export(loaded, form, classifier)


def check(
    run: str | Path | Run, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[Check]:
    """Checks gates on one run, on all its classifiers or on one.

    A gate that could be checked on nothing fails, unless `allow_unchecked`. Raises RunError for a run that is not
    finished.
    """
    loaded = finished(run)
    return audit_of(loaded).check_gates(loaded, fail_on, classifier, allow_unchecked)


def compare(
    a: str | Path | Run,
    b: str | Path | Run | None = None,
    classifier_a: str | None = None,
    classifier_b: str | None = None,
) -> Any:
    """Compares two classifiers on identical images: B against A. For C2B runs, see `audits.c2b.comparison.compare`.

    `a`, `b`: runs of one kind, or their directories; without `b`, two classifiers of one run. Raises RunError for runs
    that are not finished, ConfigError for runs of different kinds.
    """
    run_a = finished(a)
    run_b = run_a if b is None else finished(b)
    return audit_of(run_a).comparison(run_a, run_b, classifier_a, classifier_b)


def write_index(folder: str | Path, page: str | Path) -> list[ListedRun]:
    """Writes an index page of the runs in a folder and below, for any web server; returns them.

    `page`: the file, or a folder for index.html. Its links to reports are relative to it.
    """
    location = str(page)
    if not location.endswith((".html", ".htm")):
        location = f"{location.rstrip('/')}/index.html"
    runs = list_runs(folder)
    files.write_under(location, index_page(runs, str(folder), location).encode())
    return runs
