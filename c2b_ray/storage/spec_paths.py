"""The paths inside a model's spec, such as `onnx:net.onnx?labels=names.txt`: finds them and makes them absolute.

It knows the syntax of specs, and neither models nor the contents of files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote_plus

LOCAL_DIR = "local-dir:"
_FILES = ("onnx", "table", "scripted", "faiss")
"""Schemes whose name is the path of a file."""
_URLS = ("http", "https", "openai")
_OPTIONS = ("labels", "weights", "vocabulary", "lora", "debias", "links")
_NAMES_TOO = {"labels", "weights", "links"}
"""Options whose value may be something else than a path: a list of labels, the name of torchvision's weights, none."""


def located(spec: str, base: Path) -> str:
    """Returns the spec with each relative path made absolute, relative to `base`."""
    scheme, colon, rest = spec.partition(":")
    if not colon or scheme in _URLS:
        return spec
    name, mark, query = rest.partition("?")
    if _names_file(scheme, name):
        prefix = LOCAL_DIR if name.startswith(LOCAL_DIR) else ""
        name = prefix + _absolute(name.removeprefix(prefix), base)
    options = [_option(option, base) for option in query.split("&")] if mark else []
    return f"{scheme}:{name}{mark}{'&'.join(options)}"


def paths(spec: str) -> Iterator[tuple[str, str]]:
    """Yields (scheme or option, path) of each path in a spec that `located` returned."""
    scheme, _, rest = spec.partition(":")
    if scheme in _URLS:
        return
    name, _, query = rest.partition("?")
    if _names_file(scheme, name):
        yield scheme, name.removeprefix(LOCAL_DIR)
    for option in query.split("&"):
        key, _, value = option.partition("=")
        if key in _OPTIONS and value.startswith("/"):
            yield key, unquote_plus(value)


def without_paths(spec: str) -> str:
    """Returns a spec from `located` without its paths: equal wherever its files lie and whatever their names are."""
    scheme, colon, rest = spec.partition(":")
    if not colon or scheme in _URLS:
        return spec
    name, mark, query = rest.partition("?")
    if _names_file(scheme, name) or name.startswith("/"):
        name = LOCAL_DIR if name.startswith(LOCAL_DIR) else ""
    options = [_option_without_path(option) for option in query.split("&")] if mark else []
    return f"{scheme}:{name}{mark}{'&'.join(options)}"


def _option_without_path(option: str) -> str:
    key, equals, value = option.partition("=")
    is_path = key in _OPTIONS and unquote_plus(value).startswith("/")
    return f"{key}{equals}" if is_path else option


def _names_file(scheme: str, name: str) -> bool:
    return scheme in _FILES or name.startswith((LOCAL_DIR, "./", "../"))


def _option(option: str, base: Path) -> str:
    key, equals, value = option.partition("=")
    path = unquote_plus(value)
    if key not in _OPTIONS or not path:
        return option
    if key in _NAMES_TOO and not Path(path).suffix and not (base / path).is_file():
        return option
    if key == "labels" and "," in path and not (base / path).is_file():
        return option
    return f"{key}{equals}{quote(_absolute(path, base), safe='/:')}"


def _absolute(path: str, base: Path) -> str:
    if "://" in path or Path(path).is_absolute():
        return path
    return str((base / Path(path).expanduser()).resolve())
