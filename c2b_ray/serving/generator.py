"""The image generator's deployment: prompts of all requests, gathered into batches.

It knows the role `ImageGenerator` and Serve; which model it serves is an argument, and `deployments/` says where it
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from ray import serve

from c2b_ray.config.placement import UNSAID, Computing
from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.roles import ActivationReader, Floats, GeneratedImage, GenerationRequest, ImageGenerator
from c2b_ray.serving.batching import (
    BatchSettings,
    ModelReplica,
    ModelThreads,
    RequestBatcher,
    can_be_probed,
    load,
    refuse_other_model,
    take_gpus,
)
from c2b_ray.serving.channel import carried_in_text

DEPLOYMENT = "Generator"
TEST_EVERY_S = 300.0
"""Seconds between self-tests: an image takes a CPU seconds to minutes."""
_PROBE = GenerationRequest("a photo of a dog", seed=0)


@serve.deployment(name=DEPLOYMENT)
class GeneratorServer(ModelReplica):
    """Serves one image generator; every call names the model that the caller expects."""

    def __init__(self, model: str, threads: int = 1, computing: Computing = UNSAID) -> None:
        take_gpus()
        self._spec, self._computing = model, computing
        with carried_in_text():
            self._generator: ImageGenerator = load("image_generator", computing, model)
        self._model_threads = ModelThreads(DEPLOYMENT, threads)
        self._settings = BatchSettings()
        self._requests: RequestBatcher[Sequence[GenerationRequest], list[GeneratedImage]] = RequestBatcher(
            self._generate, lambda: self._settings, threads
        )

    async def describe(self, model: str | None = None) -> dict[str, Any]:
        """Returns facts about the served model. With a spec, raises an error if another model is served."""
        if model is not None:
            refuse_other_model(DEPLOYMENT, self._spec, model)
        inner = {"activation_names": (), "denoising_steps": 0}
        if isinstance(self._generator, ActivationReader):
            names, steps = self._generator.activation_names, self._generator.denoising_steps
            inner = {"activation_names": names, "denoising_steps": steps}
        return {"model": self._spec, "computing": self._computing, "revision": self._generator.revision, **inner}

    async def generate(self, model: str, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        """Returns an image per request, as the role defines it."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        return await self._requests.ask(requests, len(requests))

    async def activations(
        self, model: str, requests: Sequence[GenerationRequest], name: str, steps: Sequence[int]
    ) -> Floats:
        """Returns what a module computes while the requests are denoised, as `roles.ActivationReader` defines it."""
        refuse_other_model(DEPLOYMENT, self._spec, model)
        if not isinstance(self._generator, ActivationReader):
            raise SpecError(f"{self._spec}: its activations cannot be read")
        return await self._model_threads.run_batch(self._generator.activations, len(requests), requests, name, steps)

    async def check_health(self) -> None:
        """Raises where a prompt gets neither an image nor a reason why there is none."""
        await self._model_threads.check(self._test, TEST_EVERY_S)

    def _test(self) -> None:
        if can_be_probed(self._spec):
            self._images([_PROBE])

    async def _generate(self, requests: list[Sequence[GenerationRequest]]) -> list[list[GeneratedImage]]:
        prompts = [prompt for request in requests for prompt in request]
        images = await self._model_threads.run_batch(self._images, len(prompts), prompts)
        return [images[a:b] for a, b in pairwise(accumulate(map(len, requests), initial=0))]

    def _images(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        images = self._generator.generate(requests)
        if len(images) != len(requests):
            raise ServiceError(f"{DEPLOYMENT}: {self._spec} gave {len(images)} images to {len(requests)} prompts")
        return images
