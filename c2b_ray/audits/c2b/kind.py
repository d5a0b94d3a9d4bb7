"""The run kind `c2b`: its tables, and the functions that write its report, summary and exports and check and compare
runs."""

from __future__ import annotations

from c2b_ray import tables
from c2b_ray.audits.c2b.run import C2BManifest
from c2b_ray.storage.kinds import RunKind

KIND = RunKind(
    name="c2b",
    command="c2b audit",
    tables={
        "proposals": tables.PROPOSALS,
        "rejected": tables.REJECTED,
        "captions": tables.CAPTIONS,
        "draws": tables.DRAWS,
        "pool": tables.DRAWS,
        "screening": tables.SCORES,
        "confirmation": tables.DRAWS,
        "confirmation_pool": tables.DRAWS,
        "clusters": tables.CLUSTERS,
        "properties": tables.PROPERTIES,
        "questions": tables.PROPOSALS,
        "readings": tables.READINGS,
        "descriptions": tables.IMAGE_CAPTIONS,
        "vectors": tables.IMAGE_VECTORS,
        "images": tables.IMAGES,
        "verifications": tables.VERIFICATIONS,
        "calibration": tables.CALIBRATION,
        "negatives": tables.NEGATIVES,
        "predictions": tables.PREDICTIONS,
        "scores": tables.SCORES,
        "pooled": tables.POOLED,
        "agreement": tables.AGREEMENT,
        "intersections": tables.INTERSECTIONS,
        "perturbed_images": tables.PERTURBED_IMAGES,
        "perturbed_predictions": tables.PERTURBED_PREDICTIONS,
        "perturbations": tables.PERTURBATIONS,
    },
    in_parts=frozenset(
        {
            "properties",
            "readings",
            "descriptions",
            "vectors",
            "images",
            "verifications",
            "predictions",
            "perturbed_predictions",
        }
    ),
    needed=frozenset({"scores"}),  # without it a page would say that nothing was found
    manifest=C2BManifest,
    run="c2b_ray.audits.c2b.run:C2BRun",
    report="c2b_ray.audits.c2b.report.page:write_report",
    summary="c2b_ray.audits.c2b.report.headline:summary",
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
