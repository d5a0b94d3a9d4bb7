"""The image generator's deployment: whole batches for pipelines, single prompts gathered into batches.

It knows the role `ImageGenerator` and Serve; which model it serves is an argument, where it runs `deployments/` say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray import serve

from c2b_ray.errors import ServiceError
from c2b_ray.models import catalog
from c2b_ray.roles import GeneratedImage, GenerationRequest
from c2b_ray.serving.failures import carried_in_text
from c2b_ray.serving.replica import Hands, apply_settings, refuse_other_model, take_gpus

DEPLOYMENT = "Generator"


@serve.deployment(name=DEPLOYMENT)
class GeneratorServer:
    """Serves one image generator; every call names the model that the caller expects."""

    def __init__(self, model: str, threads: int = 1) -> None:
        take_gpus()
        self._spec = model
        with carried_in_text():
            self._generator = catalog.image_generator(model)
        self._hands = Hands(DEPLOYMENT, threads)

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Takes `BatchSettings`, also while it serves."""
        apply_settings(user_config, self._together)

    async def describe(self, model: str | None = None) -> dict[str, Any]:
        """What is served; asked with a model, refuses if it is another."""
        if model is not None:
            refuse_other_model(DEPLOYMENT, self._spec, model)
        return {"model": self._spec, "revision": self._generator.revision}

    async def generate(self, model: str, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        """An image per request, as the role gives them."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._hands.run_batch(self._images, len(requests), requests)

    async def generate_one(self, model: str, request: GenerationRequest) -> GeneratedImage:
        """One image, made together with whatever else waits."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._together(request)

    @serve.batch
    async def _together(self, requests: list[GenerationRequest]) -> list[GeneratedImage]:
        return await self._hands.run_batch(self._images, len(requests), requests)

    async def statistics(self) -> dict[str, Any]:
        return self._hands.statistics()

    def _images(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        images = self._generator.generate(requests)
        if len(images) != len(requests):
            raise ServiceError(f"{DEPLOYMENT}: {self._spec} gave {len(images)} images to {len(requests)} prompts")
        return images

    def __del__(self) -> None:
        if hasattr(self, "_hands"):  # not there if the model failed to load
            self._hands.close()
