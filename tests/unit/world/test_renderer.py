"""The renderer draws what the prompt says, and something else as often as it is told to."""

import numpy as np

from c2b_ray.roles import GenerationRequest
from c2b_ray.world.render import Renderer, render

MENTIONED = {"target_class": "bus", "colour": "red", "companion": "dog"}


def test_the_rest_comes_from_the_seed_alone() -> None:
    renderer = Renderer()
    scenes = [renderer.scene(seed, MENTIONED) for seed in range(200)]
    assert all(getattr(scene, name) == value for scene in scenes for name, value in MENTIONED.items())
    assert {scene.lighting for scene in scenes} == {"day", "sunset", "night"}
    other = renderer.scene(3, {**MENTIONED, "colour": "blue"})
    assert (other.colour, other.jitter, other.setting) == ("blue", scenes[3].jitter, scenes[3].setting)


def test_a_picture_is_the_scene_that_was_asked_for() -> None:
    renderer = Renderer()
    found = renderer.generate([GenerationRequest("a red bus with a dog", 12)])[0]
    assert found.pixels is not None
    np.testing.assert_array_equal(found.pixels, render(renderer.scene(12, MENTIONED)))


def test_mislabelled_pictures_show_other_values_of_the_same_class() -> None:
    renderer = Renderer(mislabel=0.2)
    wrong = 0
    for seed in range(2000):
        scene = renderer.scene(seed, MENTIONED)
        assert scene.target_class == "bus"
        changed = [name for name in ("colour", "companion") if getattr(scene, name) != MENTIONED[name]]
        assert len(changed) in (0, 2)
        wrong += len(changed) == 2
    # 2000 draws with p = 0.2: mean 400, standard deviation 17.9; four of them to each side.
    assert 328 <= wrong <= 472
    assert renderer.revision != Renderer().revision
