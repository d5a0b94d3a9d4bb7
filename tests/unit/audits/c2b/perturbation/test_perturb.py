"""Each perturbation: worked values, shape and type, strength by level, and no dependence on anything but its
arguments."""

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from c2b_ray.audits.c2b.perturbation.images import _FUNCTIONS, perturbed, plasma, reduced
from c2b_ray.config.images import PERTURBATIONS

RANDOM = np.random.default_rng(100_001)
SMOOTH = np.clip(
    128 + 90 * np.sin(np.arange(96)[:, None, None] / 9 + np.arange(3)) * np.cos(np.arange(80)[None, :, None] / 7),
    0,
    255,
).astype(np.uint8)
LEVELS = [(name, level) for name in PERTURBATIONS for level in ((1,) if name == "flip" else range(1, 6))]


def flat(*colour, side=64):
    return np.full((side, side, 3), colour, np.uint8)


def test_every_perturbation_of_an_audit_file_has_a_function():
    assert tuple(_FUNCTIONS) == PERTURBATIONS


@pytest.mark.parametrize(("name", "level"), LEVELS)
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (2, 300), (96, 80)])
def test_shape_type_and_argument_are_kept_and_the_same_seed_gives_the_same_picture(name, level, shape):
    pixels = np.resize(SMOOTH, (*shape, 3))
    before = pixels.copy()
    pixels.flags.writeable = False  # as pictures of a batch are
    picture = perturbed(pixels, name, level, 5)
    assert picture.shape == pixels.shape
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(pixels, before)
    np.testing.assert_array_equal(picture, perturbed(pixels, name, level, 5))


@pytest.mark.parametrize("name", ["blur", "noise", "jpeg", "dark", "bright", "grey"])
def test_a_higher_level_changes_a_picture_more(name):
    changes = [np.abs(perturbed(SMOOTH, name, level, 3).astype(float) - SMOOTH).mean() for level in range(1, 6)]
    assert changes == sorted(changes)
    assert changes[0] < changes[-1]


@pytest.mark.parametrize("name", ["noise", "fog", "rotation", "crop"])
def test_another_seed_gives_another_picture(name):
    pictures = [perturbed(SMOOTH, name, 3, seed) for seed in range(6)]
    assert any(not np.array_equal(pictures[0], other) for other in pictures[1:])


def test_blur_spreads_a_point_as_a_normal_distribution_of_its_deviation_in_proportion_to_the_picture():
    for side, sigma in ((256, 3.0), (128, 1.5)):  # level 3
        pixels = flat(0, 0, 0, side=side)
        pixels[side // 2, :] = 255  # a line: its profile is one-dimensional
        profile = perturbed(pixels, "blur", 3, 0)[:, side // 2, 0] / 255
        at = np.arange(side) - side // 2
        np.testing.assert_allclose(profile, stats.norm.pdf(at, scale=sigma), atol=3e-3)


def test_noise_has_the_deviation_of_its_level_and_no_mean():
    grey = flat(128, 128, 128, side=200)
    for level, deviation in ((1, 0.08), (2, 0.12)):  # hardly clipped at .5 ± 4 deviations
        change = (perturbed(grey, "noise", level, 1).astype(float) - 128) / 255
        assert change.std() == pytest.approx(deviation, rel=0.01)
        assert change.mean() == pytest.approx(0, abs=3 * deviation / np.sqrt(change.size) + 1e-3)


def test_jpeg_is_what_pillow_writes_at_the_papers_qualities(tmp_path):
    for level, quality in enumerate((25, 18, 15, 10, 7), start=1):
        Image.fromarray(SMOOTH).save(tmp_path / "p.jpg", quality=quality)
        np.testing.assert_array_equal(perturbed(SMOOTH, "jpeg", level, 0), np.array(Image.open(tmp_path / "p.jpg")))


def test_dark_halves_the_light_at_every_level():
    # sRGB 188 is linear ((188/255 + .055)/1.055)^2.4 = .5029; a half of it, .2514, is sRGB .5388 = 137.4; a thirty-
    # second, .01571, is .1316 = 33.6
    assert perturbed(flat(188, 188, 188), "dark", 1, 0)[0, 0].tolist() == [137] * 3
    assert perturbed(flat(188, 188, 188), "dark", 5, 0)[0, 0].tolist() == [34] * 3
    assert perturbed(flat(0, 255, 0), "dark", 1, 0)[0, 0, 0] == 0


def test_bright_raises_the_value_and_keeps_hue_and_saturation():
    # the largest channel 100 + .2 · 255 = 151: all three times 1.51
    assert perturbed(flat(100, 40, 20), "bright", 2, 0)[0, 0].tolist() == [151, 60, 30]
    assert perturbed(flat(0, 0, 0), "bright", 2, 0)[0, 0].tolist() == [51] * 3
    assert perturbed(flat(255, 51, 0), "bright", 5, 0)[0, 0].tolist() == [255, 51, 0]  # no value is above 1


def test_fog_lies_between_the_picture_made_darker_and_the_fog_itself():
    # max = 1, c = 1.5: (x + 1.5·plasma) / 2.5, with plasma in [0, 1]
    white, black = perturbed(flat(255, 255, 255), "fog", 1, 9), perturbed(flat(0, 0, 0), "fog", 1, 9)
    assert white.min() == round(255 / 2.5)
    assert white.max() == 255
    assert black.max() == 0  # ImageNet-C multiplies by the largest value of the picture
    half = flat(0, 0, 0)
    half[:32] = 255
    foggy = perturbed(half, "fog", 1, 9).astype(float)
    np.testing.assert_allclose(foggy[:32], white[:32], atol=1)
    np.testing.assert_allclose(foggy[32:], white[32:] - 255 / 2.5, atol=1)


def test_plasma_fills_the_unit_interval_and_is_rougher_with_less_decay():
    def roughness(decay):
        plane = plasma(128, decay, np.random.default_rng(4))
        assert plane.shape == (128, 128)
        assert (plane.min(), plane.max()) == (0, 1)
        return np.abs(np.diff(plane, axis=0)).mean()

    assert roughness(1.4) > roughness(2.0) > roughness(3.0)


def test_rotation_turns_about_the_centre_and_leaves_no_black_corners():
    pixels = flat(200, 100, 50, side=65)
    for level in range(1, 6):
        np.testing.assert_array_equal(perturbed(pixels, "rotation", level, 2), pixels)
    pixels[:, 33:] = 0  # an edge through the centre: turned by 45 degrees it is a diagonal
    turned = perturbed(pixels, "rotation", 5, 2)[..., 0]
    diagonal = np.eye(65, dtype=bool) if turned[5, 32] != turned[32, 5] else np.zeros((65, 65), bool)
    assert diagonal.any()
    assert abs(int((turned > 100).sum()) - 65 * 65 // 2) < 100


def test_crop_shows_a_part_of_the_picture_enlarged_and_parts_of_one_picture_lie_within_each_other():
    # each pixel holds its own place, so that a crop's corners say where it was cut
    place = np.stack(np.broadcast_arrays(np.arange(200)[:, None], np.arange(200)[None], 0), axis=2).astype(np.uint8)
    before = (0, 199, 0, 199)
    for level, share in enumerate((0.9, 0.8, 0.7, 0.6, 0.5), start=1):
        part = perturbed(place, "crop", level, 11).astype(int)
        cut = part[0, 0, 0], part[-1, 0, 0], part[0, 0, 1], part[0, -1, 1]
        assert cut[1] - cut[0] + 1 == pytest.approx(200 * share, abs=2)
        assert cut[0] >= before[0] - 1
        assert cut[1] <= before[1] + 1
        assert cut[2] >= before[2] - 1
        assert cut[3] <= before[3] + 1
        before = cut


def test_grey_removes_colour_and_keeps_luma():
    # luma of (200, 100, 50) = .299·200 + .587·100 + .114·50 = 124.2
    assert perturbed(flat(200, 100, 50), "grey", 5, 0)[0, 0].tolist() == [124] * 3
    assert perturbed(flat(200, 100, 50), "grey", 2, 0)[0, 0].tolist() == [170, 110, 80]  # two fifths of the way


def test_flip_mirrors_left_to_right_and_has_one_level():
    np.testing.assert_array_equal(perturbed(SMOOTH, "flip", 1, 0), SMOOTH[:, ::-1])
    with pytest.raises(IndexError, match="level 1 only"):
        perturbed(SMOOTH, "flip", 2, 0)


def test_unknown_names_and_levels_are_errors():
    with pytest.raises(KeyError):
        perturbed(SMOOTH, "snow", 1, 0)
    with pytest.raises(IndexError):
        perturbed(SMOOTH, "blur", 6, 0)


def test_pictures_are_reduced_to_their_shorter_side_and_never_enlarged():
    large = RANDOM.integers(0, 255, (600, 900, 3), dtype=np.uint8)
    assert reduced(large).shape == (256, 384, 3)
    assert reduced(np.swapaxes(large, 0, 1)).shape == (384, 256, 3)
    assert reduced(SMOOTH) is SMOOTH
    assert reduced(large).std() < large.std() / 1.5  # antialiased: noise of single pixels is averaged
