"""The scores of a run in the formats that other programs read, CSV, JSON, Parquet, and its failures as CSV.

Knows the columns of `schemas.SCORES`; does not know the destination of an export.
"""

from __future__ import annotations

from c2b_ray.report.kit.export import about, csv_of, exported_only, json_of, parquet_of
from c2b_ray.store.c2b_run import C2BRun

SETTINGS = (
    "task", "classes", "right", "tau", "alpha", "seed", "images_per_caption", "captions_per_cell", "intersections",
)  # fmt: skip


def scores_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    return csv_of(exported_only(run.scores, classifier))


def failures_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns the images that were answered wrong, as in `C2BRun.failures`: columns of `schemas.FAILURES`."""
    return csv_of(exported_only(run.failures(), classifier))


def perturbations_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns a row per classifier, class, perturbation and level: columns of `schemas.PERTURBATIONS`."""
    return csv_of(exported_only(run.read("perturbations"), classifier))


def scores_json(run: C2BRun, classifier: str | None = None) -> bytes:
    """Returns one object: the run's id, its settings, its models, and a row per classifier and cell: of one attribute
    in `scores`, of two in `intersections`, over all classes in `pooled`, of perturbations in `perturbations`."""
    tables = {"scores": run.scores, "intersections": run.intersections, "pooled": run.read("pooled")}
    if run.has("perturbations"):
        tables["perturbations"] = run.read("perturbations")
    rows = {name: exported_only(table, classifier).to_pylist() for name, table in tables.items()}
    return json_of({**about(run, SETTINGS), "blank_rows": run.manifest.get("blank_rows") or {}, **rows})


def scores_parquet(run: C2BRun, classifier: str | None = None) -> bytes:
    return parquet_of(exported_only(run.scores, classifier))
