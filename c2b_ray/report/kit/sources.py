"""The source of images that a run left where they lie, as its config names it.

Knows configs of audits and what opens a source; reads no image.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from c2b_ray.models import catalog
from c2b_ray.steps.in_place import Load
from c2b_ray.store.labelled import table_opener


def source_of(config: Mapping[str, Any]) -> Load | None:
    """Returns what opens the source of an audit's images: its labelled table, or its index; None where it has neither.

    It can be sent to other processes.
    """
    images = config.get("images")
    if not isinstance(images, Mapping):
        return None
    if images.get("table") is not None:
        return table_opener(images)
    return None if images.get("index") is None else partial(catalog.index, images["index"])
