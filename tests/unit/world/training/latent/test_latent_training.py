"""The losses of the latent world's generators are their papers'; what is saved answers as what was trained."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.models.latent_generators import NetworkConfig, network
from c2b_ray.world.training.latent import adversarial, classifiers, grid, known, vaes
from c2b_ray.world.training.latent.classifiers import Plant, Recipe
from c2b_ray.world.training.latent.family import SHIPPED_PLANTS, plant_name
from c2b_ray.world.training.latent.worlds import world
from c2b_ray.world.zoo import LATENT_CLASSIFIERS

TINY = Recipe(pictures=64, steps=3, batch=16)


def test_total_correlation_is_zero_of_independent_latents_and_known_of_a_pair() -> None:
    """Of one picture alone the mixture is its own Gaussian, whose coordinates are independent. Of two pictures at
    (±a, ±a), far apart, log q(z) is log ½ less than the nearer Gaussian, and each marginal is too: log ½ − 2 log ½."""
    latents, wide = torch.zeros(1, 2), torch.zeros(1, 2)
    assert vaes.total_correlation(latents, latents, wide).item() == pytest.approx(0)
    pair = torch.tensor([[20.0, 20.0], [-20.0, -20.0]])
    unscaled = vaes.total_correlation(pair, pair, torch.zeros(2, 2)).item()
    # Without the constant of rows: joint and marginals lack log(rows), once and twice.
    assert unscaled + (2 - 1) * np.log(2) == pytest.approx(np.log(2), abs=1e-5)


def test_the_covariance_penalty_counts_both_off_diagonal_entries() -> None:
    covariance = torch.tensor([[1.5, 0.2], [0.2, 1.0]])
    assert vaes.covariance_penalty(covariance, 10, 4).item() == pytest.approx(10 * 2 * 0.04 + 4 * 0.25)


def test_the_hessian_penalty_is_zero_where_latents_act_alone() -> None:
    torch.manual_seed(0)
    latents = torch.randn(6, 2)

    def penalty(decode: object) -> float:
        return float(adversarial.hessian_penalty(SimpleNamespace(decode=decode), latents, directions=8))

    alone = penalty(lambda z: (z**2).sum(dim=1)[:, None, None, None])
    together = penalty(lambda z: (z[:, 0] * z[:, 1])[:, None, None, None])
    assert alone == pytest.approx(0, abs=1e-3)
    assert together > 1, "along (±1, ±1) the second difference of a product is ±2"


def test_whitening_changes_w_and_no_picture() -> None:
    torch.manual_seed(1)
    model = network(NetworkConfig(kind="style", dimension=4, size=16, width=4, mapping_layers=2)).eval()
    noise = torch.randn(2000, 4)
    with torch.no_grad():
        before = model.decode(model.latent(noise[:5]))
        adversarial.whiten(model)
        after = model.decode(model.latent(noise[:5]))
        w = model.latent(noise)
    assert torch.allclose(before, after, atol=1e-3)
    assert torch.allclose(torch.cov(w.T), torch.eye(4), atol=0.15)
    assert w.mean(dim=0).abs().max() < 0.1


def test_a_classifier_is_saved_as_it_answers_and_a_second_run_takes_it_as_it_is(tmp_path: Path) -> None:
    plant = Plant("sprites", "x", "colour", 0.8, seed=3)
    about = classifiers.make(plant, tmp_path / "c", TINY, count=8)
    assert about["plant"]["skew"] == 0.8
    assert set(about["truth"]) == {"pictures", "accuracy", *world("sprites").attributes}
    of = world("sprites")
    images = of.images(of.sample(6, 1))
    loaded = catalog.classifier(f"timm:local-dir:{tmp_path / 'c'}")
    assert loaded.labels == ("left", "right")
    own = classifiers.answers(classifiers.train(plant, TINY), images)
    assert np.abs(loaded.logits(list(images), [""] * 6) - own).max() < 0.02
    assert classifiers.make(plant, tmp_path / "c", Recipe(steps=10**9)) == json.loads(json.dumps(about))
    with pytest.raises(ConfigError, match="holds another classifier"):
        classifiers.make(replace(plant, label_noise=0.2), tmp_path / "c", TINY)


def test_turning_the_attribute_that_a_classifier_looks_at_shifts_its_answer() -> None:
    class Brightness(torch.nn.Module):
        """Right where the picture's right half is brighter."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            difference = (images[..., 16:] - images[..., :16]).mean(dim=(1, 2, 3)) * 100
            return torch.stack([-difference, difference], dim=1)

    truth = classifiers.effects(Brightness(), world("dsprites"), "x", 200, 5)
    assert truth["accuracy"] > 0.95
    assert truth["x"]["shift"] > 0.9
    assert abs(truth["y"]["shift"]) < 0.05


def test_the_grid_has_every_ordered_pair_of_separated_attributes() -> None:
    accuracies = {"vae": {"x": 0.95, "y": 0.92, "scale": 0.9}, "gan": {"x": 0.95, "y": None, "scale": 0.91}}
    biased = grid.biased_settings("sprites", accuracies, 0.9, 7, 0.05)
    assert len(biased.settings) == 6 + 2
    assert biased.left_out == 4
    assert len(grid.plants(biased.settings)) == 6, "generators share classifiers"
    unbiased = grid.unbiased_settings("sprites", accuracies, [1, 2], 0.05)
    assert len(unbiased.settings) == 2 * (3 + 2)
    assert grid.problem(unbiased.settings[0], "none").get("biased") is None
    names = [plant_name(plant) for plant in grid.plants([*biased.settings, *unbiased.settings])]
    assert len(set(names)) == len(names)


def test_what_ships_has_the_names_that_the_zoo_lists() -> None:
    assert tuple(plant_name(plant) for plant in SHIPPED_PLANTS) == LATENT_CLASSIFIERS


def test_the_normals_of_a_known_space_are_orthonormal_and_no_axes() -> None:
    directions = known.normals(10, 5, 3)
    assert np.allclose(directions @ directions.T, np.eye(5))
    assert np.abs(directions).max() < 0.95
