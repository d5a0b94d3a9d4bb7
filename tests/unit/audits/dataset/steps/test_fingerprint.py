"""Fingerprints: pictures saved again stay near, plain ones with something on them are told apart."""

from io import BytesIO

import numpy as np
from PIL import Image

from c2b_ray.audits.dataset.steps.fingerprint import alike, bands, differing_bits, fingerprint, thumbnail
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample


def _of(pictures):
    return np.array([fingerprint(picture) for picture in pictures], np.uint64)


def _jpeg(picture):
    data = BytesIO()
    Image.fromarray(picture).save(data, "JPEG", quality=75)
    return np.asarray(Image.open(data))


def test_the_same_picture_at_another_quality_is_near_and_other_scenes_are_not():
    pictures = [render(scene) for scene in sample(150, 3, target_class="bus")]
    hashes = _of(pictures)
    assert (differing_bits(hashes, _of([_jpeg(picture) for picture in pictures])) <= 4).mean() > 0.85
    apart = differing_bits(hashes[:, None], hashes[None, :])[np.triu_indices(150, 1)]
    assert (apart > 4).mean() > 0.9995


def test_pictures_of_one_colour_are_alike_and_differ_from_what_is_drawn_on_them():
    white, grey = np.full((64, 64, 3), 255, np.uint8), np.full((32, 48, 3), 128, np.uint8)
    assert fingerprint(white) == fingerprint(grey) == 0
    corners = []
    for at in (4, 36):
        picture = white.copy()
        picture[at : at + 20, at : at + 20] = 90
        corners.append(fingerprint(picture))
    assert differing_bits(*np.array([[corner] for corner in corners], np.uint64)) > 8


def test_hashes_that_differ_in_fewer_bits_than_there_are_bands_share_one():
    random = np.random.default_rng(0)
    one = random.integers(0, 2**63, 500).astype(np.uint64)
    other = one.copy()
    for _ in range(4):
        other ^= np.uint64(1) << random.integers(0, 64, 500).astype(np.uint64)
    shared = [a == b for a, b in zip(bands(one, 5), bands(other, 5), strict=True)]
    assert np.any(shared, axis=0).all()
    whole = np.zeros(500, np.uint64)
    for band in bands(one, 5):
        whole |= band
    assert (whole == one).all()


def _thumbnails(pictures):
    return np.array([np.frombuffer(thumbnail(picture), np.uint8) for picture in pictures])


def test_thumbnails_tell_a_picture_saved_again_from_another_of_the_same_hash():
    pictures = [render(scene) for scene in sample(60, 3, target_class="bus")]
    small = _thumbnails(pictures)
    lighter = [np.clip(picture.astype(int) + 8, 0, 255).astype(np.uint8) for picture in pictures]
    assert alike(small, _thumbnails(lighter)).all()
    assert alike(small, _thumbnails([_jpeg(picture) for picture in pictures])).all()
    assert not alike(small, np.roll(small, 1, axis=0)).any()
    red, blue = np.full((2, 64, 64, 3), 40, np.uint8)  # of one hash: dHash sees no colour
    red[..., 0] = blue[..., 2] = 200
    assert not alike(_thumbnails([red]), _thumbnails([blue])).any()
