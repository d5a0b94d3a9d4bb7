"""The audit `prompts`: its declaration."""

from __future__ import annotations

from c2b_ray.audits.audit import Audit, FormField
from c2b_ray.tables import prompts

AUDIT = Audit(
    name="prompts",
    question="Which natural prompts expose a hidden bias of a generator?",
    about="Search for prompts that bring about a value without naming it; `c2b prompts PROMPTS.yaml` is enough.",
    config="c2b_ray.audits.prompts.config:PromptsConfig",
    run="c2b_ray.audits.prompts.audit:search_prompts",
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
    run_class="c2b_ray.audits.prompts.run:PromptsRun",
    manifest_class="c2b_ray.audits.prompts.run:PromptsManifest",
    report="c2b_ray.audits.prompts.report:write_report",
    summary="c2b_ray.audits.prompts.summary:summary",
    exports={
        "csv": "c2b_ray.audits.prompts.exports:csv",
        "json": "c2b_ray.audits.prompts.exports:json",
        "parquet": "c2b_ray.audits.prompts.exports:parquet",
        "images": "c2b_ray.audits.runs:images_as_csv",
    },
    main_table="prompts",
    images="c2b_ray.audits.prompts.exports:run_images",
    findings="c2b_ray.audits.prompts.comparison:findings",
    compare="c2b_ray.audits.prompts.comparison:compare",
    estimate="c2b_ray.audits.prompts.estimate:estimate_summary",
    most_images="c2b_ray.audits.prompts.estimate:most_images",
    models="generators",
    form=(
        FormField(
            "subjects", "Subjects", "What prompts are about, with commas between them, such as bus, boat.", "words"
        ),
        FormField(
            "attributes", "Attributes", "What may be hidden, one a line, as in: lighting: day, night.", "mapping"
        ),
        FormField("generators", "Generator", "The text-to-image model that is searched.", "model", "generators"),
        FormField(
            "language_model", "Language model", "It proposes prompts.", "model", "language_models", "world:prompter"
        ),
        FormField("judge", "Judge", "It says what images show.", "model", "captioners", "world:clip"),
        FormField(
            "guide",
            "Guide",
            "heads: by the generator's activations; judge: by answers on finished images.",
            "choice",
            ("heads", "judge"),
            "heads",
        ),
    ),
)
