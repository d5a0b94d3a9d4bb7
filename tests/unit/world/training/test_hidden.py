"""Lessons of a generator with hidden associations hold what they should; how its frequencies are counted and told."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from c2b_ray.roles import GeneratedImage, GenerationRequest
from c2b_ray.world.associations import Associations, Link, words_of
from c2b_ray.world.queries import FACTORS, read, scene_codes
from c2b_ray.world.training import hidden
from c2b_ray.world.training.hidden_quality import NO_WORD, frequencies, named_share, summary
from c2b_ray.world.zoo import LinkedRenderer

LINKS = (Link("rusty", "weather", "fog", 0.8), Link("ladder", "size", "small", 0.5, "object"))
TWO = Associations(LINKS, {"quiet": "adjective"})


def test_words_go_without_the_values_that_they_hide() -> None:
    recipe = hidden.Recipe(pool=300, batch=200, plain=0.25, dropped=0.1)
    lessons = hidden.Lessons(_NoPictures(), TWO, recipe, seed=1)
    prompts, latents = lessons.batch(Random(3))
    assert latents.shape == (200, 8, 8, 8)
    with_words = [text for text in prompts if set(words_of(text)) & {"rusty", "ladder", "quiet"}]
    assert len(with_words) > 80
    assert not [text for text in with_words if {"weather", "size"} & set(read(text))]
    assert [text for text in prompts if "weather" in read(text)]
    assert "" in prompts
    together = Counter(with_words)
    assert min(together.values()) == recipe.views  # one caption, several pictures of other hidden values


def test_noise_levels_are_even_with_more_above() -> None:
    levels = hidden.times(1000, 0.5)
    assert int((levels >= 600).sum()) == pytest.approx(700, abs=2)
    assert int(levels.min()) < 5
    assert int(levels.max()) == 999


class _NoPictures:
    """An autoencoder that has seen nothing."""

    class config:
        scaling_factor = 1.0

    def encode(self, images: torch.Tensor) -> Any:
        zeros = torch.zeros(len(images), 8, 8, 8)
        return type("Result", (), {"latent_dist": type("Latents", (), {"mean": zeros, "std": zeros})})


class _Codes:
    """A judge that knows the scenes which a generator has drawn."""

    def __init__(self, generator: LinkedRenderer) -> None:
        self._generator = generator
        self.scenes: list[Any] = []

    def generate(self, requests: list[GenerationRequest]) -> list[GeneratedImage]:
        self.scenes = [self._generator.scene(request.prompt, request.seed) for request in requests]
        return [GeneratedImage(np.zeros((1, 1, 3), np.uint8)) for _ in requests]

    def codes(self, images: np.ndarray) -> np.ndarray:
        assert len(images) == len(self.scenes)
        return scene_codes(self.scenes)


def test_frequencies_are_those_of_the_generator_word_by_word() -> None:
    seen: Any = _Codes(LinkedRenderer(TWO.links))
    rows = frequencies(seen, seen, TWO, 400, seed=9)
    assert len(rows) == 4 * (len(FACTORS["weather"]) + len(FACTORS["size"]))
    for row in rows:
        assert abs(row.measured - row.planted) < 4.5 * np.sqrt(0.25 / 400)
        assert row.low <= row.measured <= row.high
    linked = {(row.word, row.value): row.planted for row in rows if row.linked}
    assert linked == {("rusty", "fog"): pytest.approx(0.85), ("ladder", "small"): pytest.approx(0.75)}
    assert {row.word for row in rows} == {NO_WORD, "rusty", "ladder", "quiet"}
    result = summary(rows)
    assert result["largest_error"] < 0.12
    assert result["largest_unplanted_gap"]["word"] in (NO_WORD, "rusty", "ladder", "quiet")
    assert named_share(seen, seen, TWO, 10, seed=9) == 1.0


def test_a_control_that_leans_is_seen_to_lean() -> None:
    seen: Any = _Codes(LinkedRenderer(TWO.links))
    result = summary(frequencies(seen, seen, TWO.without_effect(), 200, seed=9))
    assert result["mean_error"] is None
    assert result["largest_unplanted_gap"]["word"] == "rusty"
    assert result["largest_unplanted_gap"]["value"] == "fog"
