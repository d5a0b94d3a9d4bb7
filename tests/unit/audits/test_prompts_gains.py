"""What counts as one draw where methods are held against the language model's own prompts."""

from __future__ import annotations

from typing import Any

import pytest

from c2b_ray.audits.prompts.gains import gains


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
