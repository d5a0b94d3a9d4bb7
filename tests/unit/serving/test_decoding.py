"""Replicas whose own processes decode give the rows of a model that decodes itself, errors included."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from ray import serve

from c2b_ray.models import catalog
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.roles import Blocks, Floats, Pixels, Shape
from c2b_ray.serving.channel import Channel
from c2b_ray.serving.classifier import ClassifierServer
from c2b_ray.serving.encoder import EncoderServer
from c2b_ray.serving.handles import ServedClassifier, ServedEncoder
from c2b_ray.steps import encoded

SPEC = "toy:level"


class Shown:
    """A classifier and encoder of small pictures; notes of which process it got pixels that were prepared."""

    labels, dimension, revision, shape = ("dark", "light"), 2, "1", Shape(12, "bilinear", (8, 8))

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        return self._of(np.stack([shaped(image, self.shape) for image in images]))

    def logits_of_shaped(self, images: Blocks) -> Floats:
        self.blocks.append(len(images))
        return self._of(images)

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        return self.logits(images, [])

    def embeddings_of_shaped(self, images: Blocks) -> Floats:
        return self.logits_of_shaped(images)

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        return np.array([[1, 0]] * len(texts), np.float32)

    def _of(self, images: Blocks) -> Floats:
        angles = images.reshape(len(images), -1).mean(axis=1) / 255
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def files(n: int) -> list[bytes | None]:
    random = np.random.default_rng(n)
    found: list[bytes | None] = []
    for i in range(n):
        file = BytesIO()
        Image.fromarray(random.integers(0, 256, (20 + i, 31, 3), np.uint8)).save(file, "JPEG")
        found.append(file.getvalue() if i % 5 else None if i % 2 else b"cut off")
    return found


@pytest.fixture(scope="module")
def there() -> Iterator[Any]:
    model = Shown()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "load", lambda role, spec: model)
        encoder = serve.run(EncoderServer.bind(SPEC, decoders=2), name="encoder", _local_testing_mode=True)
        classifiers = serve.run(ClassifierServer.bind(decoders=2), name="classifiers", _local_testing_mode=True)
        served = ServedEncoder(SPEC, Channel("encoder", handle=encoder))
        yield served, ServedClassifier(SPEC, Channel("classifiers", handle=classifiers)), model


@pytest.mark.parametrize("n", [1, 2, 47])
def test_the_encoder_gets_blocks(there: Any, n: int) -> None:
    served, _, model = there
    model.blocks.clear()
    found, errors = encoded.embeddings(files(n), served)
    expected, reasons = encoded.embeddings(files(n), Shown())
    np.testing.assert_array_equal(found, expected)
    assert errors == reasons
    assert sum(model.blocks) == sum(reason is None for reason in reasons)


def test_processes_decode_for_the_encoder(there: Any) -> None:
    served, _, _ = there
    encoded.embeddings(files(47), served)
    children = [name for name in os.listdir("/proc") if name.isdigit() and _is_worker(name)]
    assert children


def _is_worker(number: str) -> bool:
    try:
        with open(f"/proc/{number}/cmdline", "rb") as file:
            return b"c2b_ray.processes" in file.read()
    except OSError:
        return False
