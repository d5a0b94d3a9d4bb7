"""The classifiers that a file names, and their label map, as types of fields. It knows names, not models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from c2b_ray.config.label_map import no_label
from c2b_ray.config.named import ClassifierSpec, Name, Names
from c2b_ray.config.strict import distinct
from c2b_ray.names import folded

_Names = str | list[str] | dict[str, str]


def _checked(classifier: _Names) -> _Names:
    """Raises ValueError for no classifier, or for a name or a spec that occurs twice."""
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


def _labels_alone(label_map: Any) -> Any:
    """Raises ValueError for a label that is neither a name nor an index: as a number, `true` would be 1."""
    if isinstance(label_map, dict) and (strange := no_label(label_map)) is not None:
        raise ValueError(strange)
    return label_map


Classifiers = Annotated[ClassifierSpec | list[ClassifierSpec] | dict[Name, ClassifierSpec], AfterValidator(_checked)]
"""One spec, a list of specs, or user-chosen names → specs."""
LabelMap = Annotated[str | dict[Name, list[int | str]], BeforeValidator(_labels_alone), Names.LABEL_MAP]
"""A file, or class → labels of the classifier."""


def specs_by_name(classifier: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Returns the spec of each classifier by its name, in their order; a spec without a name is its own name."""
    if isinstance(classifier, Mapping):
        return dict(classifier)
    specs = [classifier] if isinstance(classifier, str) else classifier
    return {spec: spec for spec in specs}
