"""Events that an audit sends while it runs: which step, how far, how long. It does not know who listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from c2b_ray.engine.progress import Progress


@dataclass(frozen=True)
class Event:
    """A step begins, moves, or ends.

    `seconds`: since it began. `progress`: where the step counts rows. `counts`: at its end, numbers by name.
    `images_per_row`: how many images models answer about for a row; None where the step's name tells whether rows are
    images. For a `warning`, `step` is a note on the result rather than a step.
    """

    step: str
    kind: Literal["begin", "progress", "end", "warning"]
    seconds: float = 0.0
    progress: Progress | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    images_per_row: float | None = None


IMAGES, IMAGES_HELD = "images", "images held"
"""Counts of a step whose rows take varying numbers of images: images that models answered about in this step, and
images that the run has held answers about since it began."""

Listener = Callable[[Event], None]
