"""The audit `clip-bias`: its declaration."""

from __future__ import annotations

from c2b_ray.audits.audit import Audit, FormField, Option
from c2b_ray.tables import clip_bias as schemas

AUDIT = Audit(
    name="clip-bias",
    question="How biased are CLIP models, and does it show in what is built on them?",
    about="Measure the social bias of CLIP models, globally and locally, and whether it transfers downstream.",
    config="c2b_ray.audits.clip_bias.config:ClipBiasConfig",
    config_reader="c2b_ray.audits.clip_bias.audit:FILE",
    run="c2b_ray.audits.clip_bias.audit:clip_bias",
    tables={
        "embeddings": schemas.CLIP_EMBEDDINGS,
        "guesses": schemas.CLIP_GUESSES,
        "clip_bias": schemas.CLIP_BIAS,
        "transfer": schemas.TRANSFER,
        "locality": schemas.LOCALITY,
        "rates": schemas.RATES,
        "replicates": schemas.REPLICATES,
        "model_pairs": schemas.MODEL_PAIRS,
        "gaps": schemas.GAPS,
        "convergence": schemas.CONVERGENCE,
        "clusters": schemas.CLUSTERS,
        "examples": schemas.GROUP_EXAMPLES,
    },
    in_parts=frozenset({"embeddings", "guesses"}),
    needed=frozenset({"clip_bias", "transfer"}),
    run_class="c2b_ray.audits.clip_bias.run:ClipBiasRun",
    manifest_class="c2b_ray.audits.clip_bias.run:ClipBiasManifest",
    report="c2b_ray.audits.clip_bias.report:write_report",
    summary="c2b_ray.audits.clip_bias.summary:summary",
    exports={
        "csv": "c2b_ray.audits.clip_bias.exports:csv",
        "json": "c2b_ray.audits.clip_bias.exports:json",
        "parquet": "c2b_ray.audits.clip_bias.exports:parquet",
        "images": "c2b_ray.audits.runs:images_as_csv",
    },
    main_table="clip_bias",
    images="c2b_ray.audits.clip_bias.exports:run_images",
    findings="c2b_ray.audits.clip_bias.comparison:findings",
    compare="c2b_ray.audits.clip_bias.comparison:compare",
    models="models",
    options=(Option("reuse", "RUN", "An earlier run, whose embeddings are reused."),),
    form=(
        FormField(
            "models", "Models", "One a line, a name of your own and a spec, as in: small: world:clip-09.", "specs"
        ),
        FormField(
            "datasets.images.table",
            "Images",
            "A table with image, caption and attributes: an upload, or a path below data/.",
            "model",
            "captioned",
        ),
        FormField(
            "datasets.images.attributes", "Attributes", "Columns of the table, with commas between them.", "words"
        ),
        FormField(
            "datasets.images.texts", "Neutral texts", "For MaxSkew, with commas between them; may be empty.", "words"
        ),
        FormField("groups.k", "Clusters of each model", "1: no local view.", "number"),
    ),
)
