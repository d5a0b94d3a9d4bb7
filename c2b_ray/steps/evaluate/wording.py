"""Words biases so that two with the same meaning are near in a sentence encoder: texts, and whether they deny
something.

Sentence embeddings hardly distinguish "beard" from "no beard", whose directions are opposite. So a wording that denies
something is replaced by what it denies, with the direction reversed. It knows words, not embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from c2b_ray.names import normalise

PRESENT = frozenset({"present", "yes", "true", "1", "1.0", "on", "shown"})
ABSENT = frozenset({"absent", "no", "none", "false", "0", "0.0", "-1", "off", "nothing", "not present"})
_DENIES = re.compile(r"^(?:no|not|non|without|lacking|lack of|absence of|free of)[\s-]+(?:an?\s+|any\s+)?(?=\S)")


@dataclass(frozen=True)
class Wording:
    """`texts`: those that are compared; the first one is shown. `negated`: the bias is about their absence."""

    texts: tuple[str, ...]
    negated: bool


def is_presence(values: frozenset[str]) -> bool:
    """Returns whether an attribute with these values is something that images have or lack."""
    return bool(values) and {normalise(value) for value in values} <= PRESENT | ABSENT


def wording(attribute: str, value: str, names: Mapping[str, str] | None = None) -> Wording:
    """Returns the wording of a value of an attribute.

    `names`: "attribute: value", or only the attribute where the value says that it is present or absent → words that
    replace it.
    """
    known = {normalise(key): text for key, text in (names or {}).items()}
    said = normalise(value)
    if (text := known.get(normalise(f"{attribute}: {value}"))) is not None:
        return _worded((normalise(text),))
    if said in PRESENT or said in ABSENT:
        inner = _worded((normalise(known.get(normalise(attribute), attribute)),))
        return Wording(inner.texts, inner.negated != (said in ABSENT))
    return _worded((said, f"{said} {normalise(attribute)}"))


def keyword_wording(keyword: str) -> Wording:
    return _worded((normalise(keyword),))


def _worded(texts: tuple[str, ...]) -> Wording:
    if (match := _DENIES.match(texts[0])) is None:
        return Wording(texts, False)
    return Wording(tuple(text[match.end() :] for text in texts), True)
