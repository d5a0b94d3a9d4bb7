"""The biases of a run of `c2b clip-bias` and their correlations, in the formats that other programs read.

CSV and Parquet hold the biases; JSON has the other tables too. Knows columns; does not know the destination of an
export.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.report.export import about, csv_of, exported, json_of, parquet_of
from c2b_ray.storage.run import Run

SETTINGS = ("recall_k", "hit", "skew_k", "skew_share", "skew_rule", "groups", "amplification", "leakage", "window",
            "chance", "alpha", "seed")  # fmt: skip


def csv(run: Run, model: str | None = None) -> bytes:
    return csv_of(exported(_biases(run, model)))


def parquet(run: Run, model: str | None = None) -> bytes:
    return parquet_of(exported(_biases(run, model)))


def json(run: Run, model: str | None = None) -> bytes:
    """One object: the run's id, its settings, its models, and a row per bias and correlation."""
    several = {
        name: exported(run.read(name)).to_pylist() for name in ("transfer", "locality", "model_pairs", "convergence")
    }
    return json_of({**about(run, SETTINGS), "biases": exported(_biases(run, model)).to_pylist(), **several})


def _biases(run: Run, model: str | None) -> pa.Table:
    table = run.read("clip_bias")
    return table if model is None else table.filter(pc.equal(table["model"], model))
