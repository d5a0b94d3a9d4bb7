"""The run kind `evaluate`: its tables, and the functions that write its report, summary and exports and check and
compare runs.

Gates and comparisons are about methods: a method's hits say nothing about a classifier that is to be released.
"""

from __future__ import annotations

from c2b_ray.audits.evaluate.run import EVALUATE, EvaluateManifest
from c2b_ray.storage.kinds import RunKind
from c2b_ray.tables import evaluate as schemas

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
    run="c2b_ray.audits.evaluate.run:EvaluateRun",
    report="c2b_ray.audits.evaluate.report.page:write_report",
    summary="c2b_ray.audits.evaluate.report.summary:summary",
    exports={
        "csv": "c2b_ray.audits.evaluate.report.export:csv",
        "json": "c2b_ray.audits.evaluate.report.export:json",
        "parquet": "c2b_ray.audits.evaluate.report.export:parquet",
    },
    gate="c2b_ray.audits.evaluate.comparison:check",
    compare="c2b_ray.audits.evaluate.comparison:compare",
)
