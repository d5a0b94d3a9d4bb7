"""The models and files that a config names, checked before anything loads: schemes are known, and files exist.

Which fields name them, the types of the config's fields say (`config.named`), whatever the kind of the config.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from pydantic import BaseModel

from c2b_ray.config.named import MODELS, Names, texts_of
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.models import catalog
from c2b_ray.storage import files, is_remote
from c2b_ray.storage.spec_paths import paths
from c2b_ray.world.zoo import names


def check_spec(field: str, role: str, spec: str) -> None:
    """Raises ConfigError for `field` where the spec cannot be of that role, or names files or models that do
    not exist."""
    scheme = catalog.parse(spec).scheme
    known = catalog.schemes()[role]
    if scheme not in known:
        raise ConfigError(field, f"{spec}: no {role} has the scheme {scheme!r}; {nearest(scheme, known)}")
    for what, path in paths(spec):
        if not (files.exists(path) if is_remote(path) else Path(path).expanduser().exists()):
            raise ConfigError(field, f"{spec}: no such file or directory: {path} ({what})")
    if scheme == "scripted":  # the one that loads at once, from a document that may be wrong
        model = catalog.parse(spec)
        catalog.loader(role, model)(model)
    if scheme == "world" and role != "classifier":  # a classifier is loaded for its labels
        name, there = catalog.parse(spec).name, names(role)
        if name not in there:
            raise ConfigError(field, f"{spec}: the world has no {role} {name!r}; {nearest(name, there)}")


def named_models(config: BaseModel) -> list[tuple[str, str, str]]:
    """Returns (field, role, spec) of each model."""
    return [(one.field, one.names.value, one.text) for one in texts_of(config) if one.names in MODELS]


def check_specs(config: BaseModel) -> None:
    """Checks each spec's scheme and the files that it names. Group guessers have specs of their own kind."""
    for field, role, spec in named_models(config):
        if role != Names.GUESSER.value:
            check_spec(field, role, spec)


def paths_read(config: BaseModel, in_driver: Container[Names] = (Names.LANGUAGE_MODEL,)) -> dict[str, str]:
    """Returns the files and folders that stages read → the fields that name them. On a cluster every node needs them.

    `in_driver`: the models that no stage calls.
    """
    read: dict[str, str] = {}
    for one in texts_of(config):
        if one.names in MODELS and one.names not in in_driver:
            read |= {path: one.field for _, path in paths(one.text)}
        elif one.names in (Names.TABLE, Names.ROOT, Names.CAPTIONED):
            read[one.text] = one.field
        elif one.names is Names.INDEX:
            read[index_folder(one.text)] = one.field
    return read


def index_folder(index: str) -> str:
    """Returns the folder of an index, whether it is named by its path or by a spec."""
    return index.removeprefix("faiss:").partition("?")[0] if index.startswith("faiss:") else index
