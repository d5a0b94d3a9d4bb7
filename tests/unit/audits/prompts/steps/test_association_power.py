"""The least effect of a word that both looks would have found, against the looks themselves on simulated contexts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from c2b_ray.audits.prompts.steps.association import STILL_OPEN, Finding, LooksMade, contexts_of_second, least_effects

MADE = LooksMade(decided=20, raising=3, least=0.05, alpha=0.05, most=96)


def looked(differences: np.ndarray) -> Finding:
    """One look at differences by context, by scipy's formulas."""
    count, error = len(differences), differences.std(ddof=1) / np.sqrt(len(differences))
    reach = student.ppf(0.975, count - 1) * error
    mean = float(differences.mean())
    p = float(student.sf((mean - 0.05) / error, count - 1))
    return Finding("old", "light", "night", mean, mean - reach, mean + reach, p, "without it", count, 2 * count)


@pytest.mark.parametrize("effect", [0.1, 0.15, 0.2])
@pytest.mark.parametrize("most", [0, 96])
def test_the_power_is_how_often_the_looks_report_it(effect: float, most: int) -> None:
    random, repeats, reported = np.random.default_rng(7), 1_500, 0
    for _ in range(repeats):
        last = looked(random.normal(effect, 0.3, 24))
        if most:
            if last.p_value >= STILL_OPEN:
                continue
            last = looked(random.normal(effect, 0.3, contexts_of_second([last], most)["old"]))
        reported += last.p_value <= 0.05 * 4 / 21
    made = LooksMade(20, 3, 0.05, 0.05, most)
    assert made.power(effect, 0.3, 24) == pytest.approx(reported / repeats, abs=0.05)


def test_the_least_effect_is_found_four_times_in_five_and_falls_with_contexts() -> None:
    first = [looked(np.random.default_rng(seed).normal(0, 0.3, 24)) for seed in range(40)]
    ((key, least),) = least_effects(first, MADE).items()
    assert key == ("light", "night")
    assert least is not None
    assert MADE.power(least, 0.3, 24) == pytest.approx(0.8, abs=0.05)
    one_look = least_effects(first, LooksMade(20, 3, 0.05, 0.05, 0))[key]
    assert one_look is not None
    assert one_look > least > 0.05


def test_contexts_that_differ_too_much_find_nothing_and_say_so() -> None:
    first = [looked(np.random.default_rng(seed).normal(0, 3.0, 4)) for seed in range(10)]
    assert list(least_effects(first, LooksMade(20, 0, 0.05, 0.05, 0)).values()) == [None]
