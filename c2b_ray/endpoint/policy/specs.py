"""Turns a submitted config into the config that runs: every name in it checked and resolved, and nothing else added.

The API calls `check` before a job is stored. The job's process calls `check_again` right before it reads anything,
because files and links may have changed since. This module reads none of the files (`contents` does).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from c2b_ray.config.endpoint import Role
from c2b_ray.config.hierarchy import PACKAGED
from c2b_ray.config.named import MODELS, Names
from c2b_ray.config.problems import first_problem
from c2b_ray.config.reading import refuse_keys_within
from c2b_ray.config.walk import replaced
from c2b_ray.endpoint.policy.paths import RUN, Tenancy, located, verified
from c2b_ray.endpoint.policy.schemes import checked_spec
from c2b_ray.errors import AddressError, ConfigError, SourceError
from c2b_ray.names import folded

SPECS = (*MODELS, Names.INDEX)
GUESSERS = ("bag-of-words",)
_ROLES: dict[str, Role] = {role: role for role in get_args(Role)}
_UPLOADS: dict[Names, tuple[str, ...]] = {
    Names.TABLE: ("images", "table"),
    Names.CAPTIONS: ("table", "csv"),
    Names.CAPTIONED: ("table",),
    Names.VALUES: ("table", "csv"),
    Names.RUN: ("run",),
}
_SERVICES = ("http://", "https://", "openai:")
_DEEPEST, _MOST = 12, 1_000_000
LONGEST_NAME = 200
_LABELS = re.compile(r"(?<=[?&])labels=upload:[0-9a-f]{64}(?=&|$)")
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

Find = Callable[[str, str, tuple[str, ...]], str]
"""Maps a name, its field and the kinds of uploads that fit to a path."""


def check(config: Mapping[str, Any], model: type[BaseModel], tenancy: Tenancy) -> dict[str, Any]:
    """Returns the config that runs: `config` with every path absolute and every upload resolved.

    `model`: the kind's config class. ConfigError names a field that is wrong, or that names something this tenant may
    not use.
    """
    resolved = _walked(config, model, tenancy, lambda text, field, kinds: located(text, field, tenancy, kinds))
    if names_uploaded_weights(config):
        _refuse_services(config, model)
    return resolved


def names_uploaded_weights(config: Mapping[str, Any]) -> bool:
    """Returns whether a spec of a submitted config names uploaded weights, such as `onnx:upload:…`.

    Uploaded images and tables, also tables of predictions, and lists of labels are treated like the tenant's other
    data, and may be used with models of a hub or a listed service.
    """
    texts = (_LABELS.sub("", text) for _, text in _texts(config, "", 0))
    return any("upload:" in text[1:] and not text.startswith("table:") for text in texts)


def check_again(resolved: Mapping[str, Any], model: type[BaseModel], tenancy: Tenancy) -> None:
    """Raises ConfigError if a config from `check` by now names something the tenant may not use."""
    _walked(resolved, model, tenancy, lambda text, field, kinds: verified(text, field, tenancy))


def paths_of(resolved: Mapping[str, Any], model: type[BaseModel], tenancy: Tenancy) -> list[tuple[Names, str, str]]:
    """Returns (type of name, field, path) of every path in a config from `check`."""
    result: list[tuple[Names, str, str]] = []

    def leaf(names: Names, value: Any, field: str) -> Any:
        def find(text: str, field: str, kinds: tuple[str, ...]) -> str:
            result.append((names, field, text))
            return text

        return _leaf(names, value, field, tenancy, find)

    replaced(_validated(resolved, model), resolved, leaf)
    return result


def relocated(
    resolved: Mapping[str, Any],
    model: type[BaseModel],
    tenancy: Tenancy,
    move: Callable[[Names, str], str],
) -> dict[str, Any]:
    """Returns a config from `check` with each path replaced by the result of `move`."""

    def leaf(names: Names, value: Any, field: str) -> Any:
        return _leaf(names, value, field, tenancy, lambda text, field, kinds: move(names, text))

    return replaced(_validated(resolved, model), resolved, leaf)


def _walked(config: Mapping[str, Any], model: type[BaseModel], tenancy: Tenancy, find: Find) -> dict[str, Any]:
    _refuse_control_characters(config)
    instance = _validated(config, model)
    return replaced(instance, config, partial(_leaf, tenancy=tenancy, find=find))


def _validated(config: Mapping[str, Any], model: type[BaseModel]) -> BaseModel:
    try:
        refuse_keys_within(dict(config), None)
        return model.model_validate(dict(config))
    except ValidationError as error:
        raise first_problem(error, None, model) from error
    except RecursionError as error:
        raise ConfigError("", "it is nested too deeply") from error
    except SourceError as error:
        raise ConfigError("", str(error)) from error


def _leaf(names: Names, value: Any, field: str, tenancy: Tenancy, find: Find) -> Any:
    """Returns the value of a field with every name in it resolved. A classifier keeps its submitted spec as its
    name."""
    if isinstance(value, dict) and names is Names.LABEL_MAP:  # the map itself, which names no file
        return value
    if isinstance(value, dict):  # the user's names → specs
        return {name: _one(names, item, field, tenancy, find) for name, item in value.items()}
    written = value if isinstance(value, list) else [value]
    result = [_one(names, item, field, tenancy, find) for item in written]
    if names is Names.CLASSIFIER and written != result and _can_be_names(written):
        # A spec without a name is shown as its name: tables and pages would show the server's folders.
        return dict(zip(written, result, strict=True))
    return result if isinstance(value, list) else result[0]


def _can_be_names(specs: list[str]) -> bool:
    return max(map(len, specs)) <= LONGEST_NAME and len(set(map(folded, specs))) == len(specs)


def _one(names: Names, value: Any, field: str, tenancy: Tenancy, find: Find) -> str:
    if not isinstance(value, str):
        raise ConfigError(field, f"expected a text, not a {type(value).__name__}")
    if names is Names.GUESSER and value in GUESSERS:
        return value
    if names is Names.ROOT:
        raise ConfigError(field, "this endpoint reads the images of a table below the table's own folder; leave it out")
    try:
        if names in SPECS:
            return checked_spec(
                value, _ROLES[names.value], field, tenancy.policy, lambda text, kinds: find(text, field, kinds)
            )
        if names is Names.HIERARCHY and value in PACKAGED:
            return value
        if names is Names.RUN and not value.startswith((RUN, "/", "s3://")):
            raise ConfigError(field, f"{value[:100]!r}: expected run: and the id of a finished audit")
        return find(value, field, _UPLOADS.get(names, ()))
    except AddressError as error:
        raise ConfigError(field, str(error)) from error


def _refuse_services(config: Mapping[str, Any], model: type[BaseModel]) -> None:
    """Raises ConfigError for a spec that names a URL beside uploaded weights, whose process has no network."""

    def leaf(names: Names, value: Any, field: str) -> Any:
        for _, text in _texts({field: value}, "", 0) if names in SPECS else ():
            if text.startswith(_SERVICES):
                raise ConfigError(
                    field,
                    f"{text[:100]!r}: uploaded weights run without network, so no service can be asked beside them; "
                    "name a model that runs in the job's process, or audit a service in a job of its own and compare",
                )
        return value

    replaced(_validated(config, model), config, leaf)


def _refuse_control_characters(config: Mapping[str, Any]) -> None:
    """Raises ConfigError for control characters such as NUL and for lone surrogates."""
    for count, (field, text) in enumerate(_texts(config, "", 0)):
        if count > _MOST:
            raise ConfigError("", f"more than {_MOST} texts")
        if _CONTROL_CHARACTERS.search(text):
            raise ConfigError(field, f"{text[:100]!a} holds control characters")


def _texts(value: Any, field: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > _DEEPEST:
        raise ConfigError(field, "it is nested too deeply")
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield field, str(name)
            yield from _texts(item, f"{field}.{str(name)[:60]}".lstrip("."), depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, field, depth + 1)
