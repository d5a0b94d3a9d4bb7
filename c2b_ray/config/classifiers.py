"""The classifiers that a file names: one, a list, or short names of one's own → specs. It knows names, not models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from c2b_ray.config.label_map import no_label
from c2b_ray.config.strict import distinct
from c2b_ray.names import folded

Classifiers = str | list[str] | dict[str, str]


def checked_classifiers(classifier: Classifiers) -> Classifiers:
    """ValueError where there is none, or a name or a spec is given twice."""
    if not classifier:
        raise ValueError("name at least one classifier")
    if isinstance(classifier, dict):
        distinct(list(classifier), "classifier", folded)
    if not isinstance(classifier, str):
        specs = list(classifier.values()) if isinstance(classifier, dict) else classifier
        twice = next((spec for number, spec in enumerate(specs) if spec in specs[:number]), None)
        if twice is not None:
            raise ValueError(f"classifier {twice!r} is given twice")
    return classifier


def specs_by_name(classifier: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """The spec of each classifier by its name, in their order; a spec without a name is its own."""
    if isinstance(classifier, Mapping):
        return dict(classifier)
    specs = [classifier] if isinstance(classifier, str) else classifier
    return {spec: spec for spec in specs}


def checked_label_map(label_map: Any) -> Any:
    """ValueError for a label that is neither a name nor an index."""
    if isinstance(label_map, dict) and (strange := no_label(label_map)) is not None:
        raise ValueError(strange)
    return label_map
