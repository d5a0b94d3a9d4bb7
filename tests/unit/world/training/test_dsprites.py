"""The drawn sprites have the public data set's layout, and each factor shows in the picture as it should."""

import numpy as np
import pytest

from c2b_ray.world.training import dsprites
from c2b_ray.world.training.dsprites import FACTORS, LAYOUT, masks, render, sample


def row(**values: float) -> np.ndarray:
    """A large square in the middle, upright, white on black, but for what is said."""
    standing = {"shape": 0, "scale": 1, "orientation": 0, "x": 0.5, "y": 0.5, "colour": 0, "background": 0}
    return np.array([[(standing | values)[name] for name in FACTORS]])


def centre(mask: np.ndarray) -> tuple[float, float]:
    down, across = np.nonzero(mask)
    return float(across.mean()), float(down.mean())


def test_the_layout_is_the_public_one() -> None:
    """As in the README of the public data set."""
    assert [(name, len(values)) for name, values in LAYOUT.items()] == [
        ("shape", 3), ("scale", 6), ("orientation", 40), ("x", 32), ("y", 32),
    ]  # fmt: skip


def test_plain_pictures_are_64_pixels_black_or_white_and_no_sprite_is_cut_off() -> None:
    table = sample(400, 0, {"colour": 0, "background": 0})
    pictures = render(table)
    assert pictures.shape == (400, 64, 64, 3)
    assert pictures.dtype == np.uint8
    assert set(np.unique(pictures)) == {0, 255}
    for large in (False, True):
        cover = masks(table, large)
        assert not cover[:, [0, -1]].any()
        assert not cover[:, :, [0, -1]].any()


def test_small_pictures_are_means_of_large_ones() -> None:
    table = sample(20, 1)
    means = render(table).astype(float).reshape(20, 32, 2, 32, 2, 3).mean(axis=(2, 4))
    assert np.abs(render(table, 32) - means).max() <= 0.5
    with pytest.raises(ValueError, match="divide 64"):
        render(table, 48)


def test_every_factor_changes_what_it_names_alone() -> None:
    middle = masks(row())[0]
    assert centre(masks(row(x=1))[0])[0] > centre(middle)[0] + 15
    assert centre(masks(row(y=1))[0])[1] > centre(middle)[1] + 15
    assert abs(masks(row(scale=0.5))[0].sum() / middle.sum() - 0.25) < 0.03
    assert (masks(row(orientation=np.pi / 2))[0] == middle).mean() > 0.98, "a square turned by a quarter is itself"
    ellipse = masks(row(shape=1))[0]
    assert ellipse.any(axis=0).sum() == pytest.approx(2 * ellipse.any(axis=1).sum(), abs=2)
    standing = masks(row(shape=1, orientation=np.pi / 2))[0]
    assert standing.any(axis=1).sum() == ellipse.any(axis=0).sum()
    heart = masks(row(shape=2))[0]
    assert (heart == heart[:, ::-1]).all()
    assert centre(heart)[1] < 32, "most of it is above its point"


def test_colours_change_no_outline() -> None:
    inside = masks(row(), large=True)[0]
    for name, channels in (("colour", [200, 0, 0]), ("background", [0, 90, 180])):
        none, full = render(np.concatenate([row(**{name: 0}), row(**{name: 1})]), coloured=True).astype(int)
        assert (none[inside] == 255).all()
        assert (full[inside] == 255).all()
        assert (full[~inside] - none[~inside] == channels).all()


def test_a_longer_sample_begins_with_the_shorter_one_and_fixing_a_factor_leaves_the_rest() -> None:
    free = sample(300, 7)
    assert (sample(50, 7) == free[:50]).all()
    fixed = sample(300, 7, {"x": 0.25})
    assert (np.delete(fixed, FACTORS.index("x"), 1) == np.delete(free, FACTORS.index("x"), 1)).all()
    assert set(fixed[:, FACTORS.index("x")]) == {0.25}
    for name, values in (LAYOUT | dsprites.EXTRA).items():
        assert set(free[:, FACTORS.index(name)]) <= set(values)
    with pytest.raises(ValueError, match="no factor 'hue'"):
        sample(1, 0, {"hue": 1})
