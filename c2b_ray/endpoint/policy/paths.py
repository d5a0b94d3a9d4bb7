"""Resolves names in a submitted config: to a path below the tenant's root or below a listed prefix of a store.

    data/photos/table.csv      below the tenant's folder `data`
    upload:<sha256>            a file that the tenant has uploaded
    run:<id>                   one of the tenant's runs
    s3://bucket/path           below a prefix that the policy lists

Nothing is expanded: neither `~` nor `$HOME` nor `%2e`. This module knows paths and links, not the contents of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from c2b_ray.config.endpoint import Policy
from c2b_ray.errors import ConfigError

UPLOAD, RUN, STORE = "upload:", "run:", "s3://"
DATA, UPLOADS, RUNS = "data", "uploads", "runs"
SUFFIXES = {
    "onnx": ".onnx", "safetensors": ".safetensors", "image": "", "images": "", "table": ".parquet", "csv": ".csv",
    "text": ".txt",
}  # fmt: skip
"""Kind of an upload → the suffix of its file, by which loaders recognise the format; `images` is a folder."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_STEP = re.compile(r"[\w@+=,()\[\]-][\w .@+=,()\[\]-]{0,254}")
_OBJECT = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,62}/[\w.=+@, ()/-]+")
LONGEST = 1000
_EXPECTED = "expected a path below data/, such as data/photos.csv, upload:<sha256>, or an s3:// prefix that is listed"


@dataclass(frozen=True)
class Tenancy:
    """One tenant's part of the endpoint. `root`: its folder, local or s3://. `uploads`: the kind of each upload, by
    sha256."""

    root: str
    policy: Policy = field(default_factory=Policy)
    uploads: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root


def upload_path(root: str, sha256: str, kind: str) -> str:
    """Returns the path of an upload below a tenant's root."""
    return f"{root.rstrip('/')}/{UPLOADS}/{sha256}{SUFFIXES[kind]}"


def looks_like_path(text: str) -> bool:
    """Returns whether a name is meant as a path rather than as a model on a hub."""
    return text.startswith((f"{DATA}/", UPLOAD, RUN, STORE, "/", "./", "../", "~", "\\")) or "://" in text


def located(text: str, name: str, tenancy: Tenancy, kinds: tuple[str, ...] = ()) -> str:
    """Returns the path or URI that `text` in the field `name` means. Raises ConfigError if it is not allowed or not
    there.

    `kinds`: the kinds of uploads that the field accepts.
    """
    if len(text) > LONGEST or not text.isprintable():
        raise ConfigError(name, f"{text[:100]!a}: expected a path of at most {LONGEST} characters, all printable")
    if text.startswith(UPLOAD):
        return _upload(text, name, tenancy, kinds)
    if text.startswith(RUN):
        return _run(text, name, tenancy) if "run" in kinds else _refuse(name, text, "a run cannot be used here")
    if text.startswith(STORE):
        return _object(text, name, tenancy)
    steps = text.removesuffix("/").split("/")
    if steps[0] != DATA or len(steps) < 2:
        _refuse(name, text, _EXPECTED)
    for step in steps:
        if not _STEP.fullmatch(step) or step.endswith((" ", ".")):
            _refuse(
                name,
                text,
                f"{step[:60]!r} is not allowed in a path; use letters, digits and any of . _ - + = @ , ( ) [ ]",
            )
    return _below(f"{tenancy.root.rstrip('/')}/{'/'.join(steps)}", DATA, name, text, tenancy)


def verified(path: str, name: str, tenancy: Tenancy) -> str:
    """Checks a path that `located` returned again, before it is read: it must still lead to the tenant's files."""
    if path.startswith(STORE):
        root = tenancy.root.rstrip("/")
        is_in_tenant = (
            path.startswith(tuple(f"{root}/{part}/" for part in (DATA, UPLOADS, RUNS))) and not tenancy.is_local
        )
        return path if is_in_tenant and _is_plain(path) else _object(path, name, tenancy)
    for part in (DATA, UPLOADS, RUNS):
        if tenancy.is_local and is_inside(path, f"{tenancy.root.rstrip('/')}/{part}"):
            return path
    raise ConfigError(
        name, "the path no longer leads to this tenant's files; it changed after the config was submitted"
    )


def is_inside(path: str, folder: str) -> bool:
    """Returns whether a local path is the folder or lies below it, after resolving all links."""
    if not os.path.isabs(path) or "\0" in path:
        return False
    base, real = os.path.realpath(folder), os.path.realpath(path)
    return real == base or real.startswith(f"{base}{os.sep}")


def _upload(text: str, name: str, tenancy: Tenancy, kinds: tuple[str, ...]) -> str:
    sha256 = text.removeprefix(UPLOAD)
    if not _SHA256.fullmatch(sha256):
        _refuse(name, text, "expected upload: and the 64 hexadecimal digits of its sha256, in lower case")
    kind = tenancy.uploads.get(sha256)
    if kind is None:
        _refuse(name, text, "there is no such upload; upload the file first")
    if kind not in kinds:
        expected = " or ".join(k for k in kinds if k != "run") or "a path below data/"
        _refuse(name, text, f"this upload is of the kind {kind}, expected {expected}")
    path = upload_path(tenancy.root, sha256, str(kind))
    return _below(path, UPLOADS, name, text, tenancy)


def _run(text: str, name: str, tenancy: Tenancy) -> str:
    run = text.removeprefix(RUN)
    if not _ID.fullmatch(run):
        _refuse(name, text, "expected run: and the id of a finished audit")
    return _below(f"{tenancy.root.rstrip('/')}/{RUNS}/{run}", RUNS, name, text, tenancy)


def _below(path: str, part: str, name: str, text: str, tenancy: Tenancy) -> str:
    """Returns the path with links resolved; it must not lead out of the tenant's folder `part`."""
    if not tenancy.is_local:
        return path
    if not is_inside(path, f"{tenancy.root.rstrip('/')}/{part}"):
        # The same message as for a missing file, so that it reveals nothing about files outside.
        _refuse(name, text, "no such file or folder of this tenant")
    if not os.path.exists(path):
        _refuse(name, text, "no such file or folder of this tenant")
    return os.path.realpath(path)


def _object(text: str, name: str, tenancy: Tenancy) -> str:
    if not _is_plain(text):
        _refuse(name, text, "expected s3://bucket/path, without '..', '//', keys or a query")
    if not any(text.startswith(prefix) for prefix in tenancy.policy.stores):
        _refuse(name, text, "is not below a prefix that this endpoint lists")
    return text


def _is_plain(uri: str) -> bool:
    steps = uri.removeprefix(STORE).rstrip("/").split("/")
    return bool(_OBJECT.fullmatch(uri)) and not any(step in ("", ".", "..") for step in steps)


def _refuse(name: str, text: str, problem: str) -> str:
    raise ConfigError(name, f"{text[:200]!r}: {problem}")
