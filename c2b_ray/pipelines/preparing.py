"""How a stage's pictures are prepared for its models, by processes that hold no model.

It joins `steps.prepared`, which decodes, and `models.pixels.shape`, which resizes; neither knows the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import pyarrow as pa

from c2b_ray.models.pixels.shape import shaped
from c2b_ray.pipelines.stage import Prepare
from c2b_ray.roles import Shape
from c2b_ray.steps.prepared import View, prepared


def preparing(shapes: Iterable[Shape | None]) -> Prepare | None:
    """Returns a preparation of `bytes` for models of these shapes; None where no model takes prepared pictures.

    A shape that gives pictures of several sizes counts as none. The bytes stay where a model has none.
    """
    known, every = usable(shapes)
    return partial(_prepared, shapes=known, keep_bytes=not every) if known else None


def usable(shapes: Iterable[Shape | None]) -> tuple[tuple[Shape, ...], bool]:
    """Returns the shapes by which pictures can be prepared, each once, and whether that is all that the models need."""
    shapes = list(shapes)
    known = tuple(dict.fromkeys(shape for shape in shapes if shape is not None and shape.frame is not None))
    return known, all(shape in known for shape in shapes)


def _prepared(rows: pa.Table, shapes: Sequence[Shape], keep_bytes: bool) -> pa.Table:
    return prepared(rows, [View(shape, shaped) for shape in shapes], keep_bytes)
