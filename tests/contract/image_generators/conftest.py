"""The pipeline in a folder, and generators of every kind, for the suites of image generators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_pipeline import STEPS, pipeline

from c2b_ray.models import catalog
from c2b_ray.roles import ImageGenerator


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pipeline")
    pipeline().save_pretrained(place, safe_serialization=True)
    return place


@pytest.fixture(scope="module")
def make(directory: Path) -> Callable[[str, str], ImageGenerator]:
    """The generator of a kind, with options."""

    def made(kind: str, options: str) -> ImageGenerator:
        names = {"renderer": "world:renderer?", "world": f"world:diffusion?{STEPS}&"}
        return catalog.image_generator(names.get(kind, f"diffusers:local-dir:{directory}?{STEPS}&") + options)

    return made
