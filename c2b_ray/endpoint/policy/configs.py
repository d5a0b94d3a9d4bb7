"""Turns a submitted config into the config that runs: every name in it checked and resolved, and nothing else added.

The API calls `resolve_config` before a job is stored; it reads no file. The job's process calls `check_resolved` and
`check_contents` right before it reads anything, because files and links may have changed since, and because the API
should not parse files of strangers. `check_contents` checks what the files name in turn: a table's images, an index's
folder and encoder, links in a folder. Whatever passes is confined again when it is read (`storage.confined`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from c2b_ray.config.classifiers import PACKAGED
from c2b_ray.config.endpoint import Role
from c2b_ray.config.named import MODELS, Names
from c2b_ray.config.reading import first_problem, refuse_keys_within, replaced
from c2b_ray.endpoint.policy.names import DATA, RUN, RUNS, UPLOADS, Tenancy, checked_spec, is_inside, located, verified
from c2b_ray.endpoint.policy.weights import check_weights
from c2b_ray.errors import AddressError, ConfigError, InputError, SourceError, WeightsError
from c2b_ray.names import folded
from c2b_ray.storage import files
from c2b_ray.storage.labelled_rows import open_rows
from c2b_ray.storage.manifest import parse_json, read_json

SPECS = (*MODELS, Names.INDEX)
GUESSERS = ("bag-of-words",)
_ROLES: dict[str, Role] = {role: role for role in get_args(Role)}
_UPLOADS_OF_NAME: dict[Names, tuple[str, ...]] = {
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


def resolve_config(config: Mapping[str, Any], model: type[BaseModel], tenancy: Tenancy) -> dict[str, Any]:
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


def check_resolved(resolved: Mapping[str, Any], model: type[BaseModel], tenancy: Tenancy) -> None:
    """Raises ConfigError if a config from `resolve_config` by now names something the tenant may not use."""
    _walked(resolved, model, tenancy, lambda text, field, kinds: verified(text, field, tenancy))


def paths_of(resolved: Mapping[str, Any], model: type[BaseModel], tenancy: Tenancy) -> list[tuple[Names, str, str]]:
    """Returns (type of name, field, path) of every path in a config from `resolve_config`."""
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
    """Returns a config from `resolve_config` with each path replaced by the result of `move`."""

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
    if (
        names is Names.CLASSIFIER
        and written != result
        and max(map(len, written)) <= LONGEST_NAME
        and len(set(map(folded, written))) == len(written)
    ):
        # A spec without a name is shown as its name: tables and pages would show the server's folders.
        return dict(zip(written, result, strict=True))
    return result if isinstance(value, list) else result[0]


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
        return find(value, field, _UPLOADS_OF_NAME.get(names, ()))
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


# Checks what the files of a config name in turn: a table's images, an index's folder and encoder, links in a
# folder.


IMAGE = "image"
_MANIFEST = "manifest.json"
_ADAPTER, MEGATRON = "adapter_config.json", "megatron.core"
_PICKLES = (".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib", ".bin")


def check_contents(named_paths: list[tuple[Names, str, str]], config: Mapping[str, Any], tenancy: Tenancy) -> None:
    """Checks the files of a config. ConfigError names the field whose file names something this tenant may not use.

    `named_paths`: the result of `paths_of`.
    """
    for names, field, path in named_paths:
        if os.path.isdir(path):
            _check_links(path, field, tenancy)
        if names in (Names.TABLE, Names.CAPTIONED):
            _check_table(path, field, _image_column(config, field))
        elif names is Names.INDEX:
            _check_index(path, field, tenancy)
        elif names in SPECS:
            _check_model(path, field)
        elif names is Names.HEADS:
            for file in sorted(Path(path).glob("*.safetensors")):  # none, where it is no folder
                _check_model(str(file), field)


def _check_links(folder: str, field: str, tenancy: Tenancy) -> None:
    """Checks that every link in the folder and its subfolders leads to files of the same tenant."""
    own_folders = [f"{tenancy.root.rstrip('/')}/{part}" for part in (DATA, UPLOADS, RUNS)]
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = os.path.join(parent, name)
            if os.path.islink(path) and not any(is_inside(path, own_folder) for own_folder in own_folders):
                relative = os.path.relpath(path, folder)
                raise ConfigError(field, f"{relative!r} in this folder is a link that leads out of the tenant's files")


def _image_column(config: Mapping[str, Any], field: str) -> str:
    """Returns the name of the image column of a field's table."""
    section = _section_of(config, field) if field != "labelled" else None
    return str(((section or {}).get("columns") or {}).get(IMAGE) or IMAGE)


def _section_of(section: Any, field: str) -> Mapping[str, Any] | None:
    """Returns the section that contains a field. It does not just split at dots, because users' names may contain
    dots."""
    if not isinstance(section, Mapping):
        return None
    if field in section:
        return section
    inner = (
        _section_of(value, field[len(name) + 1 :]) for name, value in section.items() if field.startswith(f"{name}.")
    )
    return next((match for match in inner if match is not None), None)


def _check_table(path: str, field: str, column: str) -> None:
    rows = open_rows(path, field)
    if column not in rows.schema.names:
        return  # the audit itself reports a missing column
    kind = rows.schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)):
        return
    for row, value in enumerate(rows.columns([column])[column].to_pylist(), 1):
        if isinstance(value, str) and _leads_out(value):
            raise ConfigError(
                field,
                f"row {row}: the image {value[:200]!r} is not a path below the table's folder: it is absolute, a URL, "
                "or contains '..'",
            )


def _leads_out(name: str) -> bool:
    steps = name.replace("\\", "/").split("/")
    return name.startswith(("/", "~", "\\")) or ".." in steps or "://" in name or "\0" in name


def _check_index(path: str, field: str, tenancy: Tenancy) -> None:
    """Checks the folder of images and the encoder that an index's manifest names, which are read and loaded."""
    try:
        manifest = parse_json(files.read_bytes(f"{path.rstrip('/')}/{_MANIFEST}"))
    except ValueError as error:
        raise ConfigError(field, f"its {_MANIFEST} is not JSON: {str(error)[:200]}") from error
    root, encoder = (
        (manifest.get(name) for name in ("images_root", "encoder")) if isinstance(manifest, dict) else (0, 0)
    )
    if root is not None:
        if not isinstance(root, str):
            raise ConfigError(field, f"its {_MANIFEST} has an images_root that is not a text")
        _verified_in(root, f"{field}, the images_root of its {_MANIFEST}", tenancy)
    if not isinstance(encoder, str):
        raise ConfigError(field, f"its {_MANIFEST} names no encoder")
    encoder_field = f"{field}, the encoder of its {_MANIFEST}"
    checked_spec(
        encoder,
        "encoder",
        encoder_field,
        tenancy.policy,
        lambda text, kinds: _verified_in(text, encoder_field, tenancy),
    )


def _verified_in(path: str, field: str, tenancy: Tenancy) -> str:
    try:
        return verified(path, field, tenancy)
    except ConfigError as error:
        raise ConfigError(
            field, "it leads out of the tenant's files; rebuild the index from files below data/"
        ) from error


def _check_model(path: str, field: str) -> None:
    """Checks weights that were not uploaded like uploads. In a folder it checks lists of shards and adapters."""
    if path.lower().endswith(_PICKLES):
        raise ConfigError(field, f"{Path(path).name}: pickles are not read; convert it to safetensors, or export ONNX")
    try:
        if path.endswith((".onnx", ".safetensors")) and "://" not in path and f"/{UPLOADS}/" not in path:
            check_weights(path)
    except (WeightsError, OSError) as error:
        raise ConfigError(field, f"{Path(path).name}: {error}") from error
    if os.path.isdir(path):
        for index in sorted(Path(path).rglob("*.index.json")):
            _check_shards(index, field)
        for adapter in sorted(Path(path).rglob(_ADAPTER)):
            _check_adapter(adapter, field)


def _check_adapter(config: Path, field: str) -> None:
    """Checks an adapter's config, which can name a library to import."""
    document = _json_document(config, field)
    if isinstance(document, dict) and (
        document.get("megatron_config") or document.get("megatron_core", MEGATRON) != MEGATRON
    ):
        raise ConfigError(
            field, f"{config.name} names a library in megatron_core; remove megatron_core and megatron_config"
        )


def _json_document(path: Path, field: str) -> Any:
    try:
        return read_json(path)
    except InputError as error:
        raise ConfigError(field, f"{path.name}: {error}") from error


def _check_shards(index: Path, field: str) -> None:
    """Checks the list of a sharded model's files: a loader reads whatever files it names."""
    document = _json_document(index, field)
    file_names = document.get("weight_map") if isinstance(document, dict) else None
    for name in file_names.values() if isinstance(file_names, dict) else ():
        if not isinstance(name, str) or "/" in name or "\\" in name or name.startswith("."):
            raise ConfigError(field, f"{index.name} names {str(name)[:100]!r}; expected a file beside it")
