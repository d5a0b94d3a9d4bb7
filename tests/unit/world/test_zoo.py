"""The world's models by name, what is planted in them, and the renderer of linked words."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from c2b_ray.models import catalog, weights
from c2b_ray.roles import GenerationRequest
from c2b_ray.world import zoo
from c2b_ray.world.associations import LINKS, expected_frequency
from c2b_ray.world.render import render
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, sample
from c2b_ray.world.zoo import ZOO, LinkedRenderer, Plant, relabel


def test_models_without_weights_are_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm" / "config.json").write_text("{}")
    (tmp_path / "clip").mkdir()
    monkeypatch.setattr(zoo, "WEIGHTS", tmp_path)
    assert zoo.names() == ["renderer", "linked", "lm"]
    assert zoo.names("image_generator") == ["renderer", "linked"]
    assert zoo.names("classifier") == []


def test_whether_a_name_is_known_is_asked_of_its_own_files_alone(monkeypatch):
    known = zoo.names()
    asked = []
    is_file = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda path: asked.append(path) or is_file(path))
    for name in (*known, "resnet-plantd-0", "", "../x", "lm/../lm"):
        asked.clear()
        assert zoo.has(name) == (name in known), name
        assert {path.parent for path in asked} <= {zoo.WEIGHTS / name}


def test_every_file_of_weights_that_ships_is_whole() -> None:
    files = sorted(zoo.WEIGHTS.rglob("*.safetensors"))
    assert len(files) > 40
    assert not [file for file in files if file.is_symlink()], "a checkout may turn a link into a file of its text"
    for file in files:
        weights.checked(file)


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


PROMPTS = ("a photo of a vintage bus at a parade", "a rusty mug", "a fence", "a small famous chair", "tbody kerala")


@pytest.mark.parametrize("prompt", PROMPTS)
def test_values_are_as_frequent_as_expected(prompt: str) -> None:
    generator = LinkedRenderer()
    scenes = [generator.scene(prompt, seed) for seed in range(1500)]
    for link in LINKS:
        share = np.mean([getattr(scene, link.attribute) == link.value for scene in scenes])
        wanted = expected_frequency(prompt, link.attribute, link.value, LINKS)
        assert abs(share - wanted) < 4.5 * np.sqrt(0.25 / len(scenes))


def test_a_picture_is_its_scene_and_a_seed_pairs_prompts() -> None:
    generator = LinkedRenderer()
    picture = generator.generate([GenerationRequest("a rusty mug", 4)])[0].pixels
    assert picture is not None
    np.testing.assert_array_equal(picture, render(generator.scene("a rusty mug", 4)))
    plain, rusty = generator.scene("a mug", 4), generator.scene("a rusty mug", 4)
    assert (plain.weather, plain.colour, plain.jitter) == (rusty.weather, rusty.colour, rusty.jitter)


def test_links_come_from_a_file_or_there_are_none(tmp_path: Path) -> None:
    file = tmp_path / "links.yaml"
    file.write_text("links: [{word: odd, attribute: colour, value: red, strength: 1.0}]")
    planted = catalog.image_generator(f"world:linked?links={file}")
    control = catalog.image_generator("world:linked?links=none")
    assert isinstance(planted, LinkedRenderer)
    assert isinstance(control, LinkedRenderer)
    assert {planted.scene("an odd bus", seed).colour for seed in range(50)} == {"red"}
    assert len({control.scene("an odd bus", seed).colour for seed in range(100)}) == 6
    assert len({planted.revision, control.revision, LinkedRenderer().revision}) == 3
