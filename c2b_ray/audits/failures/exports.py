"""Exports a run of `c2b failures` as a document for other programs. It composes runs and formats, and knows neither."""

from __future__ import annotations

from c2b_ray.audits.failures.comparison import classifiers_of
from c2b_ray.audits.failures.report import export
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.kit.models import one_of
from c2b_ray.errors import Argument, RunError


def csv(run: FailuresRun, classifier: str | None) -> bytes:
    return export.csv(*_tested(run, classifier))


def json(run: FailuresRun, classifier: str | None) -> bytes:
    return export.json(*_tested(run, classifier))


def parquet(run: FailuresRun, classifier: str | None) -> bytes:
    return export.parquet(*_tested(run, classifier))


def _tested(run: FailuresRun, classifier: str | None) -> tuple[FailuresRun, str | None]:
    """Returns the run, and the classifier to export; None: all. RunError for a run without hypotheses."""
    if not run.has("hypotheses"):
        raise RunError(f"{run.path}: the run has no hypotheses yet; run its c2b failures to the end", run=run.path)
    return run, None if classifier is None else one_of(classifiers_of(run), classifier, Argument.CLASSIFIER, run.path)
