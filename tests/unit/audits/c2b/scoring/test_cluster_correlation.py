"""Columns by whose values images are answered alike."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.scoring.clusters import answered_alike
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import CellImages, CellName
from c2b_ray.steps.draw import ImageIds, Ints
from c2b_ray.tables import PREDICTIONS

CAMERAS, IMAGES = 12, 480


def camera_of() -> Ints:
    return np.arange(IMAGES) % CAMERAS


def found(right: Ints, columns: dict[str, Ints], light: Ints | None = None, pictures: Ints | None = None) -> list[str]:
    """Two lights of one class; a picture each."""
    ids = [f"{n:04}" for n in range(IMAGES)]
    light = np.arange(IMAGES) // CAMERAS % 2 if light is None else light
    order = np.argsort(light, kind="stable")
    cells = CellImages(
        tuple(CellName("dog", "light", value) for value in ("day", "dark")),
        ImageIds(pa.array(ids, pa.large_string())),
        light[order],
        order,
        light[order],
    )
    rows = [
        {"image_id": name, "classifier": "a", "label": label, "predicted_class": label}
        for name, label in zip(ids, np.where(right, "dog", "cat").tolist(), strict=True)
    ]
    answers = answers_of(pa.Table.from_pylist(rows, PREDICTIONS), "a").to(cells)
    pictures = np.arange(IMAGES) if pictures is None else pictures
    return [one.column for one in answered_alike({"a": answers}, pictures, columns)]


def of_cameras(seed: int) -> Ints:
    """Right answers whose intraclass correlation is .2."""
    random = np.random.default_rng(seed)
    rate = random.beta(0.7 * 4, 0.3 * 4, CAMERAS)
    return (random.random(IMAGES) < rate[camera_of()]).astype(np.int64)


def test_a_column_of_cameras_is_found_and_another_is_not() -> None:
    other = np.random.default_rng(1).permutation(camera_of())
    assert found(of_cameras(0), {"camera": camera_of(), "batch": other}) == ["camera"]


def test_few_values_and_few_images_of_each_are_not_asked_about() -> None:
    right = of_cameras(0)
    assert found(right, {"hall": camera_of() % 4, "each": np.arange(IMAGES) // 5}) == []


def test_a_few_wrong_answers_tell_nothing() -> None:
    wrong = np.flatnonzero(camera_of() == 3)
    assert found(np.isin(np.arange(IMAGES), wrong[:9], invert=True).astype(np.int64), {"camera": camera_of()}) == []
    assert found(np.isin(np.arange(IMAGES), wrong[:12], invert=True).astype(np.int64), {"camera": camera_of()}) != []


def test_a_column_that_says_the_attribute_again_is_none() -> None:
    """Dark images are hard, and six cameras see them alone."""
    light = camera_of() % 2
    right = (np.random.default_rng(2).random(IMAGES) < np.where(light, 0.4, 0.95)).astype(np.int64)
    assert found(right, {"camera": camera_of()}, light) == []


def test_copies_of_a_picture_feign_no_cluster() -> None:
    """Each camera has two pictures, twenty times each."""
    picture = camera_of() * 2 + np.arange(IMAGES) // CAMERAS % 2
    right = np.random.default_rng(3).integers(0, 2, 2 * CAMERAS)[picture]
    assert found(right, {"camera": camera_of()}, pictures=picture) == []


def test_independent_images_are_seldom_asked_about() -> None:
    random = np.random.default_rng(4)
    runs = [found((random.random(IMAGES) < 0.9).astype(np.int64), {"camera": camera_of()}) for _ in range(200)]
    assert sum(map(bool, runs)) <= 18, "at .05; 18 in 200 has probability .01"


@pytest.mark.parametrize("known", [0, 40])
def test_images_without_a_value_are_left_out(known: int) -> None:
    assert found(of_cameras(0), {"camera": np.where(np.arange(IMAGES) < known, camera_of(), -1)}) == []
