"""The interval of a method's frequency, where a search's prompts are variants of each other."""

from __future__ import annotations

import numpy as np

from c2b_ray.audits.prompts.measurement import mean_frequency

IMAGES = 8


def rows(hits: np.ndarray, searches: list[str | None]) -> list[dict[str, object]]:
    return [
        {"images": IMAGES, "frequency": int(n) / IMAGES, "search": search}
        for n, search in zip(hits, searches, strict=True)
    ]


def test_prompts_of_one_search_count_together_and_intervals_hold_the_mean() -> None:
    """Ten searches of two prompts each, alike in how often they show the value. With each prompt for itself 87 % of
    intervals held the mean."""
    searches: list[str | None] = [f"search {number // 2}" for number in range(20)]
    inside = {"searches": 0, "prompts": 0}
    for seed in range(400):
        random = np.random.default_rng(seed)
        hits = random.binomial(IMAGES, np.repeat(random.beta(2, 2, 10), 2))
        for name, units in (("searches", searches), ("prompts", [None] * 20)):
            value, low, high = mean_frequency(rows(hits, units), 0.95)
            assert None not in (value, low, high)
            assert value == hits.mean() / IMAGES
            inside[name] += low <= 0.5 <= high
    assert inside["searches"] / 400 >= 0.93
    assert inside["prompts"] / 400 <= 0.91


def test_a_single_search_and_no_images() -> None:
    hits = np.array([2, 6])
    assert mean_frequency(rows(hits, ["one", "one"]), 0.95) == mean_frequency(rows(hits, [None, None]), 0.95)
    assert mean_frequency([], 0.95) == (None, None, None)
    assert mean_frequency([{"images": 0, "frequency": None, "search": None}], 0.95) == (None, None, None)
