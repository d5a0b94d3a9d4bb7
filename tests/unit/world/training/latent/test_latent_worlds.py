"""Attributes of the latent worlds are independent, balanced, and turned one at a time; skews are what is asked for."""

import numpy as np
import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.world.training.latent.classifiers import Plant, training_set
from c2b_ray.world.training.latent.worlds import WORLDS, all_sides, skewed, world


@pytest.mark.parametrize("name", WORLDS)
def test_sides_are_balanced_and_independent(name: str) -> None:
    of = WORLDS[name]
    table = of.sample(6000, 3)
    sides = all_sides(of, table)
    assert np.abs(sides.mean(axis=0) - 0.5).max() < 0.03
    assert np.abs(np.corrcoef(sides.T) - np.eye(len(of.attributes))).max() < 0.05
    assert (of.sample(40, 3) == table[:40]).all()


@pytest.mark.parametrize("name", WORLDS)
def test_turning_an_attribute_turns_it_alone_shows_and_can_be_undone(name: str) -> None:
    of = WORLDS[name]
    table = of.sample(24, 5)
    images = of.images(table)
    for column, attribute in enumerate(of.attributes):
        turned = of.turned(table, attribute)
        changed = all_sides(of, turned) != all_sides(of, table)
        assert changed[:, column].all()
        assert changed.sum() == len(table)
        assert np.allclose(of.turned(turned, attribute), table)
        if attribute != "orientation":  # that of a square may be its own mirror image
            assert (of.images(turned) != images).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize("skew", [0.0, 0.5, 0.9, 1.0])
def test_a_skew_is_the_share_that_agrees_with_the_label(skew: float) -> None:
    of = world("sprites")
    table = of.sample(4000, 2)
    labels = of.sides(table, "x")
    result = skewed(of, table, "scale", labels, skew, 1)
    assert (of.sides(result, "scale") == labels).mean() == pytest.approx(skew, abs=0.02)
    rest = [k for k, attribute in enumerate(of.attributes) if attribute != "scale"]
    assert (all_sides(of, result)[:, rest] == all_sides(of, table)[:, rest]).all()


def test_a_plant_skews_towards_the_label_that_is_taught_and_some_labels_are_wrong() -> None:
    table, labels = training_set(Plant("sprites", "x", "colour", 0.8, 4, label_noise=0.1), 5000)
    of = world("sprites")
    assert (of.sides(table, "x") == labels).mean() == pytest.approx(0.9, abs=0.02)
    assert (of.sides(table, "colour") == labels).mean() == pytest.approx(0.8, abs=0.02)
    table, labels = training_set(Plant("sprites", "x", None), 5000)
    assert max(abs((of.sides(table, name) == labels).mean() - 0.5) for name in of.attributes if name != "x") < 0.03


def test_what_cannot_be_planted_is_refused_by_its_field() -> None:
    with pytest.raises(ConfigError, match="no attribute 'hue'"):
        Plant("sprites", "x", "hue")
    with pytest.raises(ConfigError, match="must differ"):
        Plant("sprites", "x", "x")
    with pytest.raises(ConfigError, match=r"no world 'sprite'.*sprites"):
        Plant("sprite", "x", "y")
    with pytest.raises(ConfigError, match="must lie in"):
        training_set(Plant("sprites", "x", "y", skew=1.2), 10)
    with pytest.raises(ConfigError, match="label_noise"):
        Plant("sprites", "x", "y", label_noise=0.5)


@pytest.mark.parametrize("name", WORLDS)
def test_a_share_above_one_half_places_an_attribute_on_side_one(name: str) -> None:
    of = WORLDS[name]
    shares = np.random.default_rng(3).random((200, len(of.attributes)))
    assert (all_sides(of, of.rows_at(shares)) == (shares > 0.5)).all()
