"""Reads and checks a config file once, at the edge, and walks its fields.

It reads other audits' names for fields, fills in defaults that depend on other fields, and turns pydantic's errors into
one that names the fields as the file does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from c2b_ray.config.audit import (
    ALL_IMAGES,
    IMAGES_PER_CAPTION,
    RETRIEVED_BESIDES,
    SCREENING_IMAGES,
    AuditConfig,
    Screening,
)
from c2b_ray.config.classifiers import PACKAGED, read_label_map
from c2b_ray.config.images import LARGEST_POOL, Images
from c2b_ray.config.named import MODELS, Names, StrictModel, names_by_field, replaced_texts
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.storage import refuse_keys
from c2b_ray.storage.confined import located
from c2b_ray.storage.manifest import FileOrFields, read_yaml

# Turns pydantic's errors about a file into one error that names the fields as the file does.


_OF_UNION = re.compile(r"str|constrained-\w+|(?:list|dict|literal|union|function-[\w-]+)\[.*\]", re.DOTALL)
"""What pydantic puts into a field's path for the alternatives of its type, such as `str` and `list[str]`."""
_NAMED = re.compile(r"([a-z_]+): ")
MOST_TOLD = 20
Problem = Mapping[str, Any]
"""One of the problems that `ValidationError.errors` lists."""


def first_problem(error: ValidationError, file: str | None, root: type[BaseModel] = AuditConfig) -> ConfigError:
    """Returns the first problem, unknown keys first: a misspelt `task` is reported as such, not as a missing `task`.
    The others follow in its message, a line each. `root`: the file's model."""
    unknown_first = sorted(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    problems = [_in_words(group, root) for group in _by_field(unknown_first)]
    (field, message), other_problems = problems[0], problems[1 : MOST_TOLD + 1]
    lines = [message, *(f"{name}: {words}" for name, words in other_problems)]
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines)} more")
    return ConfigError(field, "\n".join(lines), location=file)


def _by_field(problems: Sequence[Problem]) -> list[list[Problem]]:
    """Returns the problems of each field, in their order. Where a field may be "one name" or "a list of names", both
    fail: they are one field's, as is a problem of a part of the value."""
    groups: dict[tuple[str, ...], list[Problem]] = {}
    for problem in problems:
        path = tuple(_path(problem))
        path_of_group = next((group for group in groups if group[: len(path)] == path[: len(group)]), path)
        groups.setdefault(path_of_group, []).append(problem)
    return list(groups.values())


def _in_words(group: Sequence[Problem], root: type[BaseModel]) -> tuple[str, str]:
    """Returns the field of a group of problems and what is wrong with it."""
    problem = group[0]
    if problem["type"] == "literal_error":  # the alternative that fits the value better is further inside
        problem = max(group, key=lambda item: len(item["loc"]))
    path, message = _path(problem), problem["msg"].removeprefix("Value error, ")
    if (match := _NAMED.match(message)) and match[1] in section_at(root, path).model_fields:
        # A check of a whole section, about one of its fields.
        path, message = [*path, match[1]], message[match.end() :]
    if problem["type"] == "extra_forbidden":
        message = f"unknown key; {nearest(path[-1], section_at(root, path[:-1]).model_fields)}"
    elif problem["type"] == "model_type":
        message = "expected a mapping of its fields"
    elif problem["type"] == "literal_error" and isinstance(problem["input"], str):
        message += f", not {problem['input'][:100]!r}"
    return ".".join(path), message


def _path(problem: Problem) -> list[str]:
    return [str(part) for part in problem["loc"] if not _OF_UNION.fullmatch(str(part))]


def section_at(root: type[BaseModel], path: list[str]) -> type[BaseModel]:
    """Returns the model of the section at `path`, as far as the fields are known."""
    for name in path:
        annotation: Any = root.model_fields[name].annotation if name in root.model_fields else None
        kinds = (kind for kind in (annotation, *get_args(annotation)) if isinstance(kind, type))
        sections = [kind for kind in kinds if issubclass(kind, BaseModel)]
        if not sections:
            break
        root = sections[0]
    return root


# Fills in defaults that depend on other fields, so that a run's config records what was done.


POOL = 10
"""The size of each caption's pool, as a multiple of the images that a cell wants."""


def with_defaults(config: AuditConfig, file: str | None = None) -> AuditConfig:
    """Returns the config with all defaults filled in. Raises ConfigError, which names the `file`, for fields that
    exclude each other."""
    if config.images.sources == ("labelled",):
        if config.confirm:
            raise ConfigError(
                "confirm", "a labelled table has no further images; generate or retrieve some", location=file
            )
        if config.screening is not None:
            raise ConfigError(
                "screening",
                "a labelled table has no fresh images; all of its rows are examined at once. Leave it out",
                location=file,
            )
        return config
    screening = config.screening or _screening(config)
    on_fresh = screening is not None and not screening.tests_all
    screened = ceil(SCREENING_IMAGES / config.captions_per_cell)
    per_caption = config.images_per_caption or (screened if on_fresh else IMAGES_PER_CAPTION)
    changes: dict[str, object] = {"images_per_caption": per_caption, "screening": screening}
    config = config.model_copy(update={"screening": screening})
    if "retrieve" in config.images.sources:
        changes["images"] = _images(config, per_caption, file)
    return config.model_copy(update=changes)


def _screening(config: AuditConfig) -> Screening | None:
    """Returns the two stages that images have by default; None where the config names a size or a budget, or needs all
    images at once.

    An index may hold too few further images to be tested alone, and which it holds is known only once they are
    verified: so retrieved images are tested on those of both stages. Without a verifier, images beyond the nearest ones
    match the caption less.
    """
    names_size = config.images_per_caption is not None or config.budget is not None
    is_single_stage = config.confirm or bool(config.intersections)
    if names_size or is_single_stage:
        return None
    if config.images.sources == ("generate",):
        return Screening()
    accepts = config.verification is not None and config.images.selection != "nearest"
    retrieved = config.images.sources == ("retrieve",) and config.images.cluster is None
    return Screening(fresh=RETRIEVED_BESIDES, tested=ALL_IMAGES) if retrieved and accepts else None


def _images(config: AuditConfig, per_caption: int, file: str | None) -> Images:
    images, verified = config.images, config.verification is not None
    selection = images.selection or ("accepted" if verified else "nearest")
    if selection == "accepted" and not verified:
        raise ConfigError(
            "images.selection", "accepted needs `verification`: without it no image can be accepted", location=file
        )
    if images.pool is not None and images.pool < per_caption:
        raise ConfigError(
            "images.pool", f"{images.pool:,} images cannot give {per_caption:,} (images_per_caption)", location=file
        )
    for name in ("confirm", "screening"):
        if getattr(config, name) and selection == "nearest":
            raise ConfigError(
                name,
                f"images beyond the nearest ones match the caption less; {name} needs "
                "`verification`, and images.selection: accepted",
                location=file,
            )
    design = config.screening
    # Tested with the others, further images may be few: a pool of ten times the first ones holds many that match.
    fresh = 0 if design is None or design.tests_all else design.fresh
    pool = images.pool or min(POOL * (per_caption * config.captions_per_cell + fresh), LARGEST_POOL)
    return images.model_copy(update={"pool": pool, "selection": selection})


# Reads what files of another audit call differently: `labels` for `classes`, sections for `source: labelled`.


_log = logging.getLogger(__name__)
_SOURCES: dict[str, dict[str, str]] = {"labelled": {}, "generate": {"model": "generator"}}
"""Sources that both ways know: the names of fields in a section of its own → beside `source`."""


Fields = dict[str, Any]


def audit_words(fields: Fields) -> Fields:
    """Returns the fields of an audit file in the words of `c2b audit`."""
    return _with_images(_renamed(fields, "labels", "classes"), _beside_source)


def search_words(fields: Fields) -> Fields:
    """Returns the fields of a file in the words of `c2b failures`."""
    return _with_images(_renamed(fields, "classes", "labels"), _in_sections)


def dataset_words(fields: Fields) -> Fields:
    """Returns the fields of a file in the words of `c2b dataset build`."""
    return _with_images(fields, _in_sections)


def _with_images(fields: Fields, read: Callable[[Any], Any]) -> Fields:
    return fields | {"images": read(fields["images"])} if "images" in fields else fields


def _renamed(fields: Fields, other: str, name: str) -> Fields:
    """Returns the fields with the key `other` as `name`, if only `other` is there; else unchanged."""
    if other not in fields or name in fields:
        return fields
    _say(f"`{other}` is read as `{name}`, which is its name in this file")
    return {name if key == other else key: value for key, value in fields.items()}


def _beside_source(images: Any) -> Any:
    """Returns `{labelled: {table: T}}` as `{source: labelled, table: T}`; what is not of this form unchanged."""
    if not isinstance(images, Mapping) or len(images) != 1:
        return images
    [(source, section)] = images.items()
    if source not in _SOURCES or not isinstance(section, Mapping) or "source" in section:
        return images
    _say(f"`images: {{{source}: …}}` is read as `images: {{source: {source}, …}}`, as this file says it")
    return {"source": source, **{_SOURCES[source].get(key, key): value for key, value in section.items()}}


def _in_sections(images: Any) -> Any:
    """Returns `{source: labelled, table: T}` as `{labelled: {table: T}}`; what is not of this form unchanged."""
    if not isinstance(images, Mapping) or not isinstance(source := images.get("source"), str) or source not in _SOURCES:
        return images
    _say(f"`images: {{source: {source}, …}}` is read as `images: {{{source}: …}}`, as this file says it")
    names = {given_name: own_name for own_name, given_name in _SOURCES[source].items()}
    return {source: {names.get(key, key): value for key, value in images.items() if key != "source"}}


@cache
def _say(message: str) -> None:
    """Logs the message, once in a process: a file is read several times."""
    _log.warning(message)


Config = TypeVar("Config", bound=StrictModel)


@dataclass(frozen=True)
class ConfigFile(Generic[Config]):
    """A kind of config file. `command`: the command that takes it. `classes`: the field with the classes to which the
    label map of a file is cut; empty: it is kept whole. `completed`: reads what the fields of a file name instead of
    holding it. `worded`: reads what files of another kind call differently."""

    model: type[Config]
    command: str
    classes: str = ""
    completed: Callable[[dict[str, Any], Path], dict[str, Any]] = lambda fields, file: fields
    worded: Callable[[dict[str, Any]], dict[str, Any]] = lambda fields: fields

    def read(self, source: FileOrFields | Config, classifier: str | dict[str, str] | None = None) -> Config:
        """Returns the config from a YAML file, a mapping of its fields, or a config.

        Relative paths, also those inside specs, become relative to the file; for a mapping or config, to the working
        directory. `classifier` replaces that of the source. Raises ConfigError, which names the field.
        """
        instead = {} if classifier is None else {"classifier": classifier}
        if isinstance(source, self.model):
            refuse_keys_within(source.model_dump(), None)
            return self._located(source.model_copy(update=instead), Path.cwd())
        if isinstance(source, dict):
            return self._located(self._validated({**self.worded(source), **instead}, None), Path.cwd())
        if not isinstance(source, str | Path):
            raise ConfigError(
                "", f"expected the path of a file of {self.command}, or a mapping of its fields, found {_kind(source)}"
            )
        fields = self.completed(self.worded(self._fields(source)), Path(source))
        return self._located(self._validated({**fields, **instead}, str(source)), Path(source).parent)

    def fields(self, source: str | Path) -> dict[str, Any]:
        """Returns the fields of a YAML file as they are written, in this kind's own words, and with the texts that it
        names instead of holding them. They are not checked, and paths stay relative to the file."""
        return self.completed(self.worded(self._fields(source)), Path(source))

    def _fields(self, file: str | Path) -> dict[str, Any]:
        schema = f"{self.command} --print-schema shows what the file holds"
        try:
            fields = read_yaml(file)
        except SourceError as error:
            error.args = (f"{error}; {schema}",)
            raise
        if not isinstance(fields, dict):
            required = [name for name, field in self.model.model_fields.items() if field.is_required()]
            problem = (
                f"expected a mapping of fields such as {' and '.join(required[:2])}, found {_kind(fields)}; {schema}"
            )
            raise ConfigError("", problem, location=str(file))
        return fields

    def _validated(self, fields: dict[str, Any], file: str | None) -> Config:
        refuse_keys_within(fields, file)
        try:
            return self.model.model_validate(fields)
        except ValidationError as error:
            raise first_problem(error, file, self.model) from error
        except RecursionError as error:
            raise ConfigError("", "it is nested too deeply", location=file) from error

    def _located(self, config: Config, base: Path) -> Config:
        config = replaced_texts(config, lambda names, text: located_text(names, text, base))
        label_map = getattr(config, "label_map", None)
        if isinstance(label_map, str):
            return config.model_copy(update={"label_map": self.label_map(label_map, config)})
        return config

    def label_map(self, path: str, config: Config) -> dict[str, list[int | str]]:
        """Returns the label map in a file, cut to the classes of the config."""
        return read_label_map(path, getattr(config, self.classes) or [] if self.classes else [])


def _kind(data: object) -> str:
    return "nothing" if data is None else f"a {type(data).__name__}"


def located_text(names: Names, text: str, base: Path) -> str:
    """Returns a text of a config with each relative path in it made absolute, relative to `base`."""
    if names in MODELS:
        return located(text, base)
    return text if names is Names.HIERARCHY and text in PACKAGED else located_path(text, base)


def located_path(path: str, base: Path) -> str:
    if "://" in path or Path(path).is_absolute():
        return path
    if path.startswith("faiss:"):
        return located(path, base)
    return str((base / Path(path).expanduser()).resolve())


def refuse_keys_within(value: object, file: str | None, field: str = "", depth: int = 0) -> None:
    """Refuses API keys and NUL characters before the fields are checked: errors about fields would repeat their
    values."""
    if isinstance(value, str):
        refuse_keys(value)
        if "\0" in value:
            raise ConfigError(field, f"{value[:100]!r} holds a NUL character", location=file)
    elif isinstance(value, dict | list) and depth < 8:
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            refuse_keys_within(item, file, f"{field}.{name}" if field else str(name), depth + 1)


AUDIT_FILE = ConfigFile(AuditConfig, "c2b audit", classes="classes", worded=audit_words)


def read_audit(source: FileOrFields | AuditConfig, classifier: str | dict[str, str] | None = None) -> AuditConfig:
    """Returns a complete audit, its defaults filled in, as `ConfigFile.read` does. A complete config is returned
    unchanged."""
    file = None if isinstance(source, AuditConfig | dict) else str(source)
    return with_defaults(AUDIT_FILE.read(source, classifier), file)


# Walks the fields of a config as they were written, and replaces those that name a model or a file. Unlike
# `named.replaced_texts`, which changes a config, it keeps the form in which fields were written: a config that is sent
# to an endpoint, or stored there, says nothing but what its author said.


FILLED_IN = {"classifier": "world:clip"}
"""The fields of an audit that an evaluation fills in, with placeholders for the check of a method's fields."""
Leaf = Callable[[Names, Any, str], Any]


def replaced(config: BaseModel, raw: Mapping[str, Any], leaf: Leaf) -> dict[str, Any]:
    """Returns `raw` with the value of each field that names something replaced by `leaf(names, value, field)`.

    `config` is `raw` after validation; values are taken from it, because validation strips spaces. Raises ConfigError
    for a field whose type does not say what it names.
    """
    return _section(config, raw, "", leaf)


def _section(config: BaseModel, raw: Mapping[str, Any], above: str, leaf: Leaf) -> dict[str, Any]:
    """Does `replaced` for a section. `above`: the prefix of its fields' names in messages."""
    known = names_by_field(type(config))
    result: dict[str, Any] = {}
    for name, written in raw.items():
        shown, value, names = f"{above}{name}", getattr(config, name), known[name]
        if isinstance(value, BaseModel):
            inner = written.model_dump(exclude_unset=True) if isinstance(written, BaseModel) else written
            result[name] = _section(value, inner, f"{shown}.", leaf)
        elif isinstance(value, dict) and _has_sections(value.values()):
            result[name] = {key: _inner(one, f"{shown}.{key}", leaf) for key, one in value.items()}
        elif isinstance(value, list) and _has_sections(value):
            result[name] = [_inner(one, f"{shown}.{at}", leaf) for at, one in enumerate(value)]
        elif value is None or value == [] or value == {}:  # an omitted section, for one
            result[name] = written
        elif names is None:
            raise ConfigError(shown, "this endpoint does not accept the field, because its meaning is not classified")
        elif names is Names.NOTHING:
            result[name] = written
        elif names is Names.METHODS:
            result[name] = {key: _method(one, f"{shown}.{key}", leaf) for key, one in value.items()}
        else:
            result[name] = leaf(names, value, shown)
    return result


def _has_sections(values: Iterable[Any]) -> bool:
    return any(isinstance(one, BaseModel) for one in values)


def _inner(config: Any, shown: str, leaf: Leaf) -> dict[str, Any]:
    """Returns one of several sections, as validated, because the submitted form may be shorter."""
    if not isinstance(config, BaseModel):
        raise ConfigError(shown, "expected a section, like the others in this list or mapping")
    return _section(config, config.model_dump(exclude_unset=True), f"{shown}.", leaf)


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
        message = str(problem).removeprefix(f"{problem.field}: " if problem.field else "")
        raise ConfigError(f"{shown}.{problem.field}".rstrip("."), message) from error
    return _section(audit, written, f"{shown}.", leaf)
