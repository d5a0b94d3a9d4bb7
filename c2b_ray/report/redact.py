"""Takes out of a text what must not leave the machine: credentials, and where files lie.

Knows what such things look like, and the environment's own secrets; does not know which text is whose.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "[removed]"
SECRET_NAME = re.compile(r"key|token|secret|passw|credential", re.IGNORECASE)
LEAST_SECRET = 10  # shorter values of such variables are words like EMPTY or none

_CREDENTIALS = (
    (re.compile(r"(?<=://)[^\s/@]+@"), ""),
    (re.compile(r"(?i)([?&;][\w-]*(?:key|token|secret|passw\w*|credential|signature|sig)=)[^&;\s#]+"), rf"\1{HIDDEN}"),
    (re.compile(r"(?i)\b((?:authorization|x-api-key):\s*(?:bearer\s+)?|bearer\s+)[^\s\[]+"), rf"\1{HIDDEN}"),
    (re.compile(r"\b(?:sk|pk|rk)-[\w-]{16,}|\b(?:hf|gh[opsu]|github_pat|glpat|xox[abp])[_-][\w-]{16,}"), HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA|AIza)[\w-]{12,}"), HIDDEN),
)
_WHOLE_PATH = re.compile(r"^([a-z_]+:)?(?:file:/*)?(?:/(?!/)|[A-Za-z]:\\)(?:.*[/\\])?([^/\\]+)[/\\]*$")
_PATH = re.compile(r"(?:file:/+|(?<![\w./])/(?!/)|\b[A-Za-z]:\\)(?:[^\s/\\'\"]+[/\\])+([^\s/\\'\"]*)")


def clean(text: str) -> str:
    """The text without credentials, and with each absolute path or file: URL in it cut to its last part."""
    return _PATH.sub(r"\1", _without_credentials(text))


def clean_setting(text: str) -> str:
    """`clean` for a text that may be one path as a whole, blanks included, or a model spec of one."""
    text = _without_credentials(text)
    whole = _WHOLE_PATH.match(text)
    return f"{whole[1] or ''}{whole[2]}" if whole else _PATH.sub(r"\1", text)


def cleaned(value: Any) -> Any:
    """`clean_setting` for every string inside a JSON value."""
    if isinstance(value, str):
        return clean_setting(value)
    if isinstance(value, Mapping):
        return {clean_setting(str(key)): cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    return value


def names_of(specs: Sequence[str]) -> dict[str, str]:
    """What each spec is called on the page: `clean_setting`, numbered where two would be called the same."""
    names: dict[str, str] = {}
    for spec in dict.fromkeys(specs):
        name, number = clean_setting(spec), 1
        while name in names.values():
            number += 1
            name = f"{clean_setting(spec)} ({number})"
        names[spec] = name
    return names


def _without_credentials(text: str) -> str:
    for name, value in os.environ.items():
        if len(value) >= LEAST_SECRET and value in text and SECRET_NAME.search(name):
            text = text.replace(value, HIDDEN)
    for pattern, replacement in _CREDENTIALS:
        text = pattern.sub(replacement, text)
    return text
