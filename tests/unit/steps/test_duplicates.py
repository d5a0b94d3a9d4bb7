"""One picture saved twice is found; two pictures of one kind of scene are not."""

from io import BytesIO

import numpy as np
from PIL import Image

from c2b_ray.steps.duplicates import fingerprint, representatives
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample


def test_a_picture_saved_again_at_another_size_and_coarser_is_found():
    scenes = [render(scene) for scene in sample(30, 3)]
    marks = {f"{i:02d}": fingerprint(picture) for i, picture in enumerate(scenes)}
    again = {f"{i:02d}b": fingerprint(_saved_again(picture)) for i, picture in enumerate(scenes)}
    found = representatives(marks | again)
    assert sum(found[f"{name}b"] == name for name in marks) >= 28
    assert all(found[name] == name for name in marks)


def test_scenes_of_one_kind_are_no_duplicates():
    alike = sample(200, 4, target_class="boat", lighting="night", weather="fog")
    marks = {f"{i:03d}": fingerprint(render(scene)) for i, scene in enumerate(alike)}
    assert all(name == stands for name, stands in representatives(marks).items())


def test_the_first_stands_for_the_others_and_nothing_in_gives_nothing():
    picture = render(sample(1, 5)[0])
    brighter = [np.clip(picture.astype(int) + k, 0, 255).astype(np.uint8) for k in (0, 1, 9)]
    marks = {name: fingerprint(p) for name, p in zip("cab", brighter, strict=True)}
    assert representatives(marks) == {"a": "a", "b": "b", "c": "a"}
    assert representatives({}) == {}


def _saved_again(picture: np.ndarray) -> np.ndarray:
    data = BytesIO()
    Image.fromarray(picture).resize((128, 128), Image.Resampling.BICUBIC).save(data, "JPEG", quality=75)
    return np.asarray(Image.open(data).convert("RGB"))
