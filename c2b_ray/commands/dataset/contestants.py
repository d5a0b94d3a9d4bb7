"""The classifiers of an evaluation: what each is called, which outputs stand for which label, and its family.

    resnet50=timm:resnet50.a1_in1k    a short name before the spec; the spec itself where there is none

It knows specs and descriptions, and loads no weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from c2b_ray.errors import ConfigError
from c2b_ray.names import folded
from c2b_ray.roles import Description
from c2b_ray.steps.predict import Classification, LabelMap, classification

_NAMED = re.compile(r"([\w .+@#-]{1,60})=([a-z][\w-]*:.*)", re.DOTALL)
_NEXT = re.compile(r",\s*(?=(?:[\w .+@#-]{1,60}=)?[a-z][\w-]*:)")


@dataclass(frozen=True)
class Contestant:
    """`family`: architectures that differ in size or seed alone share it; figures are ordered by it."""

    name: str
    spec: str
    family: str
    question: Classification


def listed(text: str) -> list[str]:
    """The specs of a list with commas between; a comma inside a spec's options is none of these."""
    return [part.strip() for part in _NEXT.split(text) if part.strip()]


def contestants(
    texts: Sequence[str],
    describe: Callable[[str, str], Description],
    labels: Sequence[str],
    label_map: LabelMap | None,
) -> list[Contestant]:
    """Ordered by family, then by name. ConfigError for names that come twice, and for labels that are not known."""
    if not texts:
        raise ConfigError("--classifiers", "name at least one classifier")
    entries = []
    for text in texts:
        named = _NAMED.fullmatch(text)
        name, spec = (named[1].strip(), named[2]) if named else (text, text)
        question = classification(spec, describe("classifier", spec), labels, label_map)
        entries.append(Contestant(name, spec, family(name if named else spec), question))
    seen: set[str] = set()
    for entry in entries:
        if folded(entry.name) in seen:
            raise ConfigError("--classifiers", f"{entry.name!r} is there twice; put another name before one: NAME=SPEC")
        seen.add(folded(entry.name))
    return sorted(entries, key=lambda entry: (entry.family, entry.name))


def family(name: str) -> str:
    """The letters that an architecture's name begins with: resnet of timm:resnet50.a1_in1k, vit of vit_base_patch16."""
    scheme, colon, rest = name.partition(":")
    name = rest.partition("?")[0] if colon else scheme
    last = name.rstrip("/").rpartition("/")[2]
    letters = re.match(r"[^\W\d_]+", last)
    return (letters[0] if letters else last).lower()
