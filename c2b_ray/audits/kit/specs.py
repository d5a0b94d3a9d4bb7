"""Checks a model's spec before anything loads: that its scheme is known and its files exist."""

from __future__ import annotations

from pathlib import Path

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.filesystems import is_remote
from c2b_ray.filesystems.spec_paths import paths
from c2b_ray.models import catalog
from c2b_ray.store import files
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
