"""The run kind `c2b`: its tables, and the functions that write its report, summary and exports and check and compare
runs."""

from __future__ import annotations

from c2b_ray import schemas
from c2b_ray.store.c2b_run import C2BManifest
from c2b_ray.store.kinds import RunKind

KIND = RunKind(
    name="c2b",
    command="c2b audit",
    tables={
        "proposals": schemas.PROPOSALS,
        "rejected": schemas.REJECTED,
        "captions": schemas.CAPTIONS,
        "draws": schemas.DRAWS,
        "pool": schemas.DRAWS,
        "screening": schemas.SCORES,
        "confirmation": schemas.DRAWS,
        "confirmation_pool": schemas.DRAWS,
        "clusters": schemas.CLUSTERS,
        "properties": schemas.PROPERTIES,
        "images": schemas.IMAGES,
        "verifications": schemas.VERIFICATIONS,
        "calibration": schemas.CALIBRATION,
        "negatives": schemas.NEGATIVES,
        "predictions": schemas.PREDICTIONS,
        "scores": schemas.SCORES,
        "pooled": schemas.POOLED,
        "agreement": schemas.AGREEMENT,
        "intersections": schemas.INTERSECTIONS,
        "perturbed_images": schemas.PERTURBED_IMAGES,
        "perturbed_predictions": schemas.PERTURBED_PREDICTIONS,
        "perturbations": schemas.PERTURBATIONS,
    },
    in_parts=frozenset({"properties", "images", "verifications", "predictions", "perturbed_predictions"}),
    needed=frozenset({"scores"}),  # without it a page would say that nothing was found
    manifest=C2BManifest,
    run="c2b_ray.store.c2b_run:C2BRun",
    report="c2b_ray.report.c2b.report:write_report",
    summary="c2b_ray.report.c2b.summary:summary",
    exports={
        "csv": "c2b_ray.audits.c2b.exports:csv",
        "json": "c2b_ray.audits.c2b.exports:json",
        "parquet": "c2b_ray.audits.c2b.exports:parquet",
        "failures": "c2b_ray.audits.c2b.exports:failures",
        "perturbations": "c2b_ray.audits.c2b.exports:perturbations",
        "model-card": "c2b_ray.audits.c2b.exports:card",
    },
    gate="c2b_ray.audits.c2b.comparison:check",
    compare="c2b_ray.audits.c2b.comparison:compare",
)
