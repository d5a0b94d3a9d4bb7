"""The audit `latent`: its declaration."""

from __future__ import annotations

from c2b_ray.audits.audit import Audit, FormField
from c2b_ray.tables.latent import DIRECTIONS, HYPERPLANES, PROBLEMS, SEARCHES, STRIPS

AUDIT = Audit(
    name="latent",
    question="Which directions of a generator's latent space bias the classifier?",
    about="Search a generator's latent space for directions that bias a classifier.",
    config="c2b_ray.config.latent:LatentConfig",
    run="c2b_ray.audits.latent.audit:latent_directions",
    tables={
        "searches": SEARCHES,
        "directions": DIRECTIONS,
        "strips": STRIPS,
        "hyperplanes": HYPERPLANES,
        "problems": PROBLEMS,
    },
    in_parts=frozenset({"searches"}),
    needed=frozenset({"directions", "problems"}),
    run_class="c2b_ray.audits.latent.run:LatentRun",
    report="c2b_ray.audits.latent.report:write_report",
    summary="c2b_ray.audits.latent.report:summary",
    exports={
        "csv": "c2b_ray.audits.latent.exports:csv",
        "json": "c2b_ray.audits.latent.exports:json",
        "parquet": "c2b_ray.audits.latent.exports:parquet",
        "images": "c2b_ray.audits.runs:images_as_csv",
    },
    main_table="directions",
    images="c2b_ray.audits.latent.exports:run_images",
    findings="c2b_ray.audits.latent.comparison:findings",
    compare="c2b_ray.audits.latent.comparison:compare",
    most_images="c2b_ray.audits.latent.problems:most_images",
    check="c2b_ray.audits.latent.problems:check_gradients",
    served=False,
    form=(
        FormField("generator", "Generator", "A generator with a latent space.", "model", "latent_generators"),
        FormField("classifier", "Classifier", "One with gradients, such as world:… or timm:….", "model", "classifiers"),
        FormField(
            "latents",
            "Labelled latents",
            "A table, from which hyperplanes are trained; may be empty.",
            "model",
            "captioned",
        ),
        FormField("hyperplanes", "Hyperplanes", "A table of those that are known; may be empty.", "model", "captioned"),
        FormField("label", "Label", "The classifier's output that is watched."),
        FormField("target", "Target", "The attribute that it is meant to tell."),
    ),
)
