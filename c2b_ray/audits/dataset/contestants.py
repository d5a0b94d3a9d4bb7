"""The classifiers of an evaluation: the name of each, the outputs for each label, and its family.

    resnet50=timm:resnet50.a1_in1k    a short name before the spec; without one the spec is the name

It knows specs and descriptions, and loads no weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.errors import ConfigError
from c2b_ray.names import folded, normalise
from c2b_ray.roles import Description
from c2b_ray.steps.classify import Classification, LabelMap, classification

CLASSIFIERS = "--classifiers"

_NAMED = re.compile(r"([\w .+@#-]{1,60})=([a-z][\w-]*:.*)", re.DOTALL)
_NEXT = re.compile(r",\s*(?=(?:[\w .+@#-]{1,60}=)?[a-z][\w-]*:)")


@dataclass(frozen=True)
class EvaluatedClassifier:
    """`family`: shared by architectures that differ only in size or seed; figures are ordered by it. `outputs`: the
    names of its outputs, as names are compared → the label that each stands for."""

    name: str
    spec: str
    family: str
    question: Classification
    outputs: Mapping[str, str]

    @staticmethod
    def of(name: str, spec: str, known: Description, question: Classification) -> EvaluatedClassifier:
        groups = zip(question.classes, question.labels_of_class, strict=True)
        outputs = {normalise(known.labels[at]): label for label, group in groups for at in group}
        return EvaluatedClassifier(name, spec, family(name), question, outputs)


def listed(text: str) -> list[str]:
    """Returns the specs of a comma-separated list; a comma inside a spec's options does not separate."""
    return [part.strip() for part in _NEXT.split(text) if part.strip()]


def named(text: str) -> tuple[str, str]:
    """Returns the name and the spec of `NAME=SPEC`; a spec without a name is both."""
    parts = _NAMED.fullmatch(text)
    return (parts[1].strip(), parts[2]) if parts else (text, text)


def contestants(
    named_specs: Sequence[tuple[str, str]],
    describe: Callable[[str, str], Description],
    labels: tuple[Sequence[str], Sequence[str]],
    label_map: LabelMap | None,
) -> list[EvaluatedClassifier]:
    """Returns the classifiers, ordered by family, then by name. Raises ConfigError for repeated names and unknown
    labels.

    `labels`: those that each classifier must have, and those of a reference, of which the common ones are used.
    """
    if not named_specs:
        raise ConfigError(CLASSIFIERS, "name at least one classifier")
    described = [(name, spec, describe("classifier", spec)) for name, spec in named_specs]
    shared = [*labels[0], *_in_common(described, labels, label_map)]
    entries = [
        EvaluatedClassifier.of(name, spec, one, classification(spec, one, shared, label_map, field=CLASSIFIERS))
        for name, spec, one in described
    ]
    seen: set[str] = set()
    for entry in entries:
        if folded(entry.name) in seen:
            raise ConfigError(CLASSIFIERS, f"{entry.name!r} is there twice; put another name before one: NAME=SPEC")
        seen.add(folded(entry.name))
    return sorted(entries, key=lambda entry: (entry.family, entry.name))


def _in_common(
    described: Sequence[tuple[str, str, Description]],
    labels: tuple[Sequence[str], Sequence[str]],
    label_map: LabelMap | None,
) -> list[str]:
    """Returns the second labels that are not among the first and for which every classifier has separate outputs."""
    more = [label for label in labels[1] if label not in set(labels[0])]
    try:
        for _, spec, known in described:
            classification(spec, known, [*labels[0], *more], label_map)
        return more
    except ConfigError:  # then one by one, which takes a thousand times as long
        pass
    kept: list[str] = []
    asked = [classification(spec, known, labels[0], label_map, field=CLASSIFIERS) for _, spec, known in described]
    taken = [set(sum(one.labels_of_class, ())) for one in asked]
    for label in more:
        try:
            groups = [
                set(classification(spec, one, [label], label_map).labels_of_class[0]) for _, spec, one in described
            ]
        except ConfigError:
            continue
        if not any(group & used for group, used in zip(groups, taken, strict=True)):
            kept.append(label)
            taken = [used | group for group, used in zip(groups, taken, strict=True)]
    return kept


def family(name: str) -> str:
    """Returns the letters at the beginning of an architecture's name: resnet of timm:resnet50.a1_in1k, vit of
    vit_base_patch16."""
    scheme, colon, rest = name.partition(":")
    name = rest.partition("?")[0] if colon else scheme
    last = name.rstrip("/").rpartition("/")[2]
    letters = re.match(r"[^\W\d_]+", last)
    return (letters[0] if letters else last).lower()
