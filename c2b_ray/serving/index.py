"""The image indexes' deployment: each replica holds several, and a request names its index by path.

It knows the role `ImageIndex` and Serve's multiplexing; `deployments/` says where it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from ray import serve

from c2b_ray.errors import ServiceError
from c2b_ray.models import catalog
from c2b_ray.models.weight_bytes import weight_bytes
from c2b_ray.roles import Floats, ImageIndex, Neighbours
from c2b_ray.serving.answers import LoadedModels, ModelLimits
from c2b_ray.serving.batching import BatchSettings, ModelReplica, ModelThreads, RequestBatcher, take_gpus

DEPLOYMENT = "Index"


@dataclass(frozen=True)
class _Open:
    index: ImageIndex
    gather: RequestBatcher[tuple[Floats, int], Neighbours]


@serve.deployment(name=DEPLOYMENT)
class IndexServer(ModelReplica):
    """Serves any index that its node can read; the request's multiplexed model id is the index's path."""

    def __init__(self, models_per_replica: int = 2, threads: int = 1, models_gb: float | None = None) -> None:
        take_gpus()
        self._model_threads = ModelThreads(DEPLOYMENT, threads)
        self._settings = BatchSettings()
        self._loaded_models = LoadedModels(
            self._model_threads, self._open, _nothing, _size, ModelLimits.of(models_per_replica, models_gb)
        )

    async def describe(self) -> dict[str, Any]:
        """Describes the index that the request names; it is opened if necessary."""
        index = (await self._loaded_models.named()).index
        return {
            "encoder": index.encoder,
            "encoder_revision": index.encoder_revision,
            "dimension": index.dimension,
            "revision": index.revision,
        }

    async def search(self, embeddings: Floats, k: int) -> Neighbours:
        """Returns the k nearest images of each embedding, searched together with those of other requests."""
        opened = await self._loaded_models.named()
        return await opened.gather.ask((embeddings, k), len(embeddings))

    async def metadata(self, ids: Sequence[int]) -> pa.Table:
        """Returns key and metadata of each id."""
        return await self._model_threads.run((await self._loaded_models.named()).index.metadata, ids)

    async def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Returns key, bytes and metadata of each id."""
        return await self._model_threads.run((await self._loaded_models.named()).index.fetch, ids)

    async def statistics(self) -> dict[str, Any]:
        return {
            **await super().statistics(),
            "models": self._loaded_models.names(),
            "bytes": self._loaded_models.bytes(),
        }

    async def check_health(self) -> None:
        """Raises where an open index does not answer a search."""
        await self._model_threads.check(self._test)

    def _test(self) -> None:
        for opened in self._loaded_models.models():
            _search(opened.index, np.eye(1, opened.index.dimension, dtype=np.float32), 1)

    def _open(self, path: str) -> _Open:
        index = catalog.index(path)
        return _Open(
            index, RequestBatcher(partial(self._together, index), lambda: self._settings, self._model_threads.threads)
        )

    async def _together(self, index: ImageIndex, requests: list[tuple[Floats, int]]) -> list[Neighbours]:
        embeddings = np.concatenate([embeddings_of_request for embeddings_of_request, _ in requests])
        largest_k = max(k for _, k in requests)
        neighbours = await self._model_threads.run_batch(_search, len(embeddings), index, embeddings, largest_k)
        ends = pairwise(accumulate((len(embeddings_of_request) for embeddings_of_request, _ in requests), initial=0))
        return [
            Neighbours(neighbours.ids[a:b, :k], neighbours.similarities[a:b, :k])
            for (a, b), (_, k) in zip(ends, requests, strict=True)
        ]


def _size(opened: _Open) -> int:
    return weight_bytes(opened.index)


def _search(index: ImageIndex, embeddings: Floats, k: int) -> Neighbours:
    neighbours = index.search(embeddings, k)
    expected = (len(embeddings), k)
    if neighbours.ids.shape != expected or neighbours.similarities.shape != expected:
        raise ServiceError(f"{DEPLOYMENT}: an index gave neighbours of shape {neighbours.ids.shape}, not {expected}")
    return neighbours


def _nothing(*_: object) -> None:
    """Does nothing: only opening an index shows whether it can be read."""
