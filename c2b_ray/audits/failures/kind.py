"""The run kind `failures`: its tables, and the functions that write its report, summary and exports and check its
gates."""

from __future__ import annotations

from c2b_ray import schemas
from c2b_ray.schemas.failures import COMBINATIONS, PICTURES
from c2b_ray.store.failures_run import FAILURES, FailuresManifest
from c2b_ray.store.kinds import RunKind

KIND = RunKind(
    name=FAILURES,
    command="c2b failures",
    tables={
        "candidates": schemas.CANDIDATES,
        "rounds": schemas.ROUNDS,
        "descriptions": schemas.DESCRIPTIONS,
        "pictures": PICTURES,
        "answers": schemas.ANSWERS,
        "combinations": COMBINATIONS,
        "hypotheses": schemas.HYPOTHESES,
        "reliability": schemas.RELIABILITY,
        "transfers": schemas.TRANSFERS,
    },
    in_parts=frozenset({"rounds", "descriptions", "pictures", "answers", "combinations"}),
    needed=frozenset({"hypotheses"}),  # without it a page would say that nothing was found
    manifest=FailuresManifest,
    run="c2b_ray.store.failures_run:FailuresRun",
    report="c2b_ray.report.failures.report:write_report",
    summary="c2b_ray.report.failures.summary:summary",
    exports={
        "csv": "c2b_ray.audits.failures.exports:csv",
        "json": "c2b_ray.audits.failures.exports:json",
        "parquet": "c2b_ray.audits.failures.exports:parquet",
    },
    gate="c2b_ray.audits.failures.gates:check",
    compare="c2b_ray.audits.failures.comparison:compare",
)
