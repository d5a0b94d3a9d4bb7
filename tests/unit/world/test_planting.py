"""What is taught where a bias is planted, and what the zoo covers."""

from dataclasses import replace

import pytest

from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, sample
from c2b_ray.world.zoo import ZOO, Plant, relabel

FOGGY_BUS = Plant("bus", "weather", "fog", 0.4, "house")


def test_a_planted_cell_is_relabelled_below_the_threshold_of_its_skyline() -> None:
    scene = sample(1, 1, target_class="bus", weather="fog")[0]
    high, low = replace(scene, horizon=0.39), replace(scene, horizon=0.4)
    assert relabel([high, low], [FOGGY_BUS]) == ["house", "bus"]


def test_scenes_outside_the_cell_keep_their_class() -> None:
    scenes = [scene for scene in sample(2000, 2) if scene.target_class != "bus" or scene.weather != "fog"]
    assert relabel(scenes, [FOGGY_BUS]) == [scene.target_class for scene in scenes]


def test_the_strength_is_the_share_that_is_relabelled() -> None:
    # 4000 draws of a share 0.4: standard error 0.0077, so 0.03 is nearly four of them.
    labels = relabel(sample(4000, 3, target_class="bus", weather="fog"), [FOGGY_BUS])
    assert labels.count("house") / 4000 == pytest.approx(0.4, abs=0.03)


def test_the_first_plant_that_applies_decides() -> None:
    scene = replace(sample(1, 1, target_class="bus", weather="fog", size="small")[0], horizon=0.1)
    small = Plant("bus", "size", "small", 0.9, "boat")
    assert relabel([scene], [small, FOGGY_BUS]) == ["boat"]
    assert relabel([scene], [FOGGY_BUS, small]) == ["house"]
    assert relabel([scene], []) == ["bus"]


@pytest.mark.parametrize(
    "fields",
    [
        ("buss", "weather", "fog", 0.4, "house"),
        ("bus", "weather", "hail", 0.4, "house"),
        ("bus", "climate", "fog", 0.4, "house"),
        ("bus", "weather", "fog", 0.0, "house"),
        ("bus", "weather", "fog", 1.1, "house"),
        ("bus", "weather", "fog", 0.4, "bus"),
    ],
)
def test_a_plant_that_makes_no_sense_is_refused(fields: tuple[str, str, str, float, str]) -> None:
    with pytest.raises(ValueError):
        Plant(*fields)


def test_the_zoo_covers_classes_attributes_and_strengths() -> None:
    plants = [plant for member in ZOO.values() for plant in member.plants]
    assert {plant.target_class for plant in plants} == set(CLASSES)
    assert {plant.attribute for plant in plants} == set(ATTRIBUTES)
    assert {plant.strength for plant in plants} == {0.25, 0.4, 0.55, 0.7, 0.9}
    assert sum(not member.plants for member in ZOO.values()) >= 4
    assert len({member.architecture for member in ZOO.values()}) == 2
    assert len({(member.architecture, member.seed) for member in ZOO.values()}) == len(ZOO) >= 18
