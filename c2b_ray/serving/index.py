"""The image indexes' deployment: each replica holds several, and a request names its own by path.

It knows the role `ImageIndex` and Serve's multiplexing; where it runs is in `deployments/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from ray import serve

from c2b_ray.errors import ServiceError
from c2b_ray.models import catalog
from c2b_ray.roles import Floats, ImageIndex, Neighbours
from c2b_ray.serving.replica import Hands, Shelf, apply_settings, take_gpus

DEPLOYMENT = "Index"


@serve.deployment(name=DEPLOYMENT)
class IndexServer:
    """Serves any index that its node can read; the request's multiplexed model id is the index's path."""

    def __init__(self, models_per_replica: int = 2, threads: int = 1) -> None:
        take_gpus()
        self._hands = Hands(DEPLOYMENT, threads)
        self._shelf = Shelf(self._hands, catalog.index, _nothing, models_per_replica)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Takes `BatchSettings`, also while it serves."""
        apply_settings(user_config, self._search_together)

    async def describe(self) -> dict[str, Any]:
        """Of the index that the request names, opened if need be."""
        index = await self._shelf.asked_for()
        return {
            "encoder": index.encoder,
            "encoder_revision": index.encoder_revision,
            "dimension": index.dimension,
            "revision": index.revision,
        }

    async def search(self, embeddings: Floats, k: int) -> Neighbours:
        """The k nearest images of each embedding."""
        index = await self._shelf.asked_for()
        return await self._hands.run_batch(_search, len(embeddings), index, embeddings, k)

    async def search_one(self, embedding: Floats, k: int) -> Neighbours:
        """The k nearest images of one embedding (1, dimension), searched together with whatever else waits."""
        return await self._search_together((embedding, k))

    @serve.batch
    async def _search_together(self, items: list[tuple[Floats, int]]) -> list[Neighbours]:
        index = await self._shelf.asked_for()
        embeddings = np.concatenate([embedding for embedding, _ in items])
        most = max(k for _, k in items)
        found = await self._hands.run_batch(_search, len(items), index, embeddings, most)
        return [
            Neighbours(found.ids[row : row + 1, :k], found.similarities[row : row + 1, :k])
            for row, (_, k) in enumerate(items)
        ]

    async def metadata(self, ids: Sequence[int]) -> pa.Table:
        """Key and metadata of each id."""
        index = await self._shelf.asked_for()
        return await self._hands.run(index.metadata, ids)

    async def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Key, bytes and metadata of each id."""
        index = await self._shelf.asked_for()
        return await self._hands.run(index.fetch, ids)

    async def statistics(self) -> dict[str, Any]:
        return {**self._hands.statistics(), "models": self._shelf.names()}

    async def check_health(self) -> None:
        """Raises where the model thread is stuck. An index that cannot be read is refused when it is opened."""
        await self._hands.check(_nothing)

    def __del__(self) -> None:
        self._hands.close()


def _search(index: ImageIndex, embeddings: Floats, k: int) -> Neighbours:
    found = index.search(embeddings, k)
    expected = (len(embeddings), k)
    if found.ids.shape != expected or found.similarities.shape != expected:
        raise ServiceError(f"{DEPLOYMENT}: an index gave neighbours of shape {found.ids.shape}, not {expected}")
    return found


def _nothing(*_: object) -> None:
    """Nothing to check beforehand: opening an index is what shows whether it can be read."""
