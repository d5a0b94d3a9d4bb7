"""Classifiers that know the scene of every render, so that failures can be planted exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

import numpy as np
import pytest

from c2b_ray.world import CLASSES, Scene, renderer


@dataclass(frozen=True)
class PlantedRenders:
    """Answers rightly, except for `target` on a share `rate` of the images of `label` that show `values`."""

    scenes: dict[bytes, Scene]
    label: str
    values: Mapping[str, str]
    target: str
    rate: float

    def __call__(self, images: list[np.ndarray]) -> np.ndarray:
        logits = np.zeros((len(images), len(CLASSES)), np.float32)
        for row, image in enumerate(images):
            logits[row, CLASSES.index(self._answer(image.tobytes()))] = 9
        return logits

    def _answer(self, image: bytes) -> str:
        scene = self.scenes.get(image)
        if scene is None:  # pictures on which models in memory are tried first
            return CLASSES[0]
        planted = scene.target_class == self.label and all(scene.attribute(k) == v for k, v in self.values.items())
        return self.target if planted and Random(image).random() < self.rate else scene.target_class


@contextmanager
def known_renders() -> Iterator[dict[bytes, Scene]]:
    """Records the scene of every image that `world:renderer` renders in this process while the block runs."""
    scenes: dict[bytes, Scene] = {}
    plain = renderer.render

    def noted(scene: Scene) -> np.ndarray:
        image = plain(scene)
        scenes[image.tobytes()] = scene
        return image

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "render", noted)
        yield scenes
