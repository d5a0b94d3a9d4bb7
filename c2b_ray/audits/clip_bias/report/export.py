"""The biases of a run of `c2b clip-bias` and their correlations, in the formats that other programs read.

CSV and Parquet hold the biases; JSON has the other tables too.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.errors import Argument, ConfigError, RunError, nearest
from c2b_ray.report.export import about, csv_of, exported, json_of, parquet_of

SETTINGS = ("recall_k", "hit", "skew_k", "skew_share", "skew_rule", "groups", "amplification", "leakage", "window",
            "chance", "alpha", "seed")  # fmt: skip


def csv(run: ClipBiasRun, model: str | None = None) -> bytes:
    return csv_of(exported(_biases(run, model)))


def parquet(run: ClipBiasRun, model: str | None = None) -> bytes:
    return parquet_of(exported(_biases(run, model)))


def json(run: ClipBiasRun, model: str | None = None) -> bytes:
    """One object: the run's id, its settings, its models, and a row per bias and correlation."""
    correlations = {
        name: exported(run.read(name)).to_pylist() for name in ("transfer", "locality", "model_pairs", "convergence")
    }
    return json_of({**about(run, SETTINGS), "biases": exported(_biases(run, model)).to_pylist(), **correlations})


def _biases(run: ClipBiasRun, model: str | None) -> pa.Table:
    """Returns the biases of a model, or of all (None). Raises RunError for a run without any."""
    if not run.has("clip_bias"):
        raise RunError(f"{run.path}: nothing is measured yet; run its c2b clip-bias to the end", run=run.path)
    known = run.biases["model"].unique().to_pylist()
    if model is not None and model not in known:
        raise ConfigError(Argument.CLASSIFIER, f"{run.path} has no model {model!r}; {nearest(model, known)}")
    return run.biases if model is None else run.biases.filter(pc.equal(run.biases["model"], model))
