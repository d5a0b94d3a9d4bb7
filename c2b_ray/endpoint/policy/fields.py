"""What each field of each kind's config names: a model, a file, or only words and numbers.

A field that is missing from this table is refused, so a new field cannot name anything before somebody has classified
it. This module knows the meaning of fields, not what may be named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from c2b_ray.config.audit import AuditConfig
from c2b_ray.config.problems import first_problem
from c2b_ray.errors import ConfigError


class Names(Enum):
    """What the value of a field names."""

    NOTHING = "words, numbers and choices, by which nothing is read"
    CLASSIFIER = "classifier"
    LANGUAGE_MODEL = "language_model"
    ENCODER = "encoder"
    GENERATOR = "image_generator"
    LATENT_GENERATOR = "latent_generator"
    GUESSER = "group_guesser"
    CAPTIONER = "captioner"
    SENTENCE_ENCODER = "sentence_encoder"
    INDEX = "index"
    TABLE = "a labelled table, or a folder of images"
    CAPTIONS = "a table of captions"
    CAPTIONED = "a table of images with captions"
    VALUES = "a table of results, vectors or hyperplanes, which names no files"
    ANNOTATED = "a folder of images with annotations, or a file of these"
    METHODS = "finished audits, or audits' fields, which name what an audit names"
    HEADS = "a folder of heads, as `c2b prompts heads` writes it"
    RUN = "another run"
    HIERARCHY = "a packaged hierarchy, or a file or folder"
    LABEL_MAP = "a label map, or a file of one"


SPECS = (
    Names.CLASSIFIER, Names.LANGUAGE_MODEL, Names.ENCODER, Names.GENERATOR, Names.LATENT_GENERATOR, Names.GUESSER,
    Names.CAPTIONER, Names.SENTENCE_ENCODER, Names.INDEX,
)  # fmt: skip
FILLED_IN = {"classifier": "world:clip"}
"""The fields of an audit that an evaluation fills in, with placeholders for the check of a method's fields."""
Leaf = Callable[[Names, Any, str], Any]

_AUDIT = {
    "classifier": Names.CLASSIFIER,
    "language_model": Names.LANGUAGE_MODEL,
    "label_map": Names.LABEL_MAP,
    "images.index": Names.INDEX,
    "images.generator": Names.GENERATOR,
    "images.table": Names.TABLE,
    "verification.model": Names.CAPTIONER,
    "verification.calibration": Names.TABLE,
}
_AUDIT_WORDS = (
    "task", "classes", "attributes", "templates", "intersections", "images_per_caption", "captions_per_cell", "confirm",
    "seed", "tau", "alpha", "right", "budget.images", "budget.first", "images.source", "images.pool",
    "images.selection", "images.columns.image", "images.columns.target_class", "images.columns.key",
)  # fmt: skip
_FAILURES = {
    "classifier": Names.CLASSIFIER,
    "images.generate.model": Names.GENERATOR,
    "images.labelled.table": Names.TABLE,
    "hierarchy": Names.HIERARCHY,
    "label_map": Names.LABEL_MAP,
    "captioner": Names.CAPTIONER,
    "encoder": Names.ENCODER,
    "language_model": Names.LANGUAGE_MODEL,
    "verifier": Names.CAPTIONER,
    "generalise.generators": Names.GENERATOR,
    "generalise.index": Names.INDEX,
    "labelled": Names.TABLE,
}
_FAILURES_WORDS = (
    "labels", "images.labelled.columns", "rule", "confidence", "true_below", "targets", "prompt", "captions",
    "generalise.runs", "generalise.images", "budget.draws", "budget.discovery", "alpha", "seed",
)  # fmt: skip
_DATASET = {
    "captions.run": Names.RUN,
    "captions.file": Names.CAPTIONS,
    "captions.language_model": Names.LANGUAGE_MODEL,
    "captions.images": Names.TABLE,
    "captions.captioner": Names.CAPTIONER,
    "images.generate.model": Names.GENERATOR,
    "images.index": Names.INDEX,
    "images.labelled.table": Names.TABLE,
    "classifier": Names.CLASSIFIER,
    "hierarchy": Names.HIERARCHY,
    "label_map": Names.LABEL_MAP,
    "verify.captioner": Names.CAPTIONER,
}
_DATASET_WORDS = (
    "captions.labels", "captions.per_label", "captions.sentences", "images.labelled.columns", "images.labelled.by",
    "rule", "confidence", "true_below", "draws_per_caption", "cap_per_caption", "near_duplicates", "shard_draws",
    "batch", "seed",
)  # fmt: skip
_PROMPTS = {
    "generators": Names.GENERATOR,
    "language_model": Names.LANGUAGE_MODEL,
    "judge": Names.CAPTIONER,
    "reader": Names.LANGUAGE_MODEL,
    "encoder": Names.ENCODER,
    "heads.teacher": Names.CAPTIONER,
    "heads.files": Names.HEADS,
}
_PROMPTS_WORDS = (
    "subjects", "attributes.values", "attributes.targets", "attributes.question", "attributes.texts",
    "attributes.synonyms", "guide", "heads.activation", "heads.steps", "heads.prompts", "heads.images",
    "heads.held_out", "search.weights", "search.beams", "search.expansion", "search.pool", "search.images",
    "search.least_tokens", "search.most_tokens", "search.raced", "search.of_parent", "search.overlap", "search.keep",
    "search.filtered", "methods", "curated", "intersections", "evaluation.prompts", "evaluation.images",
    "associations.prompts", "associations.words", "associations.contexts", "associations.images",
    "associations.follow_up", "associations.least_effect", "associations.generators",
    "modifiers.prompts", "modifiers.images", "alpha", "seed",
)  # fmt: skip
_CLIP_BIAS = {
    "models": Names.ENCODER,
    "datasets.table": Names.CAPTIONED,
    "downstream.vqa": Names.VALUES,
    "downstream.captions": Names.VALUES,
    "spaces.after": Names.VALUES,
    "spaces.before": Names.VALUES,
    "leakage.guesser": Names.GUESSER,
}
_CLIP_BIAS_WORDS = (
    "datasets.attributes", "datasets.columns", "datasets.texts", "datasets.mask", "downstream.dataset",
    "spaces.dataset", "performance", "window", "recall_k", "hit", "skew_k", "skew_share", "skew_rule", "groups.k",
    "groups.least", "groups.column", "groups.reuse", "amplification", "answers", "leakage.folds", "leakage.seeds",
    "leakage.swaps", "chance.permutations", "chance.resamples", "alpha", "seed",
)  # fmt: skip
_LATENT = {
    "classifier": Names.CLASSIFIER,
    "generator": Names.LATENT_GENERATOR,
    "latents": Names.VALUES,
    "hyperplanes": Names.VALUES,
    "captioner": Names.CAPTIONER,
}
_PROBLEM = ("label", "target", "biased", "known", "references")
_LATENT_WORDS = (
    *_PROBLEM, *(f"problems.{name}" for name in ("name", "generator", "classifier", *_PROBLEM)), "methods",
    "directions", "search.iterations", "search.batch", "search.walk", "search.reach", "search.starts", "search.rate",
    "search.penalty", "search.patience", "evidence.latents", "evidence.margin", "evidence.level", "strips.latents",
    "strips.positions", "strips.reach", "strips.named_by", "seed",
)  # fmt: skip


_EVALUATE = {
    "classifier": Names.CLASSIFIER,
    "truth.table": Names.TABLE,
    "truth.celeba.folder": Names.ANNOTATED,
    "truth.imagenet_x.annotations": Names.ANNOTATED,
    "truth.imagenet_x.folder": Names.ANNOTATED,
    "methods": Names.METHODS,
    "b2t.captioner": Names.CAPTIONER,
    "b2t.encoder": Names.ENCODER,
    "vqa.model": Names.CAPTIONER,
    "retrieval.encoder": Names.ENCODER,
    "sentence_encoder": Names.SENTENCE_ENCODER,
    "label_map": Names.LABEL_MAP,
}
_EVALUATE_WORDS = (
    "task", "classes", "names", "truth.world.scenes", "truth.world.seed", "truth.world.decoys",
    *(f"truth.world.planted.{name}" for name in ("name", "attribute", "value", "often", "seldom")),
    *(f"truth.columns.{name}" for name in ("image", "target_class", "key")),
    *(f"truth.celeba.{name}" for name in ("target", "partition", "present", "absent", "images")),
    *(f"truth.imagenet_x.{name}" for name in ("factors", "prototypes", "images")),
    "b2t.keywords", "b2t.words", "b2t.tau", "b2t.template", "vqa.images", "vqa.drawn", "retrieval.shares",
    "retrieval.class_caption", "retrieval.value_caption", "retrieval.both_caption", "threshold", "differ", "many",
    "tau", "alpha", "least", "right", "seed",
)  # fmt: skip


def _table(named: Mapping[str, Names], words: tuple[str, ...]) -> dict[str, Names]:
    return {**named, **dict.fromkeys(words, Names.NOTHING)}


FIELDS: dict[str, dict[str, Names]] = {
    "c2b": _table(_AUDIT, _AUDIT_WORDS),
    "failures": _table(_FAILURES, _FAILURES_WORDS),
    "dataset": _table(_DATASET, _DATASET_WORDS),
    "prompts": _table(_PROMPTS, _PROMPTS_WORDS),
    "clip-bias": _table(_CLIP_BIAS, _CLIP_BIAS_WORDS),
    "latent": _table(_LATENT, _LATENT_WORDS),
    "evaluate": _table(_EVALUATE, _EVALUATE_WORDS),
    "question": _table({"run": Names.RUN}, ("sentence", "n", "classifier", "target_class", "target")),
}
"""Kind → dotted field → what it names. In a mapping or list of sections, the field leaves out the section's name or
number. The generator and classifier of one of `problems`, and `associations.generators`, are names that the config
defines elsewhere. `question.classifier` is a name in a run, which loads nothing."""


def replaced(kind: str, config: BaseModel, raw: Mapping[str, Any], leaf: Leaf) -> dict[str, Any]:
    """Returns `raw` with the value of each field that names something replaced by `leaf(names, value, field)`.

    `config` is `raw` after validation; values are taken from it, because validation strips spaces. Raises ConfigError
    for a field that is not classified.
    """
    return _section(FIELDS.get(kind, {}), config, raw, ("", ""), leaf)


def _section(
    known: Mapping[str, Names], config: BaseModel, raw: Mapping[str, Any], above: tuple[str, str], leaf: Leaf
) -> dict[str, Any]:
    """Does `replaced` for a section. `above`: the prefix of its fields' names, in the table and in messages."""
    result: dict[str, Any] = {}
    for name, written in raw.items():
        field, shown, value = f"{above[0]}{name}", f"{above[1]}{name}", getattr(config, name)
        if isinstance(value, BaseModel):
            inner = written.model_dump(exclude_unset=True) if isinstance(written, BaseModel) else written
            result[name] = _section(known, value, inner, (f"{field}.", f"{shown}."), leaf)
        elif isinstance(value, dict) and _has_sections(value.values()):
            result[name] = {key: _inner(known, one, field, f"{shown}.{key}", leaf) for key, one in value.items()}
        elif isinstance(value, list) and _has_sections(value):
            result[name] = [_inner(known, one, field, f"{shown}.{at}", leaf) for at, one in enumerate(value)]
        elif not value and any(one.startswith(f"{field}.") for one in known):
            result[name] = written  # an omitted section, or an empty list of sections
        elif field not in known:
            raise ConfigError(shown, "this endpoint does not accept the field, because its meaning is not classified")
        elif known[field] is Names.NOTHING or value is None:
            result[name] = written
        elif known[field] is Names.METHODS:
            result[name] = {key: _method(one, f"{shown}.{key}", leaf) for key, one in value.items()}
        else:
            result[name] = leaf(known[field], value, shown)
    return result


def _has_sections(values: Iterable[Any]) -> bool:
    return any(isinstance(one, BaseModel) for one in values)


def _inner(known: Mapping[str, Names], config: Any, field: str, shown: str, leaf: Leaf) -> dict[str, Any]:
    """Returns one of several sections, as validated, because the submitted form may be shorter."""
    if not isinstance(config, BaseModel):
        raise ConfigError(shown, "expected a section, like the others in this list or mapping")
    return _section(known, config, config.model_dump(exclude_unset=True), (f"{field}.", f"{shown}."), leaf)


def _method(written: Any, shown: str, leaf: Leaf) -> Any:
    """Returns a method of an evaluation: a finished audit, or an audit's fields.

    The fields that the evaluation fills in have placeholder values while the others are checked.
    """
    if not isinstance(written, Mapping):
        return leaf(Names.RUN, written, shown)
    if taken := [name for name in FILLED_IN if name in written]:
        raise ConfigError(shown, f"{', '.join(taken)} is set by the evaluation; remove it here")
    try:
        audit = AuditConfig.model_validate({"task": "-", "classes": ["-"], **written, **FILLED_IN})
    except ValidationError as error:
        problem = first_problem(error, None, AuditConfig)
        raise ConfigError(f"{shown}.{problem.field}".rstrip("."), str(problem)) from error
    return _section(FIELDS["c2b"], audit, written, ("", f"{shown}."), leaf)


def fields_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yields the dotted name of every field of a config, in sections too; sections themselves are left out."""
    for name, field in model.model_fields.items():
        sections = list(_sections(field.annotation))
        for section in sections:
            yield from fields_of(section, f"{above}{name}.")
        if not sections:
            yield f"{above}{name}"


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)
