"""How a run was made: settings, models, versions, counts and times, as rows of words, and how to make it again.

Reads the manifest, any part of which may be absent; hides credentials and paths. Knows no kind of run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from c2b_ray.report import words
from c2b_ray.report.redact import clean, cleaned, names_of

Row = tuple[str, str]
_ROLES = {
    "language_model": "Language model",
    "encoder": "Encoder",
    "index": "Index",
    "classifier": "Classifier",
    "table": "Labelled table",
    "generator": "Generator",
    "generators": "Generator",
    "captioner": "Captioner",
    "verifier": "Verifier",
    "reader": "Reader of values",
    "describer": "Captioner of words",
    "slicer": "Encoder of slices",
    "classifiers": "Classifier",
}


@dataclass(frozen=True)
class Fact:
    """A setting of a model. `assumed`: no file states it; `option`: the spec's option that would."""

    name: str
    value: str
    source: str
    assumed: bool
    option: str


@dataclass(frozen=True)
class Model:
    role: str
    spec: str
    revision: str
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Method:
    """Rows of (name, value); `file` and `command` make the run again."""

    settings: tuple[Row, ...]
    models: tuple[Model, ...]
    counts: tuple[Row, ...]
    seconds: tuple[Row, ...]
    versions: tuple[Row, ...]
    file: str
    command: str
    shortened: bool  # paths or credentials were taken out of the file

    @property
    def assumptions(self) -> tuple[tuple[Model, Fact], ...]:
        return tuple((model, fact) for model in self.models for fact in model.facts if fact.assumed)

    @property
    def stated(self) -> tuple[tuple[Model, Fact], ...]:
        return tuple((model, fact) for model in self.models for fact in model.facts if not fact.assumed)


def method_of(
    manifest: Mapping[str, Any], settings: Sequence[Row], names_of_counts: Mapping[str, str], command: str
) -> Method:
    """Returns the method section. `names_of_counts`: the page's names of the manifest's counts; `command`: the default
    for a manifest without a command."""
    config = {name: value for name, value in mapping(manifest.get("config")).items() if value is not None}
    shown_config = cleaned(config)
    return Method(
        settings=tuple(settings),
        models=tuple(_models(mapping(cleaned(manifest.get("models"))))),
        counts=tuple(_counts(mapping(manifest.get("counts")), names_of_counts)),
        seconds=tuple(_seconds(mapping(manifest.get("seconds")))),
        versions=tuple((clean(str(name)), clean(str(v))) for name, v in mapping(manifest.get("versions")).items()),
        file=yaml.safe_dump(shown_config, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)
        if shown_config
        else "",
        command=_command(manifest, command),
        shortened=shown_config != config,
    )


def times(manifest: Mapping[str, Any]) -> Iterator[Row]:
    for name, key in (("Started", "created"), ("Finished", "finished")):
        if manifest.get(key):
            yield name, words.moment(str(manifest[key]))


def mapping(value: Any) -> Mapping[str, Any]:
    """Returns the value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, Mapping) else {}


def number(value: Any, default: float) -> float:
    """Returns the value if it is a number, else the default."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _models(models: Mapping[str, Any]) -> Iterator[Model]:
    for role, value in models.items():
        kind, _, role_spec = role.partition(" ")  # the manifest keys classifiers as "classifier SPEC"
        name = _ROLES.get(role.replace(" ", "_")) or _ROLES.get(kind, kind.replace("_", " ").capitalize())
        if kind == "generator" and role_spec:
            name = f"{name} {role_spec}"
        for spec, entry in _entries(value):
            if spec == words.UNKNOWN and not entry.get("revision"):
                continue
            revision = entry.get("revision")
            yield Model(name, spec, words.UNKNOWN if revision is None else str(revision), tuple(_facts(entry)))


def _facts(entry: Mapping[str, Any]) -> Iterator[Fact]:
    facts = entry.get("facts")
    for fact in facts if isinstance(facts, list | tuple) else ():
        fields = mapping(fact)
        name, value, source, option = (clean(str(fields.get(key, ""))) for key in ("name", "value", "source", "option"))
        yield Fact(name, value, source, bool(fields.get("assumed")), option)


def _entries(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields (spec, entry) of one model, a list of models, or models by name, whichever the manifest holds."""
    if isinstance(value, str):
        yield value, {}
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _entries(item)
    elif isinstance(value, Mapping) and ("spec" in value or "revision" in value):
        yield str(value.get("spec") or words.UNKNOWN), value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            entry = item if isinstance(item, Mapping) else {"revision": item}
            yield str(entry.get("spec") or name), entry


def _counts(counts: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Row]:
    for name, value in counts.items():
        if isinstance(value, int | float):
            yield names.get(name, name.replace("_", " ").capitalize()), words.count(int(value))


def _seconds(seconds: Mapping[str, Any]) -> Iterator[Row]:
    seconds_of_step = {str(step): float(value) for step, value in seconds.items() if isinstance(value, int | float)}
    for step, value in seconds_of_step.items():
        yield clean(step).capitalize(), words.duration(value)
    if len(seconds_of_step) > 1:
        yield "Together", words.duration(sum(seconds_of_step.values()))


def _command(manifest: Mapping[str, Any], otherwise: str) -> str:
    command = manifest.get("command")
    return clean(command) if isinstance(command, str) and command else otherwise


# What a run's answers show about its classifiers' set-up, which comes before anything else that a page says.


@dataclass(frozen=True)
class SetupNote:
    """`classifier`: "" where the run has one. `hopeless`: the page's other results say nothing about it. `explained`: a
    finding of the run may be the cause."""

    classifier: str
    seen: str
    cause: str
    remedy: str
    hopeless: bool
    explained: bool = False


NOTHING_FOLLOWED: Mapping[str, str] = {}


def setup_notes(manifest: Mapping[str, Any], followed: Mapping[str, str] = NOTHING_FOLLOWED) -> tuple[SetupNote, ...]:
    """`followed`: classifier → what its answers follow in place of the class, if the run has found that."""
    rows = manifest.get("setup")
    rows = [mapping(row) for row in rows] if isinstance(rows, Sequence) and not isinstance(rows, str) else []
    has_several = sum(name.startswith("classifier ") for name in mapping(manifest.get("models"))) > 1
    return tuple(_note(row, has_several, followed) for row in rows if row.get("seen"))


def _note(row: Mapping[str, Any], names_classifier: bool, followed: Mapping[str, str]) -> SetupNote:
    observation, cause, remedy = (clean(str(row.get(name, ""))) for name in ("seen", "cause", "remedy"))
    hopeless, what = bool(row.get("hopeless")), followed.get(str(row.get("classifier", "")))
    explained = row.get("kind") == "chance" and not hopeless and what is not None
    if explained:
        otherwise = f"If not, {cause[:1].lower()}{cause[1:]}"
        cause = f"The answers follow the {what} of the images, which may be the reason. {otherwise}"
    return SetupNote(_shown(row) if names_classifier else "", observation, cause, remedy, hopeless, explained)


def setup_lines(manifest: Mapping[str, Any], followed: Mapping[str, str] = NOTHING_FOLLOWED) -> list[str]:
    """Returns the notes as lines for a terminal. `followed`: as for `setup_notes`."""
    return [
        f"set-up: {note.classifier + ': ' if note.classifier else ''}{note.seen} {note.cause} {note.remedy}"
        for note in setup_notes(manifest, followed)
    ]


def _shown(row: Mapping[str, Any]) -> str:
    name = str(row.get("classifier", ""))
    return names_of([name])[name]
