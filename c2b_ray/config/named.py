"""What the texts of a config's fields name: a model, a file, or nothing. The type of a field says it.

The shared endpoint reads it from the types (`endpoint.policy`) and refuses a field whose type does not say it, so that
a new field cannot name a file before somebody has said which. This module knows types of fields, not what may be named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Field


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


SpecText = Annotated[str, Field(min_length=1, max_length=2000)]
"""A model's spec, which may hold the paths of its weights and of its labels. It does not say which kind of model."""
Name = Annotated[str, Field(min_length=1, max_length=200), Names.NOTHING]
ClassifierSpec = Annotated[SpecText, Names.CLASSIFIER]
LanguageModelSpec = Annotated[SpecText, Names.LANGUAGE_MODEL]
EncoderSpec = Annotated[SpecText, Names.ENCODER]
GeneratorSpec = Annotated[SpecText, Names.GENERATOR]
LatentGeneratorSpec = Annotated[SpecText, Names.LATENT_GENERATOR]
GuesserSpec = Annotated[SpecText, Names.GUESSER]
CaptionerSpec = Annotated[SpecText, Names.CAPTIONER]
SentenceEncoderSpec = Annotated[SpecText, Names.SENTENCE_ENCODER]
IndexPath = Annotated[str, Names.INDEX]
TablePath = Annotated[str, Names.TABLE]
RunPath = Annotated[str, Names.RUN]
HierarchyName = Annotated[str, Names.HIERARCHY]


_WITHOUT_TEXT = (int, float, bool, NoneType)


@cache
def names_by_field(section: type[BaseModel]) -> Mapping[str, Names | None]:
    """Returns what each field of a section names; None for a field whose type does not say it, as that of a field which
    holds another section does not: its class says it."""
    hints = get_type_hints(section, include_extras=True)
    return {name: _named(hints[name]) for name in section.model_fields}


def _named(annotation: Any) -> Names | None:
    kinds = set(_parts_name(annotation)) - {Names.NOTHING}
    if len(kinds) > 1:
        return None
    return kinds.pop() if kinds else Names.NOTHING


def _parts_name(annotation: Any) -> Iterator[Names | None]:
    """Yields what each part of a type names; None for a part that does not say it."""
    if marks := [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Names)]:
        yield from marks
    elif get_origin(annotation) is Annotated:
        yield from _parts_name(annotation.__origin__)
    elif get_origin(annotation) is Literal or annotation in _WITHOUT_TEXT:
        yield Names.NOTHING
    elif parts := get_args(annotation):
        for part in parts:
            yield from _parts_name(part)
    else:
        yield None
