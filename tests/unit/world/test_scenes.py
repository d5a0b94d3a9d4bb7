"""Scenes are drawn as promised, and every attribute shows in the picture."""

import time
from collections import Counter
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from c2b_ray.world import ATTRIBUTES, CLASSES, Scene, render, sample

EVERYDAY = {"lighting": "day", "weather": "clear", "companion": "none", "pattern": "plain"}


def with_value(scene: Scene, name: str, value: str) -> Scene:
    changed: dict[str, Any] = {name: value}
    return replace(scene, **changed)


def difference(a: Scene, b: Scene) -> float:
    """The share of pixels that differ visibly."""
    return float((np.abs(render(a).astype(int) - render(b).astype(int)).max(axis=2) > 12).mean())


def test_a_longer_sample_begins_with_the_shorter_one() -> None:
    assert sample(10, 7)[:5] == sample(5, 7)
    assert sample(10, 7) != sample(10, 8)
    assert sample(0, 7) == []


def test_fixing_an_attribute_leaves_the_rest_of_each_scene_alone() -> None:
    free = sample(50, 3)
    assert sample(50, 3, weather="snow", target_class="bus") == [
        replace(scene, weather="snow", target_class="bus") for scene in free
    ]


@pytest.mark.parametrize("name", ["target_class", *ATTRIBUTES])
def test_marginals_are_uniform(name: str) -> None:
    n, values = 20_000, {"target_class": CLASSES, **ATTRIBUTES}[name]
    counts = Counter(getattr(scene, name) for scene in sample(n, 0))
    share = 1 / len(values)
    for value in values:
        # Five standard deviations of a binomial share.
        assert abs(counts[value] / n - share) < 5 * (share * (1 - share) / n) ** 0.5


def test_nuisances_are_uniform_and_attributes_independent() -> None:
    scenes = sample(20_000, 1)
    for name in ("horizon", "x"):
        values = np.array([getattr(scene, name) for scene in scenes])
        # Mean 1/2, standard deviation of the mean sqrt(1/12/20000) = 0.0020.
        assert abs(values.mean() - 0.5) < 0.011
        assert values.min() >= 0
        assert values.max() < 1
    both = np.mean([scene.lighting == "night" and scene.weather == "snow" for scene in scenes])
    assert abs(both - 1 / 12) < 0.01


@pytest.mark.parametrize(
    ("fixed", "said"),
    [({"wether": "snow"}, "weather"), ({"weather": "snov"}, "snow"), ({"target_class": "buss"}, "bus")],
)
def test_what_is_unknown_is_named_with_the_nearest(fixed: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sample(1, 0, **fixed)


def test_a_scene_is_immutable_hashable_and_refuses_what_cannot_be_rendered() -> None:
    scene = sample(1, 0)[0]
    assert len({scene, replace(scene)}) == 1
    assert scene.attribute("weather") == scene.weather
    with pytest.raises(FrozenInstanceError):
        scene.weather = "snow"  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"'nihgt'.*night"):
        replace(scene, lighting="nihgt")
    with pytest.raises(ValueError, match="horizon"):
        replace(scene, horizon=1.0)
    with pytest.raises(ValueError, match="jitter"):
        replace(scene, jitter=-1)
    with pytest.raises(ValueError, match="'target_class'"):
        scene.attribute("target_class")


def test_a_picture_is_the_same_every_time() -> None:
    for scene in sample(40, 5):
        picture = render(scene)
        assert picture.shape == (64, 64, 3)
        assert picture.dtype == np.uint8
        assert picture.flags.writeable
        assert (picture == render(scene)).all()


@pytest.mark.parametrize("name", ["target_class", *ATTRIBUTES])
def test_every_value_of_every_attribute_changes_the_picture(name: str) -> None:
    values = {"target_class": CLASSES, **ATTRIBUTES}[name]
    for scene in sample(12, 9):
        for a, b in zip(values, values[1:] + values[:1], strict=True):
            changed = difference(with_value(scene, name, a), with_value(scene, name, b))
            assert changed > 0.004, (name, a, b, scene)


def test_every_class_renders_with_every_value() -> None:
    for target in CLASSES:
        for name, values in ATTRIBUTES.items():
            for value in values:
                assert render(sample(1, 2, target_class=target, **{name: value})[0]).std() > 3


def test_a_large_object_is_nearly_twice_as_long_as_a_small_one() -> None:
    spans = {}
    for size in ATTRIBUTES["size"]:
        scene = sample(1, 4, target_class="bus", colour="red", setting="beach", size=size, **EVERYDAY)[0]
        r, g, b = np.moveaxis(render(scene).astype(int), 2, 0)
        columns = np.flatnonzero(((r > 150) & (g < 80) & (b < 80)).any(axis=0))
        spans[size] = columns[-1] - columns[0] + 1
    assert 1.6 < spans["large"] / spans["small"] < 2.0


@pytest.mark.parametrize("setting", ATTRIBUTES["setting"])
@pytest.mark.parametrize("lighting", ATTRIBUTES["lighting"])
@pytest.mark.parametrize("weather", ["fog"])
def test_the_horizon_can_be_read_from_the_picture(setting: str, lighting: str, weather: str) -> None:
    scenes = sample(130, 1, setting=setting, lighting=lighting, weather=weather)
    horizon = np.array([scene.horizon for scene in scenes])
    # Ridge regression on each row's median colour, which hardly sees the object.
    rows = np.stack([np.median(render(scene) / 255.0, axis=1)[:44].ravel() for scene in scenes])
    rows -= rows[:100].mean(axis=0)
    weights = np.linalg.solve(rows[:100] @ rows[:100].T + 0.05 * np.eye(100), horizon[:100] - 0.5)
    error = np.abs(rows[100:] @ rows[:100].T @ weights + 0.5 - horizon[100:]).mean()
    assert error < 0.16  # saying 0.5 of every scene errs by 0.25


@pytest.mark.parametrize("setting", ATTRIBUTES["setting"])
@pytest.mark.parametrize("weather", ["clear", "snow"])
def test_the_horizon_moves_the_skyline_by_a_quarter_of_the_frame(setting: str, weather: str) -> None:
    base = sample(1, 6, setting=setting, lighting="day", weather=weather, size="small")[0]
    high, low = replace(base, horizon=0.0), replace(base, horizon=0.999)
    # Rows 22 to 38 of 64 are ground with the one and sky or backdrop with the other.
    band = np.abs(render(high).astype(int) - render(low).astype(int)).max(axis=2)[23:38]
    assert (band > 12).mean() > 0.6


@pytest.mark.parametrize("lighting", ATTRIBUTES["lighting"])
@pytest.mark.parametrize("weather", ATTRIBUTES["weather"])
def test_colours_stay_apart_in_every_light(lighting: str, weather: str) -> None:
    base = sample(1, 8, target_class="house", size="large", lighting=lighting, weather=weather, pattern="plain")[0]
    seen = [render(replace(base, colour=colour)).astype(int) for colour in ATTRIBUTES["colour"]]
    for k, one in enumerate(seen):
        for other in seen[:k]:
            changed = np.abs(one - other).max(axis=2)
            # The 200 pixels that differ most lie on the wall, which is larger than that.
            assert np.sort(changed.ravel())[-200] > 30


def test_a_hundred_thousand_scenes_are_cheap() -> None:
    start = time.process_time()
    sample(100_000, 0)
    assert time.process_time() - start < 3
