"""Exports a C2B run as one document for other programs or a model card. It composes runs and formats, and knows
neither."""

from __future__ import annotations

from c2b_ray.audits.c2b.classifiers import one_of
from c2b_ray.errors import RunError
from c2b_ray.report.c2b import export, model_card
from c2b_ray.store.c2b_run import C2BRun


def csv(run: C2BRun, classifier: str | None) -> bytes:
    return export.scores_csv(*_scored(run, classifier))


def json(run: C2BRun, classifier: str | None) -> bytes:
    return export.scores_json(*_scored(run, classifier))


def parquet(run: C2BRun, classifier: str | None) -> bytes:
    return export.scores_parquet(*_scored(run, classifier))


def failures(run: C2BRun, classifier: str | None) -> bytes:
    return export.failures_csv(*_scored(run, classifier))


def perturbations(run: C2BRun, classifier: str | None) -> bytes:
    return export.perturbations_csv(*_scored(run, classifier))


def card(run: C2BRun, classifier: str | None) -> bytes:
    """Returns a model card. Raises ConfigError where the run has several classifiers and none is named."""
    _scored(run, None)
    return model_card.model_card(run, one_of(run, classifier, "--classifier")).encode()


def _scored(run: C2BRun, classifier: str | None) -> tuple[C2BRun, str | None]:
    """Returns the run and the chosen classifier; None: all. Raises RunError for a run without scores."""
    if not run.has("scores"):
        raise RunError(f"{run.path}: the run has no scores yet; run its c2b audit to the end", run=run.path)
    return run, None if classifier is None else one_of(run, classifier, "--classifier")
