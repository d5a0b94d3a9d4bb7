"""Label maps, class → labels of the classifier, from a file or within an audit file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from c2b_ray.config.named import ClassifierSpec, Name, Names, distinct
from c2b_ray.errors import ConfigError, InputError
from c2b_ray.names import folded, normalise
from c2b_ray.storage.manifest import read_json


def no_label(label_map: dict[Any, Any]) -> str | None:
    """Returns the error in a label map with a label that is neither a name nor an index (`true` is not 1); None if
    there is none."""
    for name, labels in label_map.items():
        for label in labels if isinstance(labels, list) else ():
            if isinstance(label, bool) or not isinstance(label, int | str):
                return f"{name}: {label!r} is neither a label's name nor its index"
    return None


def read_label_map(path: str, classes: list[str]) -> dict[str, list[int | str]]:
    try:
        data = read_json(path)
    except InputError as error:
        raise ConfigError("label_map", str(error)) from error
    if not isinstance(data, dict) or not all(isinstance(v, list) and v for v in data.values()):
        raise ConfigError("label_map", f"{path}: expected an object of class → list of label indices or names")
    if (problem := no_label(data)) is not None:
        raise ConfigError("label_map", f"{path}: {problem}")
    # A map of a whole label space may hold more classes than this task.
    class_names = set(map(normalise, classes))
    return {name: labels for name, labels in data.items() if not classes or normalise(name) in class_names}


# The classifiers that a file names, and their label map, as types of fields. It knows names, not models.


_Names = str | list[str] | dict[str, str]


def _checked(classifier: _Names) -> _Names:
    """Raises ValueError for no classifier, or for a name or a spec that occurs twice."""
    if not classifier:
        raise ValueError("name at least one classifier")
    if isinstance(classifier, dict):
        distinct(list(classifier), "classifier", folded)
    if not isinstance(classifier, str):
        specs = list(classifier.values()) if isinstance(classifier, dict) else classifier
        repeated = next((spec for number, spec in enumerate(specs) if spec in specs[:number]), None)
        if repeated is not None:
            raise ValueError(f"classifier {repeated!r} is given twice")
    return classifier


def _labels_alone(label_map: Any) -> Any:
    """Raises ValueError for a label that is neither a name nor an index: as a number, `true` would be 1."""
    if isinstance(label_map, dict) and (problem := no_label(label_map)) is not None:
        raise ValueError(problem)
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
