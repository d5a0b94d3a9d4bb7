"""Takes out of a text what must not leave the machine: credentials, and where files lie.

Knows what such things look like, and the environment's own secrets; does not know which text is whose.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_plus

from c2b_ray.text import without_credentials

_SPEC = re.compile(r"^([a-z][a-z0-9_-]*:(?!//)(?:local-dir:)?)([^?]*)(?:\?(.*))?$", re.DOTALL)
_WHOLE_PATH = re.compile(r"^([a-z_]+:)?(?:file:/*)?(?:/(?!/)|[A-Za-z]:\\)(?:.*[/\\])?([^/\\]+)[/\\]*$")
_PATH = re.compile(r"(?:file:/+|(?<![\w./])/(?!/)|\b[A-Za-z]:\\)(?:[^\s/\\'\"]+[/\\])+([^\s/\\'\"]*)")
_TENANT_ROOT = re.compile(r"\bs3://[^\s'\"?]*?/tenants/tenant_[0-9a-f]{24}/")
"""Where a shared endpoint keeps what is a tenant's, who knows its uploads and runs by what follows."""


def clean(text: str) -> str:
    """The text without credentials, with each absolute path or file: URL in it cut to its last part, and an endpoint's
    s3:// URI to what follows its tenant's root."""
    return _PATH.sub(r"\1", _without_root(without_credentials(text)))


def clean_setting(text: str) -> str:
    """`clean` for a text that may be one path as a whole, blanks included, or a model spec with paths in it.

    Of a spec the name's path and each option's are cut on their own: `onnx:/a/net.onnx?labels=/x/names.txt` is
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
    return f"{key}{equals}{_cut(unquote_plus(value))}" if "/" in unquote_plus(value) else option


def _cut(text: str) -> str:
    whole = _WHOLE_PATH.match(text)
    return f"{whole[1] or ''}{whole[2]}" if whole else _PATH.sub(r"\1", text)


def cleaned(value: Any) -> Any:
    """`clean_setting` for every string inside a JSON value; keys that differ stay apart."""
    if isinstance(value, str):
        return clean_setting(value)
    if isinstance(value, Mapping):
        names = names_of([str(key) for key in value])
        return {names[str(key)]: cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def names_of(specs: Sequence[str]) -> dict[str, str]:
    """What each spec is called on the page: `clean_setting`, with a short hash of the spec where two would be called
    the same. The hash does not depend on the order nor on which page it is."""
    return distinct_names(specs, clean_setting)


def distinct_names(texts: Sequence[str], shorten: Callable[[str], str]) -> dict[str, str]:
    """What each text is shortened to; where several come to the same, each with a short hash of the whole."""
    distinct = list(dict.fromkeys(texts))
    short = {text: shorten(text) for text in distinct}
    shared = {name for name, count in Counter(short.values()).items() if count > 1}
    return {text: f"{name} #{_hash(text)}" if name in shared else name for text, name in short.items()}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:6]
