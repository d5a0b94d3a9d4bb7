"""The run kind `latent`: its tables, and the functions that write its report, summary and exports and check and compare
runs."""

from __future__ import annotations

from c2b_ray.audits.latent.run import LATENT
from c2b_ray.storage.kinds import RunKind
from c2b_ray.tables.latent import DIRECTIONS, HYPERPLANES, PROBLEMS, SEARCHES, STRIPS

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
    run="c2b_ray.audits.latent.run:LatentRun",
    report="c2b_ray.audits.latent.report.page:write_report",
    summary="c2b_ray.audits.latent.report.summary:summary",
    exports={
        "csv": "c2b_ray.audits.latent.report.export:csv",
        "json": "c2b_ray.audits.latent.report.export:json",
        "parquet": "c2b_ray.audits.latent.report.export:parquet",
        "images": "c2b_ray.audits.images:images_as_csv",
    },
    gate="c2b_ray.audits.latent.comparison:check",
    compare="c2b_ray.audits.latent.comparison:compare",
)
