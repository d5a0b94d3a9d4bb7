"""Makes text of unknown origin, such as class names and file names, safe to show: every character is visible and none
acts.

It knows characters and the form of credentials; it does not know where a text comes from.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

HIDDEN = "[removed]"
SECRET_NAME = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
HARMLESS = {"model", "version", "api-version", "revision", "deployment"}
"""Parameters of a service's URL that say what is asked; the value of any other may be its key."""
LEAST_SECRET = 10  # shorter values of such variables are words like EMPTY or none
TOKEN = re.compile(
    r"\bc2b_[A-Za-z0-9]{8}_[A-Za-z0-9]{32}|\b(?:sk|pk|rk)-[\w-]{16,}|\b(?:hf|gh[opsu]|github_pat|glpat|xox[abp])[_-][\w-]{16,}|\b(?:AKIA|ASIA|AIza)[\w-]{12,}"
)
"""Keys that are known by how they begin."""

_CREDENTIALS = (
    (re.compile(r"(?<=://)[^\s/@]+@"), ""),
    (
        re.compile(
            r"(?i)([?&;][\w-]*(?:key|token|secret|passw\w*|pwd|credential|signature|sig|authorization|auth)=)[^&;\s#]+"
        ),
        rf"\1{HIDDEN}",
    ),
    (re.compile(r"(?i)\b((?:authorization|x-api-key):\s*(?:bearer\s+)?|bearer\s+)[^\s\[]+"), rf"\1{HIDDEN}"),
    (TOKEN, HIDDEN),
)
_QUERY = re.compile(r"(?i)(https?://[^\s?#'\"<>]*\?)([^\s#'\"<>]+)")
# Controls of terminals (C0 save tab and newline, DEL, C1), line separators, and marks that turn or hide what is beside
# them: U+202E lets "gpj.exe" read as "exe.jpg".
_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")
_FORMULA = tuple("=+-@\t\r'")


def visible(text: str) -> str:
    r"""Returns the text with each control character as its escape: ESC as `\x1b`, U+202E as `\u202e`."""
    return _ACTING.sub(_escape, text)


def visible_json(text: str) -> str:
    r"""Returns equivalent JSON with control characters, which occur only inside strings, as `\u202e`."""
    return _ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def cell(text: str) -> str:
    """Returns the text as a cell of CSV that no spreadsheet reads as a formula.

    A text that begins with = + - @, a tab, a carriage return or an apostrophe gets a leading apostrophe; removing one
    leading apostrophe restores every text.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


@lru_cache(maxsize=1024)
def _holds_secret(variable: str) -> bool:
    """Tells whether a variable of this name holds a secret; one that names a secret's location holds only a path."""
    return SECRET_NAME.search(variable) is not None and not variable.upper().endswith(("_FILE", "_PATH", "_DIR"))


def without_credentials(text: str) -> str:
    for name in filter(_holds_secret, os.environ):  # names first: a page asks for a thousand texts
        value = os.environ.get(name, "")
        if len(value) >= LEAST_SECRET:
            text = text.replace(value, HIDDEN)
    for pattern, replacement in _CREDENTIALS:
        text = pattern.sub(replacement, text)
    return _QUERY.sub(_without_values, text)


def _without_values(url: re.Match[str]) -> str:
    """Hides the values of a URL's parameters: services choose any name for the parameter of their key."""
    pairs = [parameter.partition("=") for parameter in url[2].split("&")]
    return url[1] + "&".join(
        name + equals + (HIDDEN if value and name.lower() not in HARMLESS else value) for name, equals, value in pairs
    )


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def finite(value: Any) -> Any:
    """Returns the value for JSON, with null in place of NaN, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
