"""What every ImageGenerator must do: the world's renderer, its trained pipeline, and a tiny one made here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tiny_pipeline import REQUESTS, STEPS, difference

from c2b_ray.models import catalog
from c2b_ray.roles import GeneratedImage, GenerationRequest, ImageGenerator


@pytest.fixture(scope="module", params=["renderer", "world", "diffusers"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("options", ["", "&scheduler=EulerDiscreteScheduler&size=16x16&dtype=bf16"])
def test_it_is_described_without_being_loaded(kind: str, directory: Path, options: str) -> None:
    names = {"renderer": "world:renderer?mislabel=0.5", "world": f"world:diffusion?device=cpu{options}"}
    spec = names.get(kind, f"diffusers:local-dir:{directory}?{STEPS}{options}")
    known = catalog.describe("image_generator", spec)
    assert known is not None
    assert known == catalog.description_of(catalog.image_generator(spec))


@pytest.fixture(scope="module")
def whole(kind: str, make: Callable[[str, str], ImageGenerator]) -> list[GeneratedImage]:
    return make(kind, "batch=5").generate(REQUESTS)


def test_it_is_the_role(kind: str, make: Callable[[str, str], ImageGenerator]) -> None:
    generator = make(kind, "batch=2")
    assert isinstance(generator, ImageGenerator)
    assert len(generator.revision) == 20
    assert generator.revision == make(kind, "batch=3").revision
    assert generator.generate([]) == []


def test_one_picture_a_request(whole: list[GeneratedImage]) -> None:
    assert len(whole) == len(REQUESTS)
    for image in whole:
        assert image.error is None
        assert image.pixels is not None
        assert image.pixels.dtype == np.uint8
        assert image.pixels.shape == whole[0].pixels.shape  # type: ignore[union-attr]
        assert image.pixels.shape[2] == 3


def test_a_row_is_the_same_in_any_batch_and_beside_any_neighbour(
    kind: str, make: Callable[[str, str], ImageGenerator], whole: list[GeneratedImage]
) -> None:
    order = [3, 1, 4, 0, 2]
    swapped = make(kind, "batch=2").generate([REQUESTS[i] for i in order])
    for i, image in zip(order, swapped, strict=True):
        assert difference(image, whole[i]) <= 1


def test_seed_and_prompt_both_count(whole: list[GeneratedImage]) -> None:
    assert difference(whole[1], whole[4]) > 1  # the same prompt, another seed
    assert difference(whole[0], whole[1]) > 1  # the same seed, another prompt


def test_the_renderer_says_what_it_cannot_draw() -> None:
    found = catalog.image_generator("world:renderer").generate(
        [GenerationRequest("a red zebra", 1), GenerationRequest("a red bus", 1)]
    )
    assert found[0].pixels is None
    assert "names none of the world's classes (bus" in str(found[0].error)
    assert found[1].error is None
