"""The audit `dataset`: its declaration. A dataset is a folder of its own kind, not a run directory."""

from __future__ import annotations

from c2b_ray.audits.audit import CLASSIFIER_FIELD, Audit, FormField

AUDIT = Audit(
    name="dataset",
    question="A dataset of images that the classifier fails on",
    about="Build a dataset of images that a classifier fails on, with a hundred of each caption.",
    config="c2b_ray.audits.dataset.config:DatasetConfig",
    config_reader="c2b_ray.audits.dataset.config:FILE",
    run="c2b_ray.audits.dataset.build:build_dataset",
    estimate="c2b_ray.audits.dataset.plan:estimate",
    command_name="dataset build",
    form=(
        FormField(
            "captions.run",
            "Failures",
            "A finished run of failures, whose captions are taken.",
            "model",
            "runs-failures",
        ),
        CLASSIFIER_FIELD,
        FormField(
            "images.generate.model", "Generator", "What draws the images.", "model", "generators", "world:renderer"
        ),
        FormField("draws_per_caption", "Images of each caption", "", "number"),
        FormField("cap_per_caption", "Kept of each caption", "At most.", "number"),
    ),
)
