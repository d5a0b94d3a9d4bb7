"""Pictures prepared on arrays against the libraries' own transforms of PIL images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from timm.data.transforms_factory import create_transform
from torchvision import transforms
from torchvision.transforms._presets import ImageClassification

from c2b_ray.models.pixels.preprocess import OnArrays, batched
from c2b_ray.roles import Pixels

Mode = transforms.InterpolationMode
NORMALISED = transforms.Normalize([0.5] * 3, [0.5] * 3)
TRANSFORMS = {
    "torchvision": ImageClassification(crop_size=96, resize_size=110),
    "timm": create_transform((3, 96, 96), is_training=False, interpolation="bicubic", crop_pct=0.9),
    "timm squashed": create_transform((3, 96, 96), is_training=False, crop_mode="squash"),
    "open_clip": image_transform_v2(PreprocessCfg(size=96), is_train=False),
    "open_clip squashed": image_transform_v2(PreprocessCfg(size=96, resize_mode="squash"), is_train=False),
}


def pictures() -> list[Pixels]:
    """Shrunk, enlarged, tall, cropped where they are too small, and that need no resizing; edges, flats and noise."""
    random = np.random.default_rng(0)
    found = []
    for height, width in [(240, 320), (127, 333), (333, 127), (60, 50), (96, 96), (110, 110)]:
        y, x = np.mgrid[0:height, 0:width]
        image = np.stack([x * 255 // width, 255 * ((x // 9 + y // 7) % 2), np.full_like(x, 255)], axis=-1)
        image[height // 2 :] = random.integers(0, 256, (height - height // 2, width, 3))
        found.append(image.astype(np.uint8))
    return found


@pytest.mark.parametrize("name", TRANSFORMS)
def test_arrays_are_prepared_value_for_value_as_the_library_does(name: str) -> None:
    transform = TRANSFORMS[name]
    prepare = batched(transform)
    assert isinstance(prepare, OnArrays)
    found = prepare(pictures())
    expected = torch.stack([transform(Image.fromarray(image)) for image in pictures()])
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    assert torch.equal(prepare(pictures()[1:2]), found[1:2])


def test_a_picture_of_the_right_size_is_normalised_exactly_as_the_library_does() -> None:
    transform = ImageClassification(crop_size=64, resize_size=64)
    image = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    assert torch.equal(batched(transform)([image])[0], transform(Image.fromarray(image)))


def test_pictures_that_cannot_be_written_to_are_left_as_they_are() -> None:
    image = pictures()[0]
    expected = batched(TRANSFORMS["timm"])([image])
    image.flags.writeable = False
    before = image.copy()
    assert torch.equal(batched(TRANSFORMS["timm"])([image]), expected)
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize(
    "transform",
    [
        transforms.Compose([transforms.Resize((32, 32)), transforms.Grayscale(3), transforms.ToTensor(), NORMALISED]),
        transforms.Compose([transforms.Resize((32, 32), Mode.LANCZOS), transforms.ToTensor(), NORMALISED]),
        transforms.Compose([transforms.Resize((32, 32), Mode.NEAREST), transforms.ToTensor(), NORMALISED]),
        transforms.Compose([transforms.Resize((32, 32)), transforms.ToTensor()]),
        create_transform((3, 32, 32), is_training=False, crop_mode="border"),
        image_transform_v2(PreprocessCfg(size=32, resize_mode="longest"), is_train=False),
    ],
)
def test_a_transform_with_an_unknown_step_is_called_as_it_is(transform: transforms.Compose) -> None:
    prepare = batched(transform)
    assert not isinstance(prepare, OnArrays)
    expected = torch.stack([transform(Image.fromarray(image)) for image in pictures()])
    assert torch.equal(prepare(pictures()), expected)
