"""The run kind `prompts`: its tables, and the functions that write its report, summary and exports and check and
compare runs."""

from __future__ import annotations

from c2b_ray.audits.prompts.run import PROMPTS, PromptsManifest
from c2b_ray.storage.kinds import RunKind
from c2b_ray.tables import prompts

KIND = RunKind(
    name=PROMPTS,
    command="c2b prompts",
    tables={
        "prompts": prompts.PROMPTS,
        "associations": prompts.ASSOCIATIONS,
        "methods": prompts.METHODS,
        "gains": prompts.GAINS,
        "modifiers": prompts.MODIFIERS,
        "heads": prompts.HEADS,
        "written": prompts.WRITTEN,
        "searches": prompts.SEARCHES,
        "judged": prompts.JUDGED,
        "examples": prompts.EXAMPLES,
    },
    in_parts=frozenset({"searches", "judged", "examples"}),
    needed=frozenset({"prompts"}),  # without it a page would say that nothing was found
    manifest=PromptsManifest,
    run="c2b_ray.audits.prompts.run:PromptsRun",
    report="c2b_ray.audits.prompts.report.page:write_report",
    summary="c2b_ray.audits.prompts.report.summary:summary",
    exports={
        "csv": "c2b_ray.audits.prompts.report.export:csv",
        "json": "c2b_ray.audits.prompts.report.export:json",
        "parquet": "c2b_ray.audits.prompts.report.export:parquet",
        "images": "c2b_ray.audits.images:images_as_csv",
    },
    gate="c2b_ray.audits.prompts.comparison:check",
    compare="c2b_ray.audits.prompts.comparison:compare",
)
