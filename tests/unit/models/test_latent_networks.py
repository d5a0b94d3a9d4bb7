"""The directories of small generators: what is written loads, differentiable, and says what is wrong with it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.latent_generators import NetworkConfig, network, write
from c2b_ray.roles import LatentGenerator

SMALL = {"dimension": 6, "size": 16, "width": 8, "hidden": 16}


@pytest.fixture(scope="module", params=["vae", "gan", "style"])
def generator(request, tmp_path_factory):
    config = NetworkConfig(kind=request.param, norm="batch" if request.param == "gan" else "none", **SMALL)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param)
    write(network(config), config, folder)
    return f"{request.param}:local-dir:{folder}"


def test_images_are_differentiable_in_latents_of_the_prior(generator):
    loaded = catalog.latent_generator(generator)
    assert isinstance(loaded, LatentGenerator)
    latents = torch.from_numpy(loaded.sample(3, 5)).requires_grad_()
    images = loaded.images(latents)
    assert images.shape == (3, 3, 16, 16)
    assert 0 <= images.min() <= images.max() <= 1
    images.sum().backward()
    assert torch.isfinite(latents.grad).all()
    assert latents.grad.abs().min(dim=1).values.max() > 0
    np.testing.assert_array_equal(loaded.sample(5, 5)[:3], latents.detach().numpy())
    known = catalog.describe("latent_generator", generator)
    assert (known.revision, known.dimension) == (loaded.revision, loaded.dimension) == (loaded.revision, 6)


def test_an_image_depends_on_its_own_latent_alone(generator):
    loaded = catalog.latent_generator(generator)
    latents = torch.from_numpy(loaded.sample(4, 1))
    torch.testing.assert_close(loaded.images(latents)[2:3], loaded.images(latents[2:3]), atol=1e-5, rtol=0)


def test_a_directory_of_another_kind_says_how_to_write_it(generator):
    wrong = generator.replace(generator.partition(":")[0], "vae" if not generator.startswith("vae") else "gan", 1)
    with pytest.raises(SpecError, match=f"write {generator.partition(':')[0]}:local-dir:"):
        catalog.latent_generator(wrong)


def test_a_config_with_an_unknown_key_and_weights_that_do_not_fit_are_refused(tmp_path):
    config = NetworkConfig(kind="vae", encoder=True, **SMALL)
    write(network(config), config, tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config.model_dump(), "dimension": 7}))
    with pytest.raises(WeightsError, match="does not fit"):
        catalog.latent_generator(f"vae:local-dir:{tmp_path}")
    path.write_text(json.dumps({**config.model_dump(), "dimensions": 7}))
    with pytest.raises(WeightsError, match="did you mean 'dimension'"):
        catalog.latent_generator(f"vae:local-dir:{tmp_path}")
    with pytest.raises(SpecError, match=r"holds no config\.json"):
        catalog.latent_generator(f"vae:local-dir:{tmp_path}/none")
