"""A run as one document for other programs or a model card. It composes runs and formats, and knows neither."""

from __future__ import annotations

from pathlib import Path

from c2b_ray.commands.compare import one_of
from c2b_ray.errors import ConfigError, RunError, nearest
from c2b_ray.report.c2b.export import FORMATS
from c2b_ray.report.c2b.model_card import model_card
from c2b_ray.store.run import Run, load_run

MODEL_CARD = "model-card"


def export(run: str | Path | Run, form: str, classifier: str | None = None) -> bytes:
    """`form`: csv, json, parquet, failures or model-card; `classifier`: whose model card, where the run has several.

    RunError for a run without scores, ConfigError for another format or where it is not plain which classifier.
    """
    if form not in (*FORMATS, MODEL_CARD):
        raise ConfigError("--format", f"{form!r} is no format; {nearest(form, [*FORMATS, MODEL_CARD])}")
    loaded = run if isinstance(run, Run) else load_run(run)
    if not loaded.has("scores"):
        raise RunError(f"{loaded.path}: the run has no scores yet; run its c2b audit to the end")
    if form == MODEL_CARD:
        return model_card(loaded, one_of(loaded, classifier, "--classifier")).encode()
    return FORMATS[form](loaded)
