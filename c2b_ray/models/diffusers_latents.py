"""The noise space of a deterministic diffusers pipeline, for one prompt.

    diffusers:local-dir:PATH?prompt=a photo of a bus&steps=6

Options: prompt (the text of every image, empty by default) and those of `diffusers_generator`. A latent is the noise
that the first step starts from, flattened; gradients go through every step, so few steps and small batches save memory.
A pipeline whose images depend on more than that noise (an ancestral scheduler) is refused. It knows pipelines with a
UNet; those that pack their latents are refused.
"""

from __future__ import annotations

from dataclasses import replace
from inspect import unwrap
from typing import Any

import torch

from c2b_ray.errors import SpecError
from c2b_ray.models import diffusers_generator
from c2b_ray.models.catalog import Spec
from c2b_ray.models.latent_generators import standard_normal
from c2b_ray.roles import Description, Floats
from c2b_ray.tables import content_id


class NoiseSpace:
    """Implements `roles.LatentGenerator`: d = channels · height · width of the UNet's input, drawn from N(0, I)."""

    def __init__(self, pipeline: Any, settings: dict[str, Any], prompt: str, revision: str) -> None:
        self._pipeline, self._settings, self._prompt, self.revision = pipeline, settings, prompt, revision
        self._shape = _shape(pipeline, settings)
        for module in pipeline.components.values():
            if isinstance(module, torch.nn.Module):
                module.requires_grad_(False)

    @property
    def dimension(self) -> int:
        channels, height, width = self._shape
        return channels * height * width

    def sample(self, count: int, seed: int) -> Floats:
        return standard_normal(count, self.dimension, seed)

    def images(self, latents: Any) -> torch.Tensor:
        """Returns images (rows, 3, height, width) in [0, 1], differentiable in `latents`."""
        return self._run(latents, 0)

    def _run(self, latents: Any, seed: int) -> torch.Tensor:
        rows = len(latents)
        noise = latents.reshape(rows, *self._shape).to(self._pipeline.device, self._pipeline.unet.dtype)
        generators = [torch.Generator("cpu").manual_seed(seed + row) for row in range(rows)]
        call = unwrap(type(self._pipeline).__call__)  # the pipeline's own call forbids gradients
        result = call(
            self._pipeline,
            prompt=[self._prompt] * rows,
            latents=noise,
            generator=generators,
            output_type="pt",
            **self._settings,
        )
        images: torch.Tensor = result.images.float()
        return images


def load(spec: Spec) -> NoiseSpace:
    """Loads the noise space of a spec. Raises SpecError for a pipeline without a UNet, or whose images depend on more
    than their first noise."""
    inner, prompt = _inner(spec)
    generator = diffusers_generator.load(inner)
    pipeline = generator.pipeline
    if getattr(pipeline, "unet", None) is None or "latents" not in diffusers_generator.parameters(pipeline):
        raise SpecError(f"{spec.text}: {type(pipeline).__name__} has no UNet that starts from latents of one's own")
    space = NoiseSpace(pipeline, generator.settings, prompt, content_id("noise space", generator.revision, prompt))
    _check_deterministic(space, spec, type(pipeline.scheduler).__name__)
    return space


def describe(spec: Spec) -> Description | None:
    """Returns None: only the loaded pipeline knows the dimension."""
    _inner(spec)
    return None


def _inner(spec: Spec) -> tuple[Spec, str]:
    options = dict(spec.options)
    prompt = options.pop("prompt", "")
    return replace(spec, options=options), prompt


def _shape(pipeline: Any, settings: dict[str, Any]) -> tuple[int, int, int]:
    config, factor = pipeline.unet.config, pipeline.vae_scale_factor
    side = config.sample_size
    height, width = (side, side) if isinstance(side, int) else side
    height = settings["height"] // factor if "height" in settings else height
    width = settings["width"] // factor if "width" in settings else width
    return config.in_channels, height, width


def _check_deterministic(space: NoiseSpace, spec: Spec, scheduler: str) -> None:
    noise = torch.from_numpy(space.sample(1, 0))
    with torch.no_grad():
        first, second = (space._run(noise, seed) for seed in (0, 1))
    if not torch.allclose(first, second, atol=1e-3):
        raise SpecError(
            f"{spec.text}: the same noise gives two images under {scheduler}, which draws noise of its own at each "
            "step; give a deterministic one: scheduler=DDIMScheduler"
        )
