"""The run kind `evaluate`: its tables, and the functions that write its report, summary and exports and check and
compare runs.

Gates and comparisons are about methods: a method's hits say nothing about a classifier that is to be released.
"""

from __future__ import annotations

from c2b_ray.schemas import evaluate as schemas
from c2b_ray.store.evaluate_run import EVALUATE, EvaluateManifest
from c2b_ray.store.kinds import RunKind

_TABLES = {
    "truth": schemas.BIASES,
    "detected": schemas.BIASES,
    "matches": schemas.MATCHES,
    "outcomes": schemas.OUTCOMES,
    "agreement": schemas.AGREEMENT,
    "differences": schemas.DIFFERENCES,
    "thresholds": schemas.THRESHOLDS,
    "ranking": schemas.RANKING,
    "proposers": schemas.PROPOSERS,
    "vqa": schemas.VQA,
    "shown": schemas.SHOWN,
    "recall": schemas.RECALL,
}

KIND = RunKind(
    name=EVALUATE,
    command="c2b evaluate",
    tables=_TABLES,
    needed=frozenset(_TABLES) - {"recall"},
    manifest=EvaluateManifest,
    run="c2b_ray.store.evaluate_run:EvaluateRun",
    report="c2b_ray.report.evaluate.report:write_report",
    summary="c2b_ray.report.evaluate.summary:summary",
    exports={
        "csv": "c2b_ray.report.evaluate.export:csv",
        "json": "c2b_ray.report.evaluate.export:json",
        "parquet": "c2b_ray.report.evaluate.export:parquet",
    },
    gate="c2b_ray.commands.evaluate.gates:check",
    compare="c2b_ray.commands.evaluate.comparison:compare",
)
