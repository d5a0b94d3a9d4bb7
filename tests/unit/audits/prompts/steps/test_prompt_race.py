"""Races against searches that give every candidate all K images, where the frequency of every prompt is known."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from c2b_ray.audits.prompts.steps.search import (
    Candidates,
    CandidateSelection,
    Counted,
    Search,
    SearchSettings,
    Shares,
    best,
)
from c2b_ray.audits.prompts.steps.words import leaks_of
from c2b_ray.roles import Message, TokenLogProb

ADJECTIVES = [f"adjective{i}" for i in range(14)]
THINGS = [f"thing{i}" for i in range(10)]
LEADS = ["photo", "picture", "view"]
SUBJECTS = ["bus", "mug", "boat"]
STRENGTHS = [0.9, 0.75, 0.6, 0.45]
SETTINGS = SearchSettings(weight=100, images=16)
SEARCHES = 100


class Grammar:
    """A language model with next words of random probabilities; implements `roles.ReplyContinuer`."""

    end_tokens: tuple[int, ...] = (1,)

    def __init__(self, random: np.random.Generator) -> None:
        def shares(words: list[str], total: float = 1.0) -> dict[str, float]:
            chances = np.maximum(random.dirichlet(np.full(len(words), 0.7)), 0.004)
            return dict(zip(words, (total * chances / chances.sum()).tolist(), strict=True))

        rows = {
            "": {**shares(ADJECTIVES, 0.5), **shares(LEADS, 0.5)},
            **{word: {"of": 1.0} for word in LEADS},
            "of": shares(ADJECTIVES),
            **{word: {**shares(SUBJECTS, 0.75), **shares(ADJECTIVES, 0.25)} for word in ADJECTIVES},
            **{word: {"<end>": 0.4, "near": 0.4, "behind": 0.2} for word in SUBJECTS},
            **{word: shares(THINGS) for word in ("near", "behind")},
            **{word: {"<end>": 0.7, "near": 0.3} for word in THINGS},
        }
        self.words = ["<start>", "<end>", *dict.fromkeys(w for row in rows.values() for w in row if w != "<end>")]
        numbers = {word: number for number, word in enumerate(self.words)}
        self._rows = {
            word: sorted((TokenLogProb(numbers[w], w, math.log(p)) for w, p in row.items()), key=lambda t: -t.log_prob)
            for word, row in rows.items()
        }

    def reply_start(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return (0,)

    def continuations(self, prefixes: Sequence[Sequence[int]], k: int) -> list[list[TokenLogProb]]:
        return [self._rows["" if prefix[-1] == 0 else self.words[prefix[-1]]][:k] for prefix in prefixes]

    def texts_of(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(self.words[i] for i in row if i > 1) for row in tokens]


class Pictures:
    """Eight random words raise or lower a value of three. Under one seed prompts get the same coin, as generators give
    them the same noise, and the judge is wrong about 8 % of images."""

    def __init__(self, random: np.random.Generator) -> None:
        words = random.permutation([*ADJECTIVES, *THINGS]).tolist()
        self._raising = dict(zip(words, STRENGTHS, strict=False))
        self._lowering = dict(zip(words[4:], STRENGTHS, strict=False))

    def frequency(self, prompt: str) -> float:
        odds = 0.5
        for word in set(prompt.split()):
            share = 1 / 3 + 2 / 3 * self._raising.get(word, 0.0)
            odds *= 2 * share / (1 - share)
            share = 1 / 3 + 2 / 3 * self._lowering.get(word, 0.0)
            odds *= (1 - share) / (2 * share) if word in self._lowering else 1.0
        return odds / (1 + odds)

    def probabilities(self, prompts: Sequence[str], seeds: Sequence[int]) -> Shares:
        texts = np.array([zlib.crc32(prompt.encode()) for prompt in prompts], np.uint64)
        coins = _uniform(np.array(seeds, np.uint64))
        wrong = _uniform(np.array(seeds, np.uint64) ^ (texts[:, None] << np.uint64(31))) < 0.08
        rates = np.array([self.frequency(prompt) for prompt in prompts])
        return ((coins < rates[:, None]) ^ wrong).astype(float)


def _uniform(numbers: np.ndarray[tuple[int, ...], np.dtype[np.uint64]]) -> Shares:
    """Splitmix64: a hash as a number in [0, 1)."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    result: Shares = (mixed >> np.uint64(11)).astype(float) / 2**53
    return result


def searched(settings: SearchSettings, seed: int) -> tuple[float, int]:
    """The mean true frequency of what a search finds, and the images that it asked for."""
    random = np.random.default_rng(seed)
    model, pictures = Grammar(random), Pictures(random)
    search = Search(model, Counted(pictures), leaks_of([], {}), settings, seed)
    return float(np.mean([pictures.frequency(one.text) for one in search.run((0,))])), search.guide.images


@pytest.mark.long
def test_a_race_finds_as_frequent_prompts_with_a_quarter_of_the_images() -> None:
    raced, fixed = (
        np.array([searched(replace(SETTINGS, raced=raced), seed) for seed in range(SEARCHES)])
        for raced in (True, False)
    )
    assert raced[:, 1].sum() <= 0.25 * fixed[:, 1].sum()
    assert raced[:, 0].mean() >= fixed[:, 0].mean() - 0.03
    assert fixed[:, 0].mean() > 0.85


def test_winners_get_images_that_had_no_part_in_their_winning() -> None:
    seen: list[tuple[str, int]] = []

    class Coins:
        def probabilities(self, prompts: Sequence[str], seeds: Sequence[int]) -> Shares:
            seen.extend((prompt, seed) for prompt in prompts for seed in seeds)
            return np.array([[1.0 if prompt == "b" and seed < 4 else 0.0 for seed in seeds] for prompt in prompts])

    texts = ["a", "b", "c", "d", "e"]
    about = Candidates(texts, np.zeros(5), [-1] * 5, np.full(5, np.nan))
    ranked = best(about, Counted(Coins()), CandidateSelection(2, 2, 1.0, tuple(range(16)), True))
    assert ranked.order[0] == 1
    assert ranked.used == 6
    assert {seed for prompt, seed in seen if prompt == "b"} == set(range(6))
    assert math.exp(ranked.bias[1]) == 4 / 6
    assert len(seen) < 0.5 * 5 * 16
