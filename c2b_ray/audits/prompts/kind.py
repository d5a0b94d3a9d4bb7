"""The run kind `prompts`: its tables, and the functions that write its report, summary and exports and check and
compare runs."""

from __future__ import annotations

from c2b_ray.schemas import prompts
from c2b_ray.store.kinds import RunKind
from c2b_ray.store.prompts_run import PROMPTS, PromptsManifest

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
    run="c2b_ray.store.prompts_run:PromptsRun",
    report="c2b_ray.report.prompts.report:write_report",
    summary="c2b_ray.report.prompts.summary:summary",
    exports={
        "csv": "c2b_ray.report.prompts.export:csv",
        "json": "c2b_ray.report.prompts.export:json",
        "parquet": "c2b_ray.report.prompts.export:parquet",
    },
    gate="c2b_ray.audits.prompts.gates:check",
    compare="c2b_ray.audits.prompts.comparison:compare",
)
