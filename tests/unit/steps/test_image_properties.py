"""Properties of images, and how they look."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageDraw, ImageFilter
from scipy import ndimage, stats

from c2b_ray.errors import ImageError
from c2b_ray.steps.image_properties import (
    HUES,
    LOOK_NAMES,
    PROPERTIES_OF_IMAGES,
    SIDE,
    at_one_size,
    border_edges,
    described,
    entropy,
    file_properties,
    jpeg_quality,
    looks,
    noise,
    pixel_properties,
    sharpness,
)
from c2b_ray.tables import LOOK_VECTORS, PROPERTIES
from c2b_ray.world import render, sample


def encoded(pixels: np.ndarray, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


def flat(*rgb: int) -> np.ndarray:
    return np.broadcast_to(np.array(rgb, np.uint8), (SIDE, SIDE, 3)).copy()


@pytest.fixture(scope="module")
def scene() -> np.ndarray:
    return np.asarray(Image.fromarray(render(sample(1, 7)[0])).resize((SIDE, SIDE)))


@pytest.fixture(scope="module")
def luma(scene: np.ndarray) -> np.ndarray:
    return (scene @ np.array([0.299, 0.587, 0.114])).astype(np.float32)


def test_filters_are_those_of_scipy(luma: np.ndarray):
    inner = (slice(1, -1), slice(1, -1))
    wide = luma.astype(np.float64)
    assert sharpness(luma) == pytest.approx(ndimage.laplace(wide)[inner].var() / wide.var(), rel=1e-4)
    kernel = np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]])
    convolved = ndimage.convolve(wide, kernel)[inner]
    assert noise(luma) == pytest.approx(np.sqrt(np.pi / 2) / 6 * np.abs(convolved).mean(), rel=1e-4)
    length = np.hypot(ndimage.sobel(wide, 0), ndimage.sobel(wide, 1))[inner]
    ring = np.ones(length.shape, bool)
    at = round(0.1 * len(length))
    ring[at:-at, at:-at] = False
    assert border_edges(luma) == pytest.approx(length[ring].mean() / length.mean(), rel=1e-4)


def test_entropy_is_that_of_the_histogram(luma: np.ndarray):
    _, counts = np.unique(np.rint(luma), return_counts=True)
    assert entropy(luma) == pytest.approx(stats.entropy(counts, base=2))
    assert entropy(np.zeros((5, 5), np.float32)) == 0


def test_noise_that_was_added_is_what_is_measured():
    random = np.random.default_rng(1)
    for sigma in (2.0, 8.0):
        picture = (128 + sigma * random.normal(size=(SIDE, SIDE))).astype(np.float32)
        assert noise(picture) == pytest.approx(sigma, rel=0.02)


def test_brightness_contrast_and_colourfulness_by_hand():
    half = flat(0, 0, 0)
    half[: SIDE // 2] = (255, 0, 0)
    found = pixel_properties(half)
    assert found["brightness"] == pytest.approx(0.299 * 255 / 2, rel=1e-6)
    assert found["contrast"] == pytest.approx(0.299 * 255 / 2, rel=1e-6)  # half of the pixels lie as far on each side
    # rg is 255 or 0, and yb half of that: spreads of 127.5 and 63.75, and means of as much.
    assert found["colourfulness"] == pytest.approx(1.3 * np.hypot(127.5, 63.75), rel=1e-6)
    assert found["saturation"] == pytest.approx(0.5)
    assert found["greyness"] == pytest.approx(0.5)
    assert found["hue"] == "red"


@pytest.mark.parametrize(
    ("rgb", "hue"),
    [
        ((255, 0, 0), "red"),
        ((255, 128, 0), "orange"),
        ((255, 255, 0), "yellow"),
        ((0, 200, 0), "green"),
        ((0, 255, 255), "cyan"),
        ((20, 30, 220), "blue"),
        ((128, 0, 255), "purple"),
        ((255, 0, 128), "pink"),
        ((255, 0, 40), "red"),  # 351 degrees: on the other side of 0
        ((90, 90, 90), None),
        ((100, 90, 80), None),  # a chroma of 20: grey, as a sepia print is
    ],
)
def test_the_hue_has_its_name(rgb: tuple[int, int, int], hue: str | None):
    assert pixel_properties(flat(*rgb))["hue"] == hue


def test_every_hue_has_one_name():
    degrees = np.arange(360) + 0.5
    names = [[name for name, (a, b) in HUES.items() if (d - a) % 360 < (b - a) % 360] for d in degrees]
    assert all(len(of) == 1 for of in names)


def test_a_few_coloured_pixels_give_no_hue():
    picture = flat(120, 120, 120)
    picture[:10] = (255, 0, 0)  # 10 of 224 rows, under 5 %
    assert pixel_properties(picture)["hue"] is None
    picture[:12] = (255, 0, 0)
    assert pixel_properties(picture)["hue"] == "red"


def test_a_flat_picture_has_no_sharpness_and_no_edges():
    found = pixel_properties(flat(7, 7, 7))
    assert (found["sharpness"], found["border_edges"]) == (None, None)
    assert (found["contrast"], found["noise"], found["entropy"]) == (0, 0, 0)


def test_blurring_lowers_sharpness_and_darkening_does_not(scene: np.ndarray):
    def of(picture: np.ndarray) -> float:
        value = pixel_properties(picture)["sharpness"]
        assert isinstance(value, float)
        return value

    blurred = np.asarray(Image.fromarray(scene).filter(ImageFilter.GaussianBlur(2)))
    assert of(blurred) < 0.5 * of(scene)
    assert of((scene // 2).astype(np.uint8)) == pytest.approx(of(scene), rel=0.1)


def test_an_object_that_is_cut_off_has_edges_at_the_border():
    inside, cut = flat(0, 0, 0), flat(0, 0, 0)
    inside[90:130, 90:130] = 255
    cut[90:130, :40] = 255
    assert pixel_properties(inside)["border_edges"] == 0
    assert (pixel_properties(cut)["border_edges"] or 0) > 0.3  # a fourth of its outline lies in the ring


def test_pictures_of_every_size_are_measured_alike(scene: np.ndarray):
    small = pixel_properties(scene)
    large = pixel_properties(np.asarray(Image.fromarray(scene).resize((SIDE * 4, SIDE * 4), Image.Resampling.BICUBIC)))
    for name in ("brightness", "contrast", "colourfulness", "saturation"):
        assert large[name] == pytest.approx(small[name], rel=0.03), name


@pytest.mark.parametrize("shape", [(1, 1), (1, 3000), (3000, 1), (2, 5)])
def test_a_tiny_or_thin_picture_is_measured(shape: tuple[int, int]):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    assert min(at_one_size(pixels).shape[1:]) >= 3
    found = file_properties(encoded(pixels))
    assert found["aspect_ratio"] == shape[1] / shape[0]
    assert found["resolution"] == shape[0] * shape[1] / 1e6


@pytest.mark.parametrize("quality", [1, 10, 49, 50, 51, 75, 90, 95, 99, 100])
def test_the_quality_of_a_jpeg_is_that_which_it_was_saved_with(scene: np.ndarray, quality: int):
    # Steps of 255 at most: the lowest qualities share a table.
    found = jpeg_quality(encoded(scene, "JPEG", quality=quality))
    assert found is not None
    assert abs(found - quality) <= (0 if quality > 10 else 1)


def test_other_formats_have_no_jpeg_quality(scene: np.ndarray):
    assert jpeg_quality(encoded(scene, "PNG")) is None
    assert file_properties(encoded(scene, "WEBP"))["jpeg_quality"] is None


def test_a_reduced_jpeg_is_measured_as_a_png_of_it(scene: np.ndarray):
    large = np.asarray(Image.fromarray(scene).resize((2000, 2000), Image.Resampling.BICUBIC))
    jpeg = encoded(large, "JPEG", quality=95)
    whole = np.asarray(Image.open(io.BytesIO(jpeg)))
    reduced, png = file_properties(jpeg), file_properties(encoded(whole))
    assert reduced["resolution"] == png["resolution"] == 4
    for name in ("brightness", "contrast", "colourfulness", "saturation", "entropy"):
        assert reduced[name] == pytest.approx(png[name], rel=0.02), name


def test_a_file_that_is_no_picture_says_why():
    with pytest.raises(ImageError, match="not an image"):
        file_properties(b"no picture at all")


def test_every_property_is_a_column_and_in_its_range(scene: np.ndarray):
    found = file_properties(encoded(scene, "JPEG", quality=80))
    columns = [one.column for one in PROPERTIES_OF_IMAGES.values()]
    assert set(columns) == set(found) == set(PROPERTIES.names) - {"image_id", "row", "key", "content", "error"}
    for name, most in {"brightness": 255, "contrast": 127.5, "saturation": 1, "greyness": 1, "entropy": 8}.items():
        value = found[name]
        assert isinstance(value, float)
        assert 0 <= value <= most


LOOK_SIDE = 160
ROWS, COLUMNS = np.mgrid[:LOOK_SIDE, :LOOK_SIDE]


def stripes(wavelength, degrees):
    angle = np.deg2rad(degrees)
    wave = np.sin((np.cos(angle) * COLUMNS + np.sin(angle) * ROWS) * 2 * np.pi / wavelength)
    return 128 + 60 * wave


def speckle(size, seed):
    grain = np.random.default_rng(seed).normal(size=(LOOK_SIDE // size + 1,) * 2)
    return np.clip(128 + 40 * np.kron(grain, np.ones((size, size)))[:LOOK_SIDE, :LOOK_SIDE], 0, 255)


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
        mask = Image.new("L", (LOOK_SIDE, LOOK_SIDE))
        getattr(ImageDraw.Draw(mask), outline)((25, 35, 135, 125), fill=255)
        return painted(np.where(np.asarray(mask) > 0, surface, 0.6 * surface + 20))

    other = {"ellipse": "rectangle", "rectangle": "ellipse"}[shape]
    for number, surface in enumerate(surfaces):
        near = [distance(object_of(surface, shape), object_of(one, other), "texture") for one in surfaces]
        assert int(np.argmin(near)) == number


def test_background_is_of_the_border_alone():
    plain = painted(speckle(3, 5))
    changed = plain.copy()
    changed[LOOK_SIDE // 3 : 2 * LOOK_SIDE // 3, LOOK_SIDE // 3 : 2 * LOOK_SIDE // 3] = (200, 30, 30)
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
