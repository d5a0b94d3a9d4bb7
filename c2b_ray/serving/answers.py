"""Answers that a replica has computed, kept in memory for later requests about the same image, from other runs or other
cells.

The key of an answer is the SHA-256 of the owner, the model's spec and revision, and the image as it was sent: a file's
bytes, or pixels and their shape. Spec and revision stand for weights and preprocessing, so a changed model gets no old
answers. The owner is a tenant of the shared endpoint (`OWNER`): no tenant can tell from the speed of an answer which
images another has sent. Answers are rows of numbers, bit for bit as they were first computed; a model's arithmetic may
differ in the last bit from batch to batch. Answers to images that could not be decoded, and answers that are not
finite, are not kept.
"""

from __future__ import annotations

import gc
import hashlib
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from ray import serve

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.roles import Floats
from c2b_ray.serving.batching import ModelThreads
from c2b_ray.serving.meters import answers_cached
from c2b_ray.serving.pictures import Packed, PackedFiles, Rows, chosen, unpack, unpack_files

OWNER = "C2B_ANSWERS_OF"
"""The environment variable that names the owner of a job's answers. Jobs without it share their answers."""
_OVERHEAD = 250
"""Bytes that an entry takes besides its numbers: its key, two objects and its entry in the dictionary."""

Ask = Callable[[Packed, Sequence[int]], Awaitable[Rows]]
"""Computes answers to some images of a request; also gets their positions in the request."""


def owner() -> str:
    return os.environ.get(OWNER, "")


class AnswerCache:
    """At most `most_bytes` bytes of answers; the least recently used make room. One event loop uses it."""

    def __init__(self, most_bytes: int = 0) -> None:
        self._most = most_bytes
        self._rows: OrderedDict[bytes, Floats] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def size(self) -> int:
        """Bytes that the answers take."""
        return self._bytes

    def limit(self, most_bytes: int) -> None:
        """Sets the most bytes to keep; 0 keeps nothing."""
        self._most = most_bytes
        self._make_room()

    async def of(self, identity: Sequence[str], model_threads: ModelThreads, packed: Packed, ask: Ask) -> Rows:
        """Returns the answers to a request's images: kept ones, and the others from `ask`, which are then kept.

        `identity`: the owner, the model's spec, its revision.
        """
        if not self._most:
            return await ask(packed, range(len(packed)))
        keys = await model_threads.decode(_keys, identity, packed)
        cached = [self._get(key) for key in keys]
        uncached = [i for i, row in enumerate(cached) if row is None]
        answers_cached("hit", len(keys) - len(uncached))
        answers_cached("miss", len(uncached))
        if len(uncached) == len(keys):
            rows, errors = await ask(packed, uncached)
        else:
            rows, errors = await self._joined(cached, uncached, packed, ask)
        for i in uncached:
            self._put(keys[i], rows[i], errors[i])
        return rows, errors

    async def _joined(self, cached: list[Floats | None], uncached: list[int], packed: Packed, ask: Ask) -> Rows:
        errors: list[str | None] = [None] * len(cached)
        width = next(len(row) for row in cached if row is not None)
        rows = np.empty((len(cached), width), np.float32)
        if uncached:
            rows[uncached], computed = await ask(chosen(packed, uncached), uncached)
            for i, error in zip(uncached, computed, strict=True):
                errors[i] = error
        for i, row in enumerate(cached):
            if row is not None:
                rows[i] = row
        return rows, errors

    def _get(self, key: bytes | None) -> Floats | None:
        if key is None or key not in self._rows:
            return None
        self._rows.move_to_end(key)
        return self._rows[key]

    def _put(self, key: bytes | None, row: Floats, error: str | None) -> None:
        if key is None or error is not None or key in self._rows or not np.isfinite(row).all():
            return
        self._rows[key] = row.astype(np.float32, copy=True)
        self._bytes += row.nbytes + _OVERHEAD
        self._make_room()

    def _make_room(self) -> None:
        evicted = 0
        while self._bytes > self._most:
            _, row = self._rows.popitem(last=False)
            self._bytes -= row.nbytes + _OVERHEAD
            evicted += 1
        answers_cached("evicted", evicted)


def _keys(identity: Sequence[str], packed: Packed) -> list[bytes | None]:
    base_hash = hashlib.sha256(repr(tuple(identity)).encode())
    if isinstance(packed, PackedFiles):
        return [None if data is None else _key(base_hash, ("file",), data) for data in unpack_files(packed)]
    return [_key(base_hash, ("pixels", *image.shape), image.tobytes()) for image in unpack(packed)]


def _key(base_hash: hashlib._Hash, form: tuple[object, ...], data: bytes) -> bytes:
    digest = base_hash.copy()
    digest.update(repr(form).encode())
    digest.update(data)
    return digest.digest()


# Several models on one replica, loaded when a request first names them; the least recently used make room.


T = TypeVar("T")


class LoadedModel(Generic[T]):
    """One loaded model. Serve calls `__del__` when it unloads it, and drops it afterwards."""

    def __init__(self, model: T, size: int) -> None:
        self.model: T | None = model
        self.size = size

    def __del__(self) -> None:
        if self.model is not None:
            self.model = None
            gc.collect()  # modules of neural networks refer to each other in circles


@dataclass(frozen=True)
class ModelLimits:
    """What a replica may hold: at most `models` models, with weights of at most `bytes` bytes in all; None: no such
    limit.

    Bytes are counted where a model's size is known; a model larger than the limit is held alone.
    """

    models: int
    bytes: int | None = None

    @classmethod
    def of(cls, models: int, gigabytes: float | None) -> ModelLimits:
        """Returns the room that an app's `args` state."""
        return cls(models, None if gigabytes is None else int(gigabytes * 1e9))


class LoadedModels(Generic[T]):
    """The models of one replica.

    `check` refuses a name before another model makes room for it; `size` measures a loaded model in bytes (0 if it
    cannot). Both run, like `load`, on the loading thread.
    """

    def __init__(
        self,
        model_threads: ModelThreads,
        load: Callable[[str], T],
        check: Callable[[str], object],
        size: Callable[[T], int],
        room: ModelLimits,
    ) -> None:
        self._model_threads = model_threads
        self._check = check
        self._checked: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._loaded: WeakValueDictionary[str, LoadedModel[T]] = WeakValueDictionary()

        def loaded(name: str) -> LoadedModel[T]:
            model = load(name)
            return LoadedModel(model, size(model))

        async def take(name: str) -> LoadedModel[T]:
            # The size of a model that was here before is known, so room is made before it loads.
            await _make_room(take, self._sizes.get(name, 0), room)
            loaded_model = await model_threads.load(loaded, name)
            self._sizes[name] = loaded_model.size
            await _make_room(take, loaded_model.size, room)
            self._loaded[name] = loaded_model
            return loaded_model

        self._take = serve.multiplexed(max_num_models_per_replica=room.models)(take)

    async def named(self) -> T:
        """Returns the model that the request names. Raises SpecError and WeightsError as its loader does."""
        name = serve.get_multiplexed_model_id()
        if not name:
            raise SpecError(f"{self._model_threads.deployment}: the request names no model")
        if name not in self._checked:
            await self._model_threads.load(self._check, name)
            self._checked.add(name)
        loaded_model: LoadedModel[T] = await self._take(name)
        model = loaded_model.model
        if model is None:
            raise ServiceError(f"{self._model_threads.deployment}: {name} was unloaded while a request waited for it")
        return model

    def models(self) -> list[T]:
        """Returns the models in memory now."""
        return [loaded_model.model for loaded_model in list(self._loaded.values()) if loaded_model.model is not None]

    def names(self) -> Sequence[str]:
        return sorted(name for name, loaded_model in list(self._loaded.items()) if loaded_model.model is not None)

    def bytes(self) -> int:
        """Returns the bytes of the weights in memory, as far as they are known."""
        return sum(loaded_model.size for loaded_model in list(self._loaded.values()) if loaded_model.model is not None)


async def _make_room(take: Any, needed: int, limits: ModelLimits) -> None:
    """Unloads models, the least recently used first, until `needed` more bytes fit."""
    wrapper = getattr(take, "__serve_multiplex_wrapper", None)  # where Serve 2.60 keeps what `take` gave
    if wrapper is None or limits.bytes is None:
        return
    while wrapper.models and sum(loaded_model.size for loaded_model in wrapper.models.values()) + needed > limits.bytes:
        await wrapper.unload_model_lru()
        wrapper._push_multiplexed_replica_info = True
