"""The hypotheses of a run of `c2b failures` in the formats that other programs read: CSV, JSON, Parquet.

Rows of both stages are included; `stage` tells them apart. Knows the columns of `schemas.HYPOTHESES`; knows nothing of
where an export goes.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.report.kit.export import csv_of, exported, json_of, parquet_of
from c2b_ray.report.kit.redact import cleaned
from c2b_ray.store.run import Run

SETTINGS = ("labels", "rule", "confidence", "hierarchy", "prompt", "targets", "budget", "alpha", "seed")


def csv(run: Run, classifier: str | None = None) -> bytes:
    return csv_of(exported(_hypotheses(run, classifier)))


def parquet(run: Run, classifier: str | None = None) -> bytes:
    return parquet_of(exported(_hypotheses(run, classifier)))


def json(run: Run, classifier: str | None = None) -> bytes:
    """Returns one object: the run's id, its settings, its models, and a row per hypothesis, transfer and label
    drawn."""
    manifest = run.manifest
    config = manifest.get("config", {})
    return json_of(
        {
            "run_id": manifest.get("run_id"),
            "status": manifest.get("status"),
            "finished": manifest.get("finished"),
            "settings": cleaned({name: config[name] for name in SETTINGS if name in config}),
            "models": cleaned(manifest.get("models", {})),
            "versions": cleaned(manifest.get("versions", {})),
            "hypotheses": exported(_hypotheses(run, classifier)).to_pylist(),
            "transfers": exported(_of(classifier, run.read("transfers"))).to_pylist(),
            "reliability": exported(run.read("reliability")).to_pylist(),
        }
    )


def _hypotheses(run: Run, classifier: str | None) -> pa.Table:
    return _of(classifier, run.read("hypotheses"))


def _of(classifier: str | None, table: pa.Table) -> pa.Table:
    return table if classifier is None else table.filter(pc.equal(table["classifier"], classifier))
