"""Label maps, class → labels of the classifier, from a file or within an audit file."""

from __future__ import annotations

from typing import Any

from c2b_ray.errors import ConfigError, InputError
from c2b_ray.names import normalise
from c2b_ray.storage.documents import read_json


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
    if (strange := no_label(data)) is not None:
        raise ConfigError("label_map", f"{path}: {strange}")
    # A map of a whole label space may hold more classes than this task.
    wanted = set(map(normalise, classes))
    return {name: labels for name, labels in data.items() if not classes or normalise(name) in wanted}
