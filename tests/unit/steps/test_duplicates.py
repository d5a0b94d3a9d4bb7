"""One picture saved twice is found; two pictures of one kind of scene are not."""

import tracemalloc
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from cell_tables import cell_images
from PIL import Image

from c2b_ray.steps.draw import ImageIds
from c2b_ray.steps.duplicates import Distinct, near_duplicates
from c2b_ray.steps.fingerprint import fingerprint
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample


def representatives(marks):
    """Image id → the id of the first of its near-duplicates."""
    ids = sorted(marks)
    rows = np.frombuffer(b"".join(marks[name] for name in ids), np.uint8).reshape(len(ids), -1)
    return {name: ids[row] for name, row in zip(ids, near_duplicates(rows).tolist(), strict=True)}


def test_a_picture_saved_again_at_another_size_and_coarser_is_found():
    scenes = [render(scene) for scene in sample(30, 3)]
    marks = {f"{i:02d}": fingerprint(picture) for i, picture in enumerate(scenes)}
    again = {f"{i:02d}b": fingerprint(_saved_again(picture)) for i, picture in enumerate(scenes)}
    found = representatives(marks | again)
    assert sum(found[f"{name}b"] == name for name in marks) >= 28
    assert all(found[name] == name for name in marks)


def test_the_parts_of_a_fingerprint_are_areas_whatever_the_size():
    # Each pixel of the small one is 72 x 72 of the large one: borders lie within small pixels.
    small = np.random.default_rng(0).integers(0, 256, (5, 13, 3)).astype(np.uint8)
    large = small.repeat(72, 0).repeat(72, 1)
    assert fingerprint(small) == fingerprint(large)
    means = large.reshape(8, 45, 8, 117, 3).mean(axis=(1, 3))
    assert np.abs(np.frombuffer(fingerprint(small)[8:], np.uint8).reshape(8, 8, 3) - means).max() <= 0.5


def test_the_last_pixels_of_a_reduction_may_be_cut_short():
    # 19 x 26 by 4: the last row stands for three lines, the last column for two.
    reduced = np.random.default_rng(1).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    whole = reduced.repeat(4, 0).repeat(4, 1)[:19, :26]
    assert fingerprint(reduced, (19, 26)) == fingerprint(whole) != fingerprint(reduced)


@pytest.mark.parametrize("size", [(1, 1), (7, 300), (375, 500), (600, 9), (2100, 8)])
@pytest.mark.parametrize("factor", [1, 4])
def test_the_compiled_fingerprint_is_the_plain_one(monkeypatch, size, factor):
    pixels = np.random.default_rng(2).integers(0, 256, (*size, 3)).astype(np.uint8)
    cut = (size[0] * factor - (factor > 1), size[1] * factor - (factor > 1))
    marks = []
    for compiled_from in (0, 1 << 60):
        monkeypatch.setattr("c2b_ray.steps.fingerprint._COMPILED_FROM", compiled_from)
        marks.append(fingerprint(pixels, cut))
    assert marks[0] == marks[1]


def test_scenes_of_one_kind_are_no_duplicates():
    alike = sample(200, 4, target_class="boat", lighting="night", weather="fog")
    marks = {f"{i:03d}": fingerprint(render(scene)) for i, scene in enumerate(alike)}
    assert all(name == stands for name, stands in representatives(marks).items())


def test_the_first_stands_for_the_others_and_nothing_in_gives_nothing():
    picture = render(sample(1, 5)[0])
    brighter = [np.clip(picture.astype(int) + k, 0, 255).astype(np.uint8) for k in (0, 1, 9)]
    marks = {name: fingerprint(p) for name, p in zip("cab", brighter, strict=True)}
    assert representatives(marks) == {"a": "a", "b": "b", "c": "a"}
    assert near_duplicates(np.zeros((0, 200), np.uint8)).tolist() == []


def kept(known, *names):
    """Of the images of one cell, those that `known` leaves."""
    cells = cell_images({("bus", "weather"): {"snow": names}})
    left = cells.without_copies(known.pictures(cells.ids))
    return set(left.ids.names(left.image).to_pylist())


def images(rows):
    names = ("image_id", "content", "fingerprint")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


def test_copies_under_other_names_and_saved_again_are_one_picture():
    a, b = (fingerprint(render(scene)) for scene in sample(2, 6))
    again = fingerprint(_saved_again(render(sample(1, 6)[0])))
    known = Distinct(images([("z", "1", a), ("y", "1", a), ("x", "2", again), ("w", "3", b)]))
    assert kept(known, "w", "x", "y", "z") == {"w", "x"}
    pictures = known.pictures(ImageIds(pa.array(["x", "y", "z", "w"])))
    assert [number == pictures[0] for number in pictures] == [True, True, True, False]
    ids = ImageIds(pa.array(["z", "w", "elsewhere"]))
    assert list(known.fingerprints(ids, np.arange(3))) == [a, None, None]  # of what has a copy in the run


def test_near_duplicates_of_several_classes_are_views_of_one_scene():
    a, b = (fingerprint(render(scene)) for scene in sample(2, 6))
    again = fingerprint(_saved_again(render(sample(1, 6)[0])))
    files = [("bad", "1", a), ("bad, copied", "1", a), ("good", "2", again), ("b", "3", b), ("b, other file", "4", b)]
    ids = [name for name, *_ in files]
    classes = ImageIds(pa.array(ids, pa.large_string())), np.array([0, 0, 1, 1, -1])  # not known of the last
    assert kept(Distinct(images(files)), *ids) == {"bad", "b"}
    assert kept(Distinct(images(files), classes), *ids) == {"bad", "good", "b"}  # a copied file is one picture


def test_what_is_no_picture_or_not_known_stands_for_itself():
    known = Distinct(images([("a", "1", None), ("b", "1", None), ("c", None, None)]))
    assert kept(known, "a", "b", "c", "elsewhere") == {"a", "b", "c", "elsewhere"}


def test_many_pictures_of_one_gradient_are_compared_by_their_levels():
    # Flat pictures share all gradients: 0 to 255, each twice. Neighbours differ by 2 levels, more than copies may.
    flat = [np.full((16, 16, 3), level, np.uint8) for level in range(0, 256, 2)]
    marks = {f"{i:03}{copy}": fingerprint(picture) for i, picture in enumerate(flat) for copy in "ab"}
    assert representatives(marks) == {name: name[:3] + "a" for name in marks}


def _saved_again(picture: np.ndarray) -> np.ndarray:
    data = BytesIO()
    Image.fromarray(picture).resize((128, 128), Image.Resampling.BICUBIC).save(data, "JPEG", quality=75)
    return np.asarray(Image.open(data).convert("RGB"))


def test_a_thousand_equal_pictures_take_no_more_than_their_fingerprints():
    blank = np.zeros((4000, len(fingerprint(np.zeros((9, 9, 3), np.uint8)))), np.uint8)
    blank[7] = 255
    tracemalloc.start()
    first = near_duplicates(blank)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert first.tolist() == [7 if row == 7 else 0 for row in range(4000)]
    assert peak < 10 * blank.nbytes
