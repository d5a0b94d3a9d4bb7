"""The fields of each kind's form, and the config that they and the YAML beside them make.

What the fields hold goes into the config; what the YAML names is added, and wins where both name a field. Whether the
config is right is the policy's to say, not the form's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from c2b_ray.endpoint.api.bodies import YAML, Document
from c2b_ray.endpoint.api.problems import FieldError, ProblemError

Type = Literal["text", "words", "number", "choice", "mapping", "model"]
MOST_DIGITS = 15


@dataclass(frozen=True)
class Field:
    """`name`: the config's field, with dots. `options`: of a choice, or what a text suggests: classifiers, generators,
    runs. `only`: a field and its value without which this one is left out."""

    name: str
    label: str
    hint: str = ""
    type: Type = "text"
    options: tuple[str, ...] | str = ()
    default: str = ""
    only: tuple[str, str] | None = None


_CLASSIFIER = Field(
    "classifier", "Classifier", "A spec such as world:resnet-planted-0 or onnx:upload:…; an upload's is in the list.",
    "model", "classifiers",
)  # fmt: skip
FIELDS: Mapping[str, tuple[Field, ...]] = {
    "c2b": (
        Field("task", "Task", "What the classifier is for, in a sentence."),
        Field("classes", "Classes", "Names with commas between them, or all.", "words"),
        _CLASSIFIER,
        Field("images.source", "Images", "Where the images come from.", "choice", ("generate", "retrieve", "labelled"),
              "generate"),
        Field("images.generator", "Generator", "Where images are generated.", "model", "generators", "world:renderer",
              ("images.source", "generate")),
        Field("images.index", "Index", "Where images are retrieved.", "text", (), "", ("images.source", "retrieve")),
        Field("images.table", "Table", "Where images are labelled: an upload, or a path below data/.", "model",
              "tables", "", ("images.source", "labelled")),
        Field("attributes", "Attributes", "One a line, as in: weather: clear, snow. Empty: a language model proposes.",
              "mapping"),
        Field("images_per_caption", "Images of each caption", "", "number"),
    ),
    "failures": (
        Field("labels", "Labels", "Names with commas between them.", "words"),
        _CLASSIFIER,
        Field("images.generate.model", "Generator", "What draws the images.", "model", "generators", "world:renderer"),
        Field("rule", "Failure", "Which answers are failures.", "choice",
              ("top1", "top1_parent", "top3", "top3_parent"), "top1"),
        Field("budget.draws", "Images in all", "", "number"),
    ),
    "dataset": (
        Field("captions.run", "Failures", "A finished run of failures, whose captions are taken.", "model", "runs"),
        _CLASSIFIER,
        Field("images.generate.model", "Generator", "What draws the images.", "model", "generators", "world:renderer"),
        Field("draws_per_caption", "Images of each caption", "", "number"),
        Field("cap_per_caption", "Kept of each caption", "At most.", "number"),
    ),
}  # fmt: skip


def config_of(kind: str, sent: Mapping[str, str], yaml_text: str) -> dict[str, Any]:
    """422 names the field that is no number or no list of attributes; 400 where the YAML is none."""
    config: dict[str, Any] = {}
    for field in FIELDS[kind]:
        text = sent.get(field.name, "")
        if text and (field.only is None or sent.get(field.only[0]) == field.only[1]):
            _put(config, field.name.split("."), _value(field, text))
    if not yaml_text.strip():
        return config
    more = Document(yaml_text.encode(errors="replace"), YAML[0]).parsed()
    if more is None:
        return config
    if not isinstance(more, dict):
        raise _wrong("yaml", "expected fields, one a line, such as seed: 7")
    return _merged(config, more)


def _value(field: Field, text: str) -> Any:
    if field.type == "number":
        if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
            raise _wrong(field.name, "expected a whole number")
        return int(text)
    if field.type == "words":
        return "all" if text == "all" else _words(text)
    if field.type != "mapping":
        return text
    pairs = [line.partition(":") for line in text.splitlines() if line.strip()]
    if any(not colon or not name.strip() or not values.strip() for name, colon, values in pairs):
        raise _wrong(field.name, "expected lines such as weather: clear, snow")
    names = [name.strip() for name, _, _ in pairs]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise _wrong(field.name, f"{twice!r} is there twice")
    return {name.strip(): _words(values) for name, _, values in pairs}


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.replace("\n", ",").split(",") if word.strip()]


def _put(config: dict[str, Any], steps: list[str], value: Any) -> None:
    for step in steps[:-1]:
        config = config.setdefault(step, {})
    config[steps[-1]] = value


def _merged(config: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """A mapping in both is merged field by field, at the first two levels."""
    merged = dict(config)
    for name, value in more.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict) and name != "attributes"
        merged[name] = {**merged[name], **value} if both else value
    return merged


def _wrong(name: str, why: str) -> ProblemError:
    return ProblemError(422, "invalid_config", f"{name}: {why}", [FieldError(name, why)])
