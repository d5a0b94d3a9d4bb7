"""The generator with planted links draws what the prompt leaves out as often as its words say."""

from pathlib import Path

import numpy as np
import pytest

from c2b_ray.models import catalog
from c2b_ray.roles import GenerationRequest
from c2b_ray.world.associations import LINKS, expected_frequency
from c2b_ray.world.render import render
from c2b_ray.world.zoo import LinkedRenderer

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
