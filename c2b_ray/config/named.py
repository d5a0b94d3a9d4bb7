"""What every section of a config has in common: strict fields, whose types say what their texts name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from c2b_ray.errors import nearest
from c2b_ray.names import folded, normalise

# The common rules of every section of a config file: no unknown keys, no `true` for a number, distinct names.


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuses `true`, which pydantic would convert to 1, in all fields but those that may be a bool."""
        kind = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and bool not in (kind, *get_args(kind)):
            raise ValueError(f"{str(value).lower()} is neither a number nor a text; quote it where a text is meant")
        return value


ALL = "all"
NAMES_OR_ALL = {"anyOf": [{"const": ALL}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
"""The JSON schema of a list of names, or the word for all there are."""


def names_or_all(value: Any, what: str) -> Any:
    """Returns a list of names as it is, and the word `all` as an empty list. Raises ValueError for an empty list and
    another word. `what`: one of the names, for the error."""
    if value == []:
        raise ValueError(f"name at least one {what}, or `{ALL}`")
    if isinstance(value, str) and value != ALL:
        raise ValueError(f"expected a list of names, or `{ALL}`, not {value[:100]!r}")
    return [] if value == ALL else value


def known_columns(columns: Mapping[str, str] | None, known: Sequence[str]) -> None:
    """Refuses a mapping of columns that names one which no table has; the message offers the nearest."""
    if unknown := [name for name in columns or () if name not in known]:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(known)}; {nearest(unknown[0], known)}")


def distinct(names: list[str], noun: str, normal_form: Callable[[str], str] = normalise) -> None:
    first_spelling: dict[str, str] = {}
    for name in names:
        if normal_form(name) in first_spelling:
            earlier = first_spelling[normal_form(name)]
            hint = "" if folded(earlier) == folded(name) else f": {earlier!r} is compared as the same name"
            raise ValueError(f"{noun} {name!r} is given twice{hint}")
        first_spelling[normal_form(name)] = name


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
    ROOT = "a folder that the paths in a table lie below"
    CAPTIONS = "a table of captions"
    CAPTIONED = "a table of images with captions"
    VALUES = "a table of results, vectors or hyperplanes, which names no files"
    ANNOTATED = "a folder of images with annotations, or a file of these"
    METHODS = "finished audits, or audits' fields, which name what an audit names"
    HEADS = "a folder of heads, as `c2b prompts heads` writes it"
    RUN = "another run"
    HIERARCHY = "a packaged hierarchy, or a file or folder"
    LABEL_MAP = "a label map, or a file of one"


MODELS = frozenset(
    {
        Names.CLASSIFIER,
        Names.LANGUAGE_MODEL,
        Names.ENCODER,
        Names.GENERATOR,
        Names.LATENT_GENERATOR,
        Names.GUESSER,
        Names.CAPTIONER,
        Names.SENTENCE_ENCODER,
    }
)
"""Named by a spec; the value is the role that a model of the spec has."""
_OR_ITSELF = (Names.LABEL_MAP, Names.METHODS)
"""Instead of naming a file, the value may be what the file would hold."""

SpecText = Annotated[str, Field(min_length=1, max_length=2000)]
"""A model's spec, which may hold the paths of its weights and of its labels. It does not say which kind of model."""
LONGEST_NAME = 200
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), Names.NOTHING]
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
RootPath = Annotated[str, Names.ROOT]
RunPath = Annotated[str, Names.RUN]
HierarchyName = Annotated[str, Names.HIERARCHY]


_WITHOUT_TEXT = (int, float, bool, NoneType)
Section = TypeVar("Section", bound=BaseModel)


@dataclass(frozen=True)
class NamedText:
    """A text in a config. `field`: of one of several, with its name, such as "generators.base"."""

    field: str
    names: Names
    text: str


def texts_of(config: BaseModel, prefix: str = "") -> Iterator[NamedText]:
    """Yields each text of a config, and of its sections, that names something."""
    for name, names in names_by_field(type(config)).items():
        yield from _texts(getattr(config, name), names, f"{prefix}{name}")


def _texts(value: Any, names: Names | None, field: str) -> Iterator[NamedText]:
    if isinstance(value, BaseModel):
        yield from texts_of(value, f"{field}.")
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, names, field)
    elif isinstance(value, dict) and names not in _OR_ITSELF:
        for name, item in value.items():
            yield from _texts(item, names, f"{field}.{name}")
    elif isinstance(value, str) and names is not None and names is not Names.NOTHING:
        yield NamedText(field, names, value)


def replaced_texts(config: Section, change: Callable[[Names, str], str]) -> Section:
    """Returns the config with each text that names something replaced by `change(names, text)`."""
    changes = {}
    for name, names in names_by_field(type(config)).items():
        old = getattr(config, name)
        if (new := _replaced(old, names, change)) != old:
            changes[name] = new
    return config.model_copy(update=changes) if changes else config


def _replaced(value: Any, names: Names | None, change: Callable[[Names, str], str]) -> Any:
    if isinstance(value, BaseModel):
        return replaced_texts(value, change)
    if isinstance(value, list):
        return [_replaced(item, names, change) for item in value]
    if isinstance(value, dict) and names not in _OR_ITSELF:
        return {name: _replaced(item, names, change) for name, item in value.items()}
    if isinstance(value, str) and names is not None and names is not Names.NOTHING:
        return change(names, value)
    return value


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
    if names := [item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Names)]:
        yield from names
    elif get_origin(annotation) is Annotated:
        yield from _parts_name(annotation.__origin__)
    elif get_origin(annotation) is Literal or annotation in _WITHOUT_TEXT:
        yield Names.NOTHING
    elif parts := get_args(annotation):
        for part in parts:
            yield from _parts_name(part)
    else:
        yield None


# The fields of a question to a finished run on the shared endpoint, named like the options of `c2b ask`.


IMAGES, DRAWS = 50, 20_000
"""How many images an audit, and draws a failures run, takes for a question that does not say."""
LABELLED = (
    "it is an audit of labelled images, which holds none for a sentence of yours; ask one whose images come from an "
    "index or a generator"
)


class QuestionConfig(StrictModel):
    """A question to a finished run: how well does the classifier do on images of a sentence? A field that the kind of
    run does not use is refused."""

    run: RunPath = Field(description="The finished audit or failures run.")
    sentence: Name = Field(description="A description of images, such as 'a bus in the snow at night'.")
    n: int | None = Field(
        None, ge=1, le=100_000, description="The number of images. Default: 50 for an audit, 20,000 for a failures run."
    )
    classifier: Name | None = Field(None, description="One classifier of an audit. Default: all of them.")
    target_class: Name | None = Field(
        None, description="The audit's class that the sentence is about. Default: the class that the sentence names."
    )
    target: Name | None = Field(None, description="A wrong label of a failures run to test for, besides any failure.")


def draws_images(config: Mapping[str, Any]) -> bool:
    """Returns whether a run of this config found or made its images, and so can do it for the sentence of a question.
    A run on labelled images has no others."""
    images = config.get("images") or {}
    return any(images.get(source) is not None for source in ("index", "generator", "generate"))


# The section `verification` of an audit file: the model that checks whether images show what their captions say.


class Verification(StrictModel):
    """The model that checks whether images show what their captions say, and how its accuracy is measured."""

    model: CaptionerSpec = Field(description="The spec of a captioner; `open_clip:` and `world:clip` are small ones.")
    calibration: TablePath | None = Field(
        None,
        description="A table of labelled images, as for source: labelled, on which the captioner's accuracy is "
        "measured; a hundred images of each value suffice. Without it the captioner's own certainty is used as its "
        "accuracy, and the report says so.",
    )
