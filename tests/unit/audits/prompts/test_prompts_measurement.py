"""Frequencies and gains of methods, and what counts as one draw of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from c2b_ray.audits.prompts.measurement import gains, mean_frequency

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


def row(method: str, prompt: str, frequency: float | None, value: str = "night", **more: Any) -> dict[str, Any]:
    about = {"attribute": "lighting", "value": value, "generator": "base", "method": method, "prompt": prompt}
    return {**about, "frequency": frequency, "images": 10, "leaked": False, "subject": prompt[:1], **more}


PLAIN = [row("llm", f"plain {n}", 0.3 + 0.1 * (n % 2)) for n in range(8)]


def test_prompts_of_one_subject_are_one_draw_of_a_search() -> None:
    twice = [row("bgps λ=10", f"{subject} {n}", 0.4 + 0.1 * subject) for subject in range(4) for n in range(2)]
    once = [row("bgps λ=10", f"{subject}", 0.4 + 0.1 * subject) for subject in range(4)]
    [with_pairs], [alone] = gains([*twice, *PLAIN], 0.05), gains([*once, *PLAIN], 0.05)
    assert with_pairs["gain"] == pytest.approx(0.2)
    assert (with_pairs["low"], with_pairs["high"]) == pytest.approx((alone["low"], alone["high"]))
    assert (with_pairs["prompts"], alone["prompts"]) == (8, 4)


def test_an_interval_that_holds_nought_found_nothing_and_leaks_do_not_count() -> None:
    found = [row("bgps λ=10", f"{n} boats", 0.1 + 0.2 * (n % 3)) for n in range(6)]
    leaky = row("bgps λ=10", "7 at night", 1.0, leaked=True)
    unjudged = row("bgps λ=10", "8 boats", None)
    [one] = gains([*found, leaky, unjudged, *PLAIN], 0.05)
    assert one["verdict"] == "nothing found"
    assert one["prompts"] == 6
    strong = [row("bgps λ=10", f"{n} rusty boats", 0.9) for n in range(6)]
    assert gains([*strong, *PLAIN], 0.05)[0]["verdict"] == "above"
    assert gains([strong[0], *PLAIN], 0.05)[0]["verdict"] == "unknown"
    assert gains(strong, 0.05) == []


def test_subjects_that_show_the_value_anyway_are_no_gain() -> None:
    """Ten searches of a list of twenty subjects reach its first half, which the value is usual of: that was +0.3."""
    usual = [0.8] * 10 + [0.2] * 10
    plain = [row("llm", f"plain {n}", usual[n], subject=str(n)) for n in range(20)]
    pairs = [(n, k) for n in range(10) for k in range(2)]
    found = [row("bgps λ=10", f"{n} {k}", usual[n] + (0.1 if k else -0.1), subject=str(n)) for n, k in pairs]
    [one] = gains([*found, *plain], 0.05)
    assert (one["gain"], one["verdict"], one["prompts"]) == (pytest.approx(0.0), "nothing found", 20)


def test_each_subject_counts_as_much_as_among_the_methods_prompts() -> None:
    """Means over subjects a, a, b: .3 of the search; (.2 + .2 + .8) / 3 = .4 of the language model."""
    plain = [row("llm", f"plain {n}", f, subject=s) for n, (s, f) in enumerate([("a", 0.2), ("b", 0.8), ("c", 1.0)])]
    found = [row("bgps λ=10", f"found {n}", 0.3, subject=s) for n, s in enumerate("aab")]
    [one] = gains([*found, *plain], 0.05)
    assert one["gain"] == pytest.approx(-0.1)
    people = [row("curated", "a street", 0.5, subject=None), *(dict(one, method="curated") for one in found)]
    assert gains([*people, *plain], 0.05)[0]["gain"] == pytest.approx(0.35 - 2 / 3)  # no subject: compared as it is
