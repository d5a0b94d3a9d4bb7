"""Writes an audit file from a few answers: what is to be audited, on which images, with which language model.

It looks at what the answers name (classes and their images, labels, input size and normalisation and where each was
read) and writes it into the file as comments. Images are labelled ones (`audits.c2b.from_images`), an index of
photographs, or a generator that makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from c2b_ray.audits.c2b.estimate import INDEX_MANIFEST
from c2b_ray.audits.c2b.from_images import (
    Choices,
    DraftedAudit,
    are_images,
    default_task,
    described,
    drafted,
    match_classes,
    model_notes,
)
from c2b_ray.audits.kit.models import check_spec
from c2b_ray.config.classifiers import specs_by_name
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.models import catalog
from c2b_ray.roles import Description
from c2b_ray.storage import files, is_remote
from c2b_ray.storage.confined import located
from c2b_ray.storage.manifest import parse_json

LABELLED, INDEX, GENERATOR = "labelled images", "an index", "a generator"
MOST_CLASSES = 20
"""A classifier of more labels needs to be told which of them matter: each class multiplies the images."""


@dataclass(frozen=True)
class InitAnswers:
    """`images`: a folder or table of labelled images, an index, or the spec of a generator. `classes`: for images that
    are not labelled; empty: all labels of a classifier of few."""

    images: str
    classifier: Sequence[str]
    choices: Choices = field(default_factory=Choices)
    classes: Sequence[str] = ()


def kind_of(images: str) -> str:
    """Returns what is named: labelled images, an index or a generator. Raises SourceError, which says what to do."""
    if files.exists(f"{images.rstrip('/')}/{INDEX_MANIFEST}"):
        return INDEX
    if are_images(images):
        return LABELLED
    scheme = images.partition(":")[0]
    if scheme in catalog.schemes()["image_generator"]:
        return GENERATOR
    raise SourceError(
        f"{images}: no folder, table or index is there, and no generator is called so; expected a folder with a folder "
        "for each class, a table, a folder that `c2b index build` wrote, or a generator's spec such as diffusers:NAME"
    )


def draft(answers: InitAnswers) -> DraftedAudit:
    """Returns the audit file. Raises InputError for what `c2b audit` would refuse of these answers."""
    kind = kind_of(answers.images)
    if kind == LABELLED:
        try:
            return drafted(answers.images, list(answers.classifier), answers.choices)
        except SourceError as error:
            raise SourceError(
                f"{error}. Images without classes are searched by captions: c2b index build --images {answers.images} "
                "--encoder open_clip:ViT-B-32/laion2b_s34b_b79k --out photos.index, then name the index here"
            ) from error
    return _captioned(answers, kind)


def _captioned(answers: InitAnswers, kind: str) -> DraftedAudit:
    """Returns the audit file of images that captions draw."""
    if answers.choices.language_model is None:
        raise ConfigError(
            "--language-model",
            f"{kind} holds no attributes: name the model that proposes them, such as openai:http://host/v1#model",
        )
    specs = {name: located(spec, Path.cwd()) for name, spec in specs_by_name(list(answers.classifier)).items()}
    for name, spec in specs.items():
        check_spec("classifier" if len(specs) == 1 else f"classifier.{name}", "classifier", spec)
    check_spec("language_model", "language_model", answers.choices.language_model)
    descriptions = {name: described(spec) for name, spec in specs.items()}
    labels = next(iter(descriptions.values())).labels
    classes = list(answers.classes) or _all(labels)
    matching = match_classes(classes, labels)
    if matching.unmatched:
        unmatched_class = matching.unmatched[0]
        nearest_labels = f"; the nearest: {', '.join(unmatched_class.nearest)}" if unmatched_class.nearest else ""
        raise ConfigError("--classes", f"{unmatched_class.target_class}: {unmatched_class.why}{nearest_labels}")
    images, sentence = _images(answers.images, kind)
    fields: dict[str, Any] = {
        "task": answers.choices.task or default_task(classes),
        "classes": classes,
        "classifier": next(iter(specs.values())) if len(specs) == 1 else dict(specs),
        **({"label_map": matching.label_map(labels)} if matching.needs_map(labels) else {}),
        "images": images,
        "language_model": answers.choices.language_model,
    }
    notes = {"classifier": model_notes(descriptions), "images": [sentence]}
    warnings = (matching.assumed,) if matching.assumed else ()
    return DraftedAudit(fields, notes, (sentence,), warnings)


def _all(labels: Sequence[str]) -> list[str]:
    if len(labels) > MOST_CLASSES:
        raise ConfigError("--classes", f"the classifier has {len(labels):,} labels; name those to audit, with commas")
    return list(labels)


def _images(images: str, kind: str) -> tuple[dict[str, Any], str]:
    if kind == GENERATOR:
        check_spec("images.generator", "image_generator", images)
        return {"source": "generate", "generator": images}, "made from captions, in two stages"
    location = images if is_remote(images) else str(Path(images).expanduser().absolute())
    manifest = parse_json(files.read_bytes(f"{location.rstrip('/')}/{INDEX_MANIFEST}"))
    count = manifest.get("count") if isinstance(manifest, dict) else None
    encoder = manifest.get("encoder") if isinstance(manifest, dict) else None
    sentence = f"{location}: an index{f' of {count:,} images' if isinstance(count, int) else ''}, encoder {encoder}"
    return {"source": "retrieve", "index": location}, sentence


def look(spec: str) -> Description:
    """Returns what is known of a classifier, before anything else is asked."""
    check_spec("classifier", "classifier", located(spec, Path.cwd()))
    return described(located(spec, Path.cwd()))


def write(draft: DraftedAudit, out: str) -> str:
    """Writes the file, and returns its path. Raises ConfigError where one is there already."""
    if files.exists(out):
        raise ConfigError("--out", f"{out} is there already; choose another name, or remove it")
    files.write_bytes(out, draft.text.encode())
    return out
