"""Ends a build whose first images cannot be used, before more of them are drawn."""

from __future__ import annotations

from collections.abc import Mapping

from c2b_ray.errors import SourceError
from c2b_ray.pipelines.shards.counters import BECAUSE, DRAWS, DROPPED

FEW = 256
"""The number of first draws of which some must be usable."""
UNUSABLE = ("no_image", "no_answer")


def refuse_unusable(location: str, sums: Mapping[str, float], enough: int) -> None:
    """Raises SourceError where none of the first images can be used, once there are `enough` of them, so that no more
    are drawn."""
    drawn, unusable = sums.get(DRAWS, 0.0), {name: sums.get(f"{DROPPED}:{name}", 0.0) for name in UNUSABLE}
    if drawn < enough or sum(unusable.values()) < drawn:
        return
    said = ", ".join(f"{int(count)} {name}" for name, count in unusable.items() if count)
    why = sorted(name.removeprefix(f"{BECAUSE}:") for name in sums if name.startswith(f"{BECAUSE}:"))
    because = f": {'; '.join(why[:3])}" if why else ""
    raise SourceError(
        f"{location}: none of the first {int(drawn)} images can be used ({said}){because}. A "
        "generator that returns black or NaN images, or a classifier whose answers are not numbers, has no failures; "
        "mend it, delete the directory, and build again",
        location=location,
    )
