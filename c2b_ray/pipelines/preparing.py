"""How a stage's pictures are prepared for its models, by processes that hold no model.

It joins `steps.prepared`, which decodes, and `models.pixels.shape`, which resizes; neither knows the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from c2b_ray.models.pixels.shape import shaped
from c2b_ray.pipelines.stage import Prepare
from c2b_ray.roles import Shape
from c2b_ray.steps.prepared import View, prepared


def preparing(shapes: Iterable[Shape | None], keep_bytes: bool = False) -> Prepare | None:
    """Returns a preparation of `bytes` for models of these shapes; None where no model takes prepared pictures.

    A shape that gives pictures of several sizes counts as none. The bytes stay where a model has none, or
    with `keep_bytes`.
    """
    views, every = usable(shapes)
    return partial(prepared, views=views, keep_bytes=keep_bytes or not every) if views else None


def usable(shapes: Iterable[Shape | None]) -> tuple[tuple[View, ...], bool]:
    """Returns how pictures can be prepared, each way once, and whether that is all that the models need."""
    shapes = list(shapes)
    known = dict.fromkeys(shape for shape in shapes if shape is not None and shape.frame is not None)
    # Of functions that import little, so that the processes start fast.
    return tuple(View(shape, shaped) for shape in known), all(shape in known for shape in shapes)
