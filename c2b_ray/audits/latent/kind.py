"""The run kind `latent`: its tables, and the functions that write its report, summary and exports and check and compare
runs."""

from __future__ import annotations

from c2b_ray.schemas.latent import DIRECTIONS, HYPERPLANES, PROBLEMS, SEARCHES, STRIPS
from c2b_ray.store.kinds import RunKind
from c2b_ray.store.latent_run import LATENT

KIND = RunKind(
    name=LATENT,
    command="c2b latent",
    tables={
        "searches": SEARCHES,
        "directions": DIRECTIONS,
        "strips": STRIPS,
        "hyperplanes": HYPERPLANES,
        "problems": PROBLEMS,
    },
    in_parts=frozenset({"searches"}),
    needed=frozenset({"directions", "problems"}),
    run="c2b_ray.store.latent_run:LatentRun",
    report="c2b_ray.report.latent.report:write_report",
    summary="c2b_ray.report.latent.summary:summary",
    exports={
        "csv": "c2b_ray.report.latent.export:csv",
        "json": "c2b_ray.report.latent.export:json",
        "parquet": "c2b_ray.report.latent.export:parquet",
    },
    gate="c2b_ray.audits.latent.gates:check",
    compare="c2b_ray.audits.latent.comparison:compare",
)
