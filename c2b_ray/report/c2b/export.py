"""The scores of a run in the formats that other programs read, CSV, JSON, Parquet, and its failures as CSV.

Knows the columns of `schemas.SCORES`; does not know the destination of an export.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.report.kit.export import csv_of, exported, json_of, parquet_of
from c2b_ray.report.kit.redact import cleaned
from c2b_ray.store.c2b_run import C2BRun

SETTINGS = (
    "task", "classes", "right", "tau", "alpha", "seed", "images_per_caption", "captions_per_cell", "intersections",
)  # fmt: skip


def scores_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    return csv_of(exported(_of(classifier, run.scores)))


def failures_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns the images that were answered wrong, as in `C2BRun.failures`: columns of `schemas.FAILURES`."""
    return csv_of(exported(_of(classifier, run.failures())))


def _of(classifier: str | None, table: pa.Table) -> pa.Table:
    return table if classifier is None else table.filter(pc.equal(table["classifier"], classifier))


def scores_json(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns one object: the run's id, its settings, its models, and a row per classifier and cell: of one attribute
    in `scores`, of two in `intersections`."""
    manifest = run.manifest
    config = manifest.get("config", {})
    whole = {
        "run_id": manifest.get("run_id"),
        "status": manifest.get("status"),
        "finished": manifest.get("finished"),
        "settings": cleaned({name: config[name] for name in SETTINGS if name in config}),
        "models": cleaned(manifest.get("models", {})),
        "versions": cleaned(manifest.get("versions", {})),
        "scores": exported(_of(classifier, run.scores)).to_pylist(),
        "intersections": exported(_of(classifier, run.intersections)).to_pylist(),
    }
    return json_of(whole)


def scores_parquet(run: C2BRun, classifier: str | None = None) -> bytes:
    return parquet_of(exported(_of(classifier, run.scores)))
