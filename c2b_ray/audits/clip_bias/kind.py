"""The run kind `clip-bias`: its tables, and the functions that write its report, summary and exports and check and
compare runs."""

from __future__ import annotations

from c2b_ray.audits.clip_bias.run import CLIP_BIAS_KIND, ClipBiasManifest
from c2b_ray.storage.kinds import RunKind
from c2b_ray.tables import clip_bias as schemas

KIND = RunKind(
    name=CLIP_BIAS_KIND,
    command="c2b clip-bias",
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
    manifest=ClipBiasManifest,
    run="c2b_ray.audits.clip_bias.run:ClipBiasRun",
    report="c2b_ray.audits.clip_bias.report.page:write_report",
    summary="c2b_ray.audits.clip_bias.report.summary:summary",
    exports={
        "csv": "c2b_ray.audits.clip_bias.exports:csv",
        "json": "c2b_ray.audits.clip_bias.exports:json",
        "parquet": "c2b_ray.audits.clip_bias.exports:parquet",
        "images": "c2b_ray.audits.images:images_as_csv",
    },
    gate="c2b_ray.audits.clip_bias.comparison:check",
    compare="c2b_ray.audits.clip_bias.comparison:compare",
)
