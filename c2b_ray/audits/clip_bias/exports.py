"""Exports a run of `c2b clip-bias` as one document for other programs. It composes runs and formats, and knows
neither."""

from __future__ import annotations

from c2b_ray.audits.clip_bias.report import export
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.errors import Argument, ConfigError, RunError, nearest


def csv(run: ClipBiasRun, model: str | None) -> bytes:
    return export.csv(*_measured(run, model))


def json(run: ClipBiasRun, model: str | None) -> bytes:
    return export.json(*_measured(run, model))


def parquet(run: ClipBiasRun, model: str | None) -> bytes:
    return export.parquet(*_measured(run, model))


def _measured(run: ClipBiasRun, model: str | None) -> tuple[ClipBiasRun, str | None]:
    """Returns the run and the chosen model; None: all. Raises RunError for a run without biases."""
    if not run.has("clip_bias"):
        raise RunError(f"{run.path}: nothing is measured yet; run its c2b clip-bias to the end", run=run.path)
    known = run.biases["model"].unique().to_pylist()
    if model is not None and model not in known:
        raise ConfigError(Argument.CLASSIFIER, f"{run.path} has no model {model!r}; {nearest(model, known)}")
    return run, model
