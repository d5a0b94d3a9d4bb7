"""The measure of generators, on generators and a jury that are known to be right or wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from c2b_ray.roles import GeneratedImage, GenerationRequest
from c2b_ray.tables import content_id
from c2b_ray.world.queries import FACTORS, read, scene_codes
from c2b_ray.world.render import Renderer, render
from c2b_ray.world.scenes import sample
from c2b_ray.world.training.generator_quality import evaluate, prompts

SEED, N = 4712, 120


class Omniscient:
    """Knows the scene behind every picture that it may be shown."""

    def __init__(self, renderer: Renderer) -> None:
        queries = prompts(N, SEED)
        scenes = [renderer.scene(SEED + row, query.mentions) for row, query in enumerate(queries)] + sample(N, SEED)
        pictures = [content_id(render(scene).tobytes()) for scene in scenes]
        self._known = dict(zip(pictures, scene_codes(scenes), strict=True))

    def codes(self, images: np.ndarray) -> np.ndarray:
        return np.array([self._known[content_id(image.tobytes())] for image in images])


@pytest.mark.parametrize(("mislabel", "share"), [(0.0, 1.0), (1.0, 0.0)])
def test_shares_of_a_right_and_a_wrong_generator(mislabel: float, share: float) -> None:
    renderer = Renderer(mislabel)
    found = evaluate(renderer, Omniscient(renderer), N, SEED)  # type: ignore[arg-type]
    assert (found["prompts"], found["errors"]) == (N, 0)
    assert list(found["factors"]) == list(FACTORS)
    for name, row in found["factors"].items():
        assert row["share"] == (1.0 if name == "target_class" else share)
        assert row["ceiling"] == 1.0
        assert row["prompts"] >= 10
    assert found["factors"]["target_class"]["prompts"] == N


def test_errors_are_counted_and_left_out() -> None:
    class Broken:
        revision = "1"

        def generate(self, requests: list[GenerationRequest]) -> list[GeneratedImage]:
            return [GeneratedImage(None, "black") for _ in requests]

    found = evaluate(Broken(), Omniscient(Renderer()), N, SEED)  # type: ignore[arg-type]
    assert found["errors"] == N
    assert math.isnan(found["factors"]["colour"]["share"])


def test_prompts_all_name_a_class_and_mean_what_they_say() -> None:
    for query in prompts(300, SEED):
        assert "target_class" in query.mentions
        assert read(query.text) == query.mentions
