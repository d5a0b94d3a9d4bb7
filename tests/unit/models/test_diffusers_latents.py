"""The noise of a pipeline as a latent space: gradients through its steps, and one image for one noise."""

from __future__ import annotations

import pytest
import torch

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.roles import LatentGenerator
from c2b_ray.world.zoo import WEIGHTS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not (WEIGHTS / "diffusion").is_dir(), reason="the world's pipeline is not here"),
]


def test_images_are_differentiable_in_the_noise_and_depend_on_it_and_the_prompt_alone():
    space = catalog.latent_generator("world:diffusion?prompt=a photo of a bus&steps=2")
    assert isinstance(space, LatentGenerator)
    noise = torch.from_numpy(space.sample(2, 3)).requires_grad_()
    images = space.images(noise)
    assert images.shape[:2] == (2, 3)
    assert 0 <= images.min() <= images.max() <= 1
    images.sum().backward()
    assert (noise.grad.abs().amax(dim=1) > 0).all()
    torch.testing.assert_close(space.images(noise.detach()[1:]), images.detach()[1:], atol=1e-4, rtol=0)
    other = catalog.latent_generator("world:diffusion?prompt=a photo of a boat&steps=2")
    assert other.revision != space.revision
    assert (other.images(noise.detach()) - images.detach()).abs().max() > 0.01


def test_a_scheduler_that_draws_noise_of_its_own_is_refused():
    with pytest.raises(SpecError, match="the same noise gives two images under DDPMScheduler"):
        catalog.latent_generator("world:diffusion?steps=2&scheduler=DDPMScheduler")
