"""The source of images that a run left where they lie, as its config names it.

Knows configs of audits and what opens a source; reads no image.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from c2b_ray.models import catalog
from c2b_ray.steps.in_place import Load
from c2b_ray.store.labelled import LabelledTable


def source_of(config: Mapping[str, Any]) -> Load | None:
    """Returns what opens the source of an audit's images: its labelled table, or its index; None where it has neither.

    It can be sent to other processes.
    """
    images = config.get("images")
    if not isinstance(images, Mapping):
        return None
    if (table := images.get("table")) is not None:
        renamed = {name: column for name, column in (images.get("columns") or {}).items() if column is not None}
        return partial(LabelledTable, table, columns=renamed)
    return None if images.get("index") is None else partial(catalog.index, images["index"])
