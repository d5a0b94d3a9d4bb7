"""How a picture looks, by descriptors: what changes them and what does not, and what goes wrong with a picture."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageDraw

from c2b_ray.steps.image_properties import LOOK_NAMES, described, looks
from c2b_ray.tables import LOOK_VECTORS

SIDE = 160
ROWS, COLUMNS = np.mgrid[:SIDE, :SIDE]


def stripes(wavelength, degrees):
    angle = np.deg2rad(degrees)
    wave = np.sin((np.cos(angle) * COLUMNS + np.sin(angle) * ROWS) * 2 * np.pi / wavelength)
    return 128 + 60 * wave


def speckle(size, seed):
    grain = np.random.default_rng(seed).normal(size=(SIDE // size + 1,) * 2)
    return np.clip(128 + 40 * np.kron(grain, np.ones((size, size)))[:SIDE, :SIDE], 0, 255)


def painted(grey, rgb=(1.0, 1.0, 1.0)):
    return np.clip(grey[..., None] * np.array(rgb), 0, 255).astype(np.uint8)


def distance(one, other, look):
    return float(np.linalg.norm(looks(one)[look] - looks(other)[look]))


def test_descriptors_have_one_length_and_are_histograms():
    small, long = looks(painted(speckle(2, 0))), looks(painted(stripes(9, 30))[:40])
    for look in LOOK_NAMES:
        assert small[look].shape == long[look].shape
        assert small[look].dtype == np.float32
        assert (small[look] >= 0).all()
        assert (small[look] <= 1).all()
    assert np.sum(small["colours"] ** 2) == pytest.approx(1)
    assert np.sum(small["texture"] ** 2) == pytest.approx(12)  # four scales of three histograms
    assert np.sum(small["background"] ** 2) == pytest.approx(2, abs=1e-5)  # as much colour as texture


def test_texture_knows_neither_colour_nor_brightness():
    grey = 60 + 0.5 * speckle(3, 1)
    plain, red = painted(grey), painted(grey, (1.0, 0.6, 0.5))
    other = painted(60 + 0.5 * stripes(8, 0))
    assert distance(plain, red, "texture") < 0.3 * distance(plain, other, "texture")
    assert distance(plain, painted(0.5 * grey), "texture") < 0.3 * distance(plain, other, "texture")
    assert distance(plain, red, "colours") > 1.0
    assert distance(plain, painted(60 + 0.5 * speckle(3, 2)), "colours") < 0.2  # another draw of one speckle


@pytest.mark.parametrize("shape", ["ellipse", "rectangle"])
def test_texture_is_that_of_the_surface_and_not_of_the_shape(shape):
    surfaces = [stripes(7, 20), stripes(7, 110), stripes(16, 20), speckle(2, 3), speckle(6, 4)]

    def object_of(surface, outline):
        mask = Image.new("L", (SIDE, SIDE))
        getattr(ImageDraw.Draw(mask), outline)((25, 35, 135, 125), fill=255)
        return painted(np.where(np.asarray(mask) > 0, surface, 0.6 * surface + 20))

    other = {"ellipse": "rectangle", "rectangle": "ellipse"}[shape]
    for number, surface in enumerate(surfaces):
        near = [distance(object_of(surface, shape), object_of(one, other), "texture") for one in surfaces]
        assert int(np.argmin(near)) == number


def test_background_is_of_the_border_alone():
    plain = painted(speckle(3, 5))
    changed = plain.copy()
    changed[SIDE // 3 : 2 * SIDE // 3, SIDE // 3 : 2 * SIDE // 3] = (200, 30, 30)
    assert distance(plain, changed, "background") < 0.01 < 0.2 < distance(plain, changed, "colours")
    framed = plain.copy()
    framed[:20] = framed[-20:] = (30, 60, 200)
    assert distance(plain, framed, "background") > 0.5


@pytest.mark.parametrize("pixels", [np.zeros((1, 1, 3)), np.full((2, 900, 3), 255), np.full((50, 50, 3), 7)])
def test_pictures_without_anything_to_see_have_finite_descriptors(pixels):
    found = looks(pixels.astype(np.uint8))
    assert all(np.isfinite(found[look]).all() for look in LOOK_NAMES)
    assert [len(found[look]) for look in LOOK_NAMES] == [len(of) for of in looks(painted(speckle(2, 0))).values()]


def test_a_picture_that_cannot_be_read_has_an_error():
    buffer = io.BytesIO()
    Image.fromarray(painted(speckle(2, 0))).save(buffer, "PNG")
    table = pa.table(
        {
            "look_id": ["a", "b", "c"],
            "image_id": ["x", "y", "z"],
            "bytes": pa.array([buffer.getvalue(), b"no picture", None], pa.binary()),
            "error": pa.array([None, None, "gone"], pa.string()),
        }
    )
    found = described(table)
    assert found.schema == LOOK_VECTORS
    rows = found.to_pylist()
    assert rows[0]["error"] is None
    assert len(rows[0]["texture"]) == 300
    assert rows[1]["texture"] is None
    assert rows[1]["error"]
    assert rows[2]["error"] == "gone"
