"""Several models on one replica, loaded when a request first names them; the least recently used make room.

It knows Serve's multiplexing, which tells routers which replica holds which model, and no role.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from ray import serve

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.serving.hands import Hands

T = TypeVar("T")


class Held(Generic[T]):
    """One loaded model. Serve calls `__del__` when it unloads it, and drops it afterwards."""

    def __init__(self, model: T, size: int) -> None:
        self.model: T | None = model
        self.size = size

    def __del__(self) -> None:
        if self.model is not None:
            self.model = None
            gc.collect()  # modules of neural networks refer to each other in circles


@dataclass(frozen=True)
class Room:
    """What a replica may hold: at most `models` models, with weights of at most `bytes` bytes in all; None: no such
    limit.

    Bytes are counted where a model's size is known; a model larger than the limit is held alone.
    """

    models: int
    bytes: int | None = None

    @classmethod
    def of(cls, models: int, gigabytes: float | None) -> Room:
        """Returns the room that an app's `args` state."""
        return cls(models, None if gigabytes is None else int(gigabytes * 1e9))


class Shelf(Generic[T]):
    """The models of one replica.

    `check` refuses a name before another model makes room for it; `size` measures a loaded model in bytes (0 if it
    cannot). Both run, like `load`, on the loading thread.
    """

    def __init__(
        self,
        hands: Hands,
        load: Callable[[str], T],
        check: Callable[[str], object],
        size: Callable[[T], int],
        room: Room,
    ) -> None:
        self._hands = hands
        self._check = check
        self._checked: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._loaded: WeakValueDictionary[str, Held[T]] = WeakValueDictionary()

        def loaded(name: str) -> Held[T]:
            model = load(name)
            return Held(model, size(model))

        async def take(name: str) -> Held[T]:
            # The size of a model that was here before is known, so room is made before it loads.
            await _make_room(take, self._sizes.get(name, 0), room)
            held = await hands.load(loaded, name)
            self._sizes[name] = held.size
            await _make_room(take, held.size, room)
            self._loaded[name] = held
            return held

        self._take = serve.multiplexed(max_num_models_per_replica=room.models)(take)

    async def named(self) -> T:
        """Returns the model that the request names. Raises SpecError and WeightsError as its loader does."""
        name = serve.get_multiplexed_model_id()
        if not name:
            raise SpecError(f"{self._hands.deployment}: the request names no model")
        if name not in self._checked:
            await self._hands.load(self._check, name)
            self._checked.add(name)
        held: Held[T] = await self._take(name)
        model = held.model
        if model is None:
            raise ServiceError(f"{self._hands.deployment}: {name} was unloaded while a request waited for it")
        return model

    def models(self) -> list[T]:
        """Returns the models in memory now."""
        return [held.model for held in list(self._loaded.values()) if held.model is not None]

    def names(self) -> Sequence[str]:
        return sorted(name for name, held in list(self._loaded.items()) if held.model is not None)

    def bytes(self) -> int:
        """Returns the bytes of the weights in memory, as far as they are known."""
        return sum(held.size for held in list(self._loaded.values()) if held.model is not None)


async def _make_room(take: Any, needed: int, room: Room) -> None:
    """Unloads models, the least recently used first, until `needed` more bytes fit."""
    wrapper = getattr(take, "__serve_multiplex_wrapper", None)  # where Serve 2.60 keeps what `take` gave
    if wrapper is None or room.bytes is None:
        return
    while wrapper.models and sum(held.size for held in wrapper.models.values()) + needed > room.bytes:
        await wrapper.unload_model_lru()
        wrapper._push_multiplexed_replica_info = True
