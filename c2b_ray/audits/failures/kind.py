"""The audit `failures`: its declaration."""

from __future__ import annotations

from c2b_ray import tables
from c2b_ray.audits.audit import CLASSIFIER_FIELD, Audit, FormField, Questions
from c2b_ray.config.named import DRAWS
from c2b_ray.tables.failures import COMBINATIONS, PICTURES

AUDIT = Audit(
    name="failures",
    question="Which captions make the classifier fail, and how often?",
    about="Find the captions that make a classifier fail; `c2b failures FAILURES.yaml` is enough.",
    config="c2b_ray.audits.failures.config:FailuresConfig",
    config_reader="c2b_ray.audits.failures.config:FILE",
    run="c2b_ray.audits.failures.audit:find_failures",
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
    run_class="c2b_ray.audits.failures.run:FailuresRun",
    manifest_class="c2b_ray.audits.failures.run:FailuresManifest",
    report="c2b_ray.audits.failures.report.page:write_report",
    summary="c2b_ray.audits.failures.report.page:summary",
    exports={
        "csv": "c2b_ray.audits.failures.exports:csv",
        "json": "c2b_ray.audits.failures.exports:json",
        "parquet": "c2b_ray.audits.failures.exports:parquet",
        "images": "c2b_ray.audits.runs:images_as_csv",
    },
    main_table="hypotheses",
    images="c2b_ray.audits.failures.exports:run_images",
    findings="c2b_ray.audits.failures.comparison:findings",
    compare="c2b_ray.audits.failures.comparison:compare",
    questions=Questions(
        check="c2b_ray.audits.failures.ask:check_question",
        answer="c2b_ray.audits.failures.ask:answer_question",
        fields=("target",),
        images=DRAWS,
    ),
    estimates_first=True,
    estimate="c2b_ray.audits.failures.estimate:estimate",
    most_images="c2b_ray.audits.failures.config:most_images",
    form=(
        FormField("labels", "Labels", "Names with commas between them.", "words"),
        CLASSIFIER_FIELD,
        FormField(
            "images.generate.model", "Generator", "What draws the images.", "model", "generators", "world:renderer"
        ),
        FormField(
            "rule",
            "Failure",
            "Which answers are failures.",
            "choice",
            ("top1", "top1_parent", "top3", "top3_parent"),
            "top1",
        ),
        FormField("budget.draws", "Images in all", "", "number"),
    ),
)
