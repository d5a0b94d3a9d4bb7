"""A command's session: where its stages and models run, how these are placed, and who listens. It starts nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from c2b_ray.audits.kit.backend import AUTO, backend, chosen_via
from c2b_ray.audits.kit.events import Listener
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config.placement import PlacementConfig


@dataclass(frozen=True)
class Session:
    """`via`: here, actors, serve, or auto. `placement`: None: it follows from the cluster's resources."""

    via: str = AUTO
    placement: PlacementConfig | None = None
    listener: Listener | None = None

    def chosen(self, images: Callable[[], int | None]) -> str:
        """Returns where the work runs, for at most `images` images. With a placement, `auto` is `actors`: a placement
        file is for Ray's processes."""
        return chosen_via("actors" if self.placement is not None and self.via == AUTO else self.via, images)

    def backend(self, images: Callable[[], int | None]) -> AbstractContextManager[Backend]:
        return backend(self.chosen(images), self.placement)
