"""The text-image encoder's deployment: whole batches for pipelines, single texts and images gathered into batches.

It knows the role `TextImageEncoder` and Serve; which model it serves is an argument, where it runs `deployments/` say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ray import serve

from c2b_ray.errors import ServiceError
from c2b_ray.models import catalog
from c2b_ray.roles import Floats, Pixels
from c2b_ray.serving.failures import carried_in_text
from c2b_ray.serving.payload import PackedImages, unpack
from c2b_ray.serving.replica import Hands, apply_settings, can_be_probed, refuse_other_model, take_gpus

DEPLOYMENT = "Encoder"


@serve.deployment(name=DEPLOYMENT)
class EncoderServer:
    """Serves one encoder; every call names the model that the caller expects."""

    def __init__(self, model: str, threads: int = 1) -> None:
        take_gpus()
        self._spec = model
        with carried_in_text():
            self._encoder = catalog.encoder(model)
        self._hands = Hands(DEPLOYMENT, threads)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Takes `BatchSettings`, also while it serves."""
        apply_settings(user_config, self._texts_together, self._images_together)

    async def describe(self, model: str | None = None) -> dict[str, Any]:
        """What is served; asked with a model, refuses if it is another."""
        if model is not None:
            refuse_other_model(DEPLOYMENT, self._spec, model)
        return {"model": self._spec, "dimension": self._encoder.dimension, "revision": self._encoder.revision}

    async def encode_texts(self, model: str, texts: Sequence[str]) -> Floats:
        """Unit-norm embeddings of the texts."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._hands.run_batch(self._texts, len(texts), texts)

    async def encode_images(self, model: str, images: PackedImages) -> Floats:
        """Unit-norm embeddings of the images."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._hands.run_batch(self._images, len(images), unpack(images))

    async def encode_text(self, model: str, text: str) -> Floats:
        """One embedding, (1, dimension), computed together with whatever else waits."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._texts_together(text)

    async def encode_image(self, model: str, image: Pixels) -> Floats:
        """One embedding, (1, dimension), computed together with whatever else waits."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._images_together(image)

    @serve.batch
    async def _texts_together(self, texts: list[str]) -> list[Floats]:
        found = await self._hands.run_batch(self._texts, len(texts), texts)
        return [row[None] for row in found]

    @serve.batch
    async def _images_together(self, images: list[Pixels]) -> list[Floats]:
        found = await self._hands.run_batch(self._images, len(images), images)
        return [row[None] for row in found]

    async def statistics(self) -> dict[str, Any]:
        return self._hands.statistics()

    async def check_health(self) -> None:
        """Raises where the embedding of a text is not a unit vector; Serve then replaces the replica."""
        await self._hands.check(self._test)

    def _test(self) -> None:
        if can_be_probed(self._spec):
            self._texts(["a photo"])

    def _texts(self, texts: Sequence[str]) -> Floats:
        return self._sound(self._encoder.encode_texts(texts), len(texts))

    def _images(self, images: Sequence[Pixels]) -> Floats:
        return self._sound(self._encoder.encode_images(images), len(images))

    def _sound(self, found: Floats, rows: int) -> Floats:
        """The embeddings, which are unit vectors of the right number; ServiceError where they are not."""
        expected = (rows, self._encoder.dimension)
        if found.shape != expected:
            raise ServiceError(f"{DEPLOYMENT}: {self._spec} gave embeddings of shape {found.shape}, not {expected}")
        # NaN fails the comparison too.
        if rows and not bool(np.all(np.abs(np.linalg.norm(found, axis=1) - 1) < 1e-2)):
            raise ServiceError(
                f"{DEPLOYMENT}: {self._spec} gave embeddings that are no unit vectors; check its weights"
            )
        return found

    def __del__(self) -> None:
        if hasattr(self, "_hands"):  # not there if the model failed to load
            self._hands.close()
