"""The audit `c2b`: its declaration."""

from __future__ import annotations

from c2b_ray import tables
from c2b_ray.audits.audit import CLASSIFIER_FIELD, Audit, FormField, Questions
from c2b_ray.config.question import IMAGES

AUDIT = Audit(
    name="c2b",
    question="Which attributes of an image make the classifier better or worse?",
    about="Audit a classifier: find the attributes of an image that make it better or worse.",
    config="c2b_ray.config.audit:AuditConfig",
    run="c2b_ray.audits.c2b.audit:audit",
    tables={
        "proposals": tables.PROPOSALS,
        "rejected": tables.REJECTED,
        "captions": tables.CAPTIONS,
        "draws": tables.DRAWS,
        "pool": tables.DRAWS,
        "screening": tables.SCORES,
        "confirmation": tables.DRAWS,
        "confirmation_pool": tables.DRAWS,
        "clusters": tables.CLUSTERS,
        "properties": tables.PROPERTIES,
        "images": tables.IMAGES,
        "verifications": tables.VERIFICATIONS,
        "calibration": tables.CALIBRATION,
        "negatives": tables.NEGATIVES,
        "predictions": tables.PREDICTIONS,
        "scores": tables.SCORES,
        "pooled": tables.POOLED,
        "agreement": tables.AGREEMENT,
        "intersections": tables.INTERSECTIONS,
        "perturbed_images": tables.PERTURBED_IMAGES,
        "perturbed_predictions": tables.PERTURBED_PREDICTIONS,
        "perturbations": tables.PERTURBATIONS,
    },
    in_parts=frozenset({"properties", "images", "verifications", "predictions", "perturbed_predictions"}),
    needed=frozenset({"scores"}),  # without it a page would say that nothing was found
    run_class="c2b_ray.audits.c2b.run:C2BRun",
    manifest_class="c2b_ray.audits.c2b.run:C2BManifest",
    report="c2b_ray.audits.c2b.report.page:write_report",
    summary="c2b_ray.audits.c2b.report.headline:summary",
    exports={
        "csv": "c2b_ray.audits.c2b.exports:csv",
        "json": "c2b_ray.audits.c2b.exports:json",
        "parquet": "c2b_ray.audits.c2b.exports:parquet",
        "failures": "c2b_ray.audits.c2b.exports:failures",
        "perturbations": "c2b_ray.audits.c2b.exports:perturbations",
        "model-card": "c2b_ray.audits.c2b.exports:card",
        "images": "c2b_ray.audits.images:images_as_csv",
    },
    main_table="scores",
    images="c2b_ray.audits.c2b.exported_images:run_images",
    findings="c2b_ray.audits.c2b.comparison:findings",
    compare="c2b_ray.audits.c2b.comparison:compare",
    questions=Questions(
        check="c2b_ray.audits.ask:check_question",
        answer="c2b_ray.audits.ask:answer_question",
        fields=("classifier", "target_class"),
        images=IMAGES,
        of_each_classifier=True,
    ),
    estimate="c2b_ray.audits.c2b.estimate:estimate",
    most_images="c2b_ray.audits.c2b.size:most_answers",
    command_name="audit",
    form=(
        FormField("task", "Task", "What the classifier is for, in a sentence."),
        FormField("classes", "Classes", "Names with commas between them, or all.", "words"),
        CLASSIFIER_FIELD,
        FormField(
            "images.source",
            "Images",
            "Where the images come from.",
            "choice",
            ("generate", "retrieve", "labelled"),
            "generate",
        ),
        FormField(
            "images.generator",
            "Generator",
            "Where images are generated.",
            "model",
            "generators",
            "world:renderer",
            ("images.source", "generate"),
        ),
        FormField(
            "images.index", "Index", "Where images are retrieved.", "text", (), "", ("images.source", "retrieve")
        ),
        FormField(
            "images.table",
            "Table",
            "Where images are labelled: an upload, or a path below data/.",
            "model",
            "tables",
            "",
            ("images.source", "labelled"),
        ),
        FormField(
            "attributes",
            "Attributes",
            "One a line, as in: weather: clear, snow. Empty: a language model proposes.",
            "mapping",
        ),
        FormField("images_per_caption", "Images of each caption", "", "number"),
    ),
)
