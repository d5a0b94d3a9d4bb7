"""What can be done with a run of any kind: its report, summary, exports, gates, and a comparison with another.

It asks the run's kind (`store.kinds`) and knows none. Nothing here needs Ray or a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from c2b_ray.report.kit.summary import Summary
from c2b_ray.steps.gate import Check
from c2b_ray.store.run import Run, finished, load_run


class Comparison(Protocol):
    """Two classifiers compared, whatever the kind of their runs. `cells`: a table with a row for all that changed or
    may have, `change` among its columns."""

    @property
    def cells(self) -> pa.Table: ...

    def check(self, fail_on: Sequence[str], allow_unchecked: bool = False) -> list[Check]:
        """Gates on how cells changed."""
        ...

    def page(self) -> str:
        """The comparison as one HTML page."""
        ...

    def write(self, out: str | Path) -> str:
        """Writes comparison.parquet and comparison.html into a directory; the page's path."""
        ...

    def properties(self) -> dict[str, str]:
        """What was compared, at which levels."""
        ...

    def summaries(self) -> list[Summary]:
        """What a terminal shows, in this order."""
        ...

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        ...


def write_report(run: str | Path | Run) -> str:
    """Writes the run's report.html anew; its path."""
    loaded = run if isinstance(run, Run) else load_run(run)
    return loaded.kind.write_report(loaded)


def summary(run: Run) -> Summary:
    """What a terminal shows of a run."""
    result: Summary = run.kind.summarise(run)
    return result


def export(run: str | Path | Run, form: str, classifier: str | None = None) -> bytes:
    """A run as one document, in a format of its kind. `classifier`: which, where the format is of a single one.

    RunError for a run that holds nothing to export yet, ConfigError for another format or where it is not plain which
    classifier is meant.
    """
    loaded = run if isinstance(run, Run) else load_run(run)
    return loaded.kind.export(loaded, form, classifier)


def check(
    run: str | Path | Run, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[Check]:
    """Gates on one run, of all its classifiers or of one. A gate that could be checked on nothing fails, unless
    `allow_unchecked`. RunError for a run that is not finished."""
    loaded = finished(run)
    checks: list[Check] = loaded.kind.check(loaded, fail_on, classifier, allow_unchecked)
    return checks


def compare(
    a: str | Path | Run,
    b: str | Path | Run | None = None,
    classifier_a: str | None = None,
    classifier_b: str | None = None,
) -> Any:
    """Compares two classifiers on identical images: B against A. `audits.c2b.comparison.compare` says it of C2B runs.

    `a`, `b`: runs of one kind, or their directories; without `b`, two classifiers of one run. RunError for runs that
    are not finished, ConfigError for two kinds.
    """
    run_a = finished(a)
    run_b = run_a if b is None else finished(b)
    return run_a.kind.comparison(run_a, run_b, classifier_a, classifier_b)
