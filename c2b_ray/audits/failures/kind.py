"""The run kind `failures`: its tables, and the functions that write its report, summary and exports and check its
gates."""

from __future__ import annotations

from c2b_ray import tables
from c2b_ray.audits.failures.run import FAILURES, FailuresManifest
from c2b_ray.storage.kinds import RunKind
from c2b_ray.tables.failures import COMBINATIONS, PICTURES

KIND = RunKind(
    name=FAILURES,
    command="c2b failures",
    tables={
        "candidates": tables.CANDIDATES,
        "rounds": tables.ROUNDS,
        "descriptions": tables.DESCRIPTIONS,
        "pictures": PICTURES,
        "answers": tables.ANSWERS,
        "combinations": COMBINATIONS,
        "hypotheses": tables.HYPOTHESES,
        "reliability": tables.RELIABILITY,
        "transfers": tables.TRANSFERS,
    },
    in_parts=frozenset({"rounds", "descriptions", "pictures", "answers", "combinations"}),
    needed=frozenset({"hypotheses"}),  # without it a page would say that nothing was found
    manifest=FailuresManifest,
    run="c2b_ray.audits.failures.run:FailuresRun",
    report="c2b_ray.audits.failures.report.page:write_report",
    summary="c2b_ray.audits.failures.report.summary:summary",
    exports={
        "csv": "c2b_ray.audits.failures.exports:csv",
        "json": "c2b_ray.audits.failures.exports:json",
        "parquet": "c2b_ray.audits.failures.exports:parquet",
        "images": "c2b_ray.audits.images:images_as_csv",
    },
    gate="c2b_ray.audits.failures.comparison:check",
    compare="c2b_ray.audits.failures.comparison:compare",
)
