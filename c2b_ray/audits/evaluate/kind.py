"""The audit `evaluate`: its declaration.

Gates and comparisons are about methods: a method's hits say nothing about a classifier that is to be released.
"""

from __future__ import annotations

from c2b_ray.audits.audit import CLASSIFIER_FIELD, Audit, FormField
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

AUDIT = Audit(
    name="evaluate",
    question="How well do detected biases agree with a ground truth?",
    about="Compare detected biases with ground truth, beside the baseline B2T; if interrupted, run it again to resume.",
    config="c2b_ray.audits.evaluate.config:EvaluateConfig",
    config_reader="c2b_ray.audits.evaluate.config:FILE",
    run="c2b_ray.audits.evaluate.evaluate:evaluate",
    tables=_TABLES,
    needed=frozenset(_TABLES) - {"recall"},
    run_class="c2b_ray.audits.evaluate.run:EvaluateRun",
    manifest_class="c2b_ray.audits.evaluate.run:EvaluateManifest",
    report="c2b_ray.audits.evaluate.report.page:write_report",
    summary="c2b_ray.audits.evaluate.report.comparison:summary",
    exports={
        "csv": "c2b_ray.audits.evaluate.report.export:csv",
        "json": "c2b_ray.audits.evaluate.report.export:json",
        "parquet": "c2b_ray.audits.evaluate.report.export:parquet",
    },
    main_table="outcomes",
    findings="c2b_ray.audits.evaluate.comparison:findings",
    compare="c2b_ray.audits.evaluate.comparison:compare",
    compared_by="methods",
    form=(
        FormField("task", "Task", "What the classifier is for, in a sentence."),
        CLASSIFIER_FIELD,
        FormField(
            "truth.table",
            "Ground truth",
            "A table with image, target_class and attributes: an upload, or a path "
            "below data/. CelebA, ImageNet-X and the embedded world are named in the YAML.",
            "model",
            "tables",
        ),
        FormField(
            "methods.C2B", "Finished audit", "Its biases are held against the ground truth.", "model", "runs-c2b"
        ),
        FormField("b2t.captioner", "Captioner", "Of the baseline B2T; may be empty.", "model", "captioners"),
        FormField("b2t.encoder", "Encoder", "Of the baseline B2T; may be empty.", "model", "encoders"),
    ),
)
