"""Removes from texts what must not leave the machine: credentials and file paths.

Knows the patterns of credentials and paths, and the environment's secrets; does not know the source of a text.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from c2b_ray.text import without_credentials

_SPEC = re.compile(r"^([a-z][a-z0-9_-]*:(?!//)(?:local-dir:)?)([^?]*)(?:\?(.*))?$", re.DOTALL)
_WHOLE_PATH = re.compile(r"^([a-z_]+:)?(?:file:/*)?(?:/(?!/)|[A-Za-z]:\\)(?:.*[/\\])?([^/\\]+)[/\\]*$")
_PATH = re.compile(r"(?:file:/+|(?<![\w./])/(?!/)|\b[A-Za-z]:\\)(?:[^\s/\\'\"]+[/\\])+([^\s/\\'\"]*)")
_TENANT_ROOT = re.compile(r"\bs3://[^\s'\"?]*?/tenants/tenant_[0-9a-f]{24}/")
"""The storage root of a tenant on a shared endpoint; the tenant knows its uploads and runs by the part after it."""


def clean(text: str) -> str:
    """Returns the text without credentials, with each absolute path or file: URL reduced to its last part, and an
    endpoint's s3:// URI to the part after its tenant's root."""
    return _PATH.sub(r"\1", _without_root(without_credentials(text)))


def clean_setting(text: str) -> str:
    """`clean` for a text that may be one path as a whole, blanks included, or a model spec with paths in it.

    In a spec the paths of the name and of each option are reduced separately: `onnx:/a/net.onnx?labels=/x/names.txt` is
    `onnx:net.onnx?labels=names.txt`.
    """
    text = _without_root(without_credentials(text))
    spec = _SPEC.match(text)
    if spec is None:
        return _cut(text)
    options = "&".join(_cut_option(option) for option in spec[3].split("&")) if spec[3] else ""
    return f"{spec[1]}{_cut(spec[2])}{'?' if options else ''}{options}"


def _without_root(text: str) -> str:
    return _TENANT_ROOT.sub("", text)


def _cut_option(option: str) -> str:
    key, equals, value = option.partition("=")
    return f"{key}{equals}{_cut(unquote(value))}" if "/" in unquote(value) else option


def _cut(text: str) -> str:
    match = _WHOLE_PATH.match(text)
    return f"{match[1] or ''}{match[2]}" if match else _PATH.sub(r"\1", text)


def cleaned(value: Any) -> Any:
    """Applies `clean_setting` to every string inside a JSON value; different keys stay different."""
    if isinstance(value, str):
        return clean_setting(value)
    if isinstance(value, Mapping):
        names = names_of([str(key) for key in value])
        return {names[str(key)]: cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def names_of(specs: Sequence[str]) -> dict[str, str]:
    """Returns each spec's name on the page: `clean_setting`, with a short hash of the spec where two names would be
    equal. The hash depends neither on the order nor on the page."""
    return distinct_names(specs, clean_setting)


def distinct_names(texts: Sequence[str], shorten: Callable[[str], str]) -> dict[str, str]:
    """Returns the short form of each text, with a short hash of the whole text where several short forms are equal."""
    distinct = list(dict.fromkeys(texts))
    short = {text: shorten(text) for text in distinct}
    repeated_names = {name for name, count in Counter(short.values()).items() if count > 1}
    return {text: f"{name} #{_hash(text)}" if name in repeated_names else name for text, name in short.items()}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
