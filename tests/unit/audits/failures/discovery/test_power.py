"""The least rate that a budget or a search is likely to find, against the tests themselves and against arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.audits.failures.discovery.race import (
    POWERS,
    Confirming,
    FailureReach,
    LabelSearch,
    Screening,
    baseline_share,
    least_caption_rate,
    least_rate,
    least_rates,
)
from c2b_ray.audits.failures.discovery.value_sets import excess
from c2b_ray.stats.rate_evidence import RateBatch, more_evidence, no_evidence

MANY = 1e12


@pytest.mark.parametrize(("rate", "share", "tested"), [(1e-2, 0.1, 1_200), (1e-2, 0.1, 4_000), (1e-2, 0.02, 2_800)])
def test_it_is_about_how_often_the_test_itself_decides_in_time(rate: float, share: float, tested: int) -> None:
    repeats, hypotheses, random = 400, 15, np.random.default_rng(3)
    captions = int(tested / (1 + baseline_share(1)))
    evidence = no_evidence(repeats)
    for _ in range(20):
        sides = captions // 20, (tested - captions) // 20
        failures = random.binomial(sides[0], rate, repeats), random.binomial(sides[1], rate * share, repeats)
        batch = RateBatch.of(failures[0], np.full(repeats, sides[0]), failures[1], np.full(repeats, sides[1]))
        evidence = more_evidence(evidence, batch, hypotheses / 0.05)
    decided = float((evidence.e_values >= hypotheses / 0.05).mean())
    said = float(FailureReach(None, MANY, tested, hypotheses).power(rate, share))
    assert said == pytest.approx(decided, abs=0.12)


def test_a_failure_that_no_baseline_image_shows_is_not_found_however_many_draws_confirm() -> None:
    # 450,000 baseline images, 1e-4 of the 1 in 100 that show what it needs: 0.45 failures on average.
    reach = FailureReach(seen=450_000, screened=MANY, tested=MANY, hypotheses=15)
    assert float(reach.power(1e-4, 0.01)) == pytest.approx(1 - np.exp(-0.45))


def test_what_is_said_to_be_found_is_and_a_tenth_of_it_is_not() -> None:
    reach = FailureReach(seen=90_000, screened=30_000, tested=64_000, hypotheses=3)
    rate = least_rate(reach, 0.1)
    assert rate is not None
    assert reach.power(rate, 0.1) >= 0.8 > reach.power(rate / 10, 0.1)
    more = least_rate(FailureReach(900_000, 300_000, 640_000, 3), 0.1)
    assert more == pytest.approx(rate / 10, rel=0.05)  # draws in proportion


def test_a_budget_that_decides_nothing_says_so() -> None:
    assert least_rate(FailureReach(seen=45, screened=5, tested=4, hypotheses=300), 0.1) is None


def test_a_failure_of_a_smaller_ratio_than_is_searched_for_is_not_said_to_be_found() -> None:
    """What 1 in 10 images show fails ten times as often where they are shown."""
    reach = FailureReach(seen=90_000, screened=30_000, tested=64_000, hypotheses=3, worth=12.0)
    assert least_rate(reach, 0.1) is None
    assert least_rate(reach, 0.02) is not None


SCREENING = Screening(most=2_000, first=64, growth=3.0, goal=6, fewest=2, surprise=0.2)


@pytest.mark.parametrize(("rate", "baseline"), [(0.03, 0.01), (0.05, 0.01), (0.004, 0.0005), (0.02, 0.01)])
def test_the_probability_of_being_promising_is_how_often_a_drawn_caption_is(rate: float, baseline: float) -> None:
    """The oracle draws captions one by one, by the rules as discovery applies them."""
    random, promising, repeats = np.random.default_rng(5), 0, 3_000
    for _ in range(repeats):
        failures = draws = 0
        while draws < 2_000 and failures < 6 and draws * 2 * baseline < failures + 3:
            more = min(max(64, 2 * draws), 2_000 - draws)
            failures, draws = failures + int(random.binomial(more, rate)), draws + more
        least = draws * 2 * baseline
        promising += failures > max(least, 0) and (failures >= 2 or 1 - np.exp(-least) < 0.2)
    assert SCREENING.power(rate, baseline, 2.0) == pytest.approx(promising / repeats, abs=0.03)


def test_the_least_rate_of_a_caption_falls_with_the_draws_and_exceeds_the_smallest_ratio() -> None:
    rates = [
        least_caption_rate(0.01, SCREENING, Confirming(draws, hypotheses=4, alpha=0.05, worth=2.0))
        for draws in (500, 2_000, 20_000)
    ]
    known = [one for one in rates if one is not None]
    assert known == sorted(known, reverse=True)
    assert len(set(known)) == 3
    assert known[-1] >= 0.02
    assert least_caption_rate(0.01, SCREENING, Confirming(10, 4, 0.05, 2.0)) is None
    assert least_caption_rate(0.6, SCREENING, Confirming(1e9, 4, 0.05, 2.0)) is None  # nothing fails twice as often


LABEL = LabelSearch(1000, 1000, usual=0.02, penalty=6.0)
RUN = {"hypotheses": 9, "findings": 0, "alpha": 0.05, "smallest_ratio": 2.0}


@pytest.mark.parametrize("share", [0.1, 0.03])
def test_a_cause_at_the_least_rate_is_found_as_often_as_said(share):
    random, repeats = np.random.default_rng(1), 4000
    for wanted, rate in zip(POWERS, least_rates([LABEL], share, **RUN)[0], strict=True):
        counts = []
        for images in (LABEL.searched, LABEL.tested):
            shown = random.binomial(images, share, repeats)
            of_others = random.binomial(images - shown, LABEL.usual)
            counts.append((random.binomial(shown, rate), shown, of_others, images - shown))
        f, n, f0, n0 = counts[0]
        chosen = excess(f, n, f + f0, n + n0) >= LABEL.penalty
        expected = f / np.maximum(n, 1) * (n0 + 1) / (f0 + 0.5)
        evidence = more_evidence(no_evidence(repeats, 2.0, expected=expected), RateBatch.of(*counts[1]), 200.0, np.inf)
        assert np.mean(chosen & (evidence.e_values >= 200)) == pytest.approx(wanted, abs=0.04)


def test_more_images_find_rarer_failures_and_more_hypotheses_fewer():
    larger = LabelSearch(4000, 4000, usual=0.02, penalty=6.0)
    few, many = least_rates([LABEL, larger], 0.1, **RUN)
    assert (few > many).all()
    assert few[0] < few[1]
    assert many[0] < many[1]
    assert (least_rates([LABEL], 0.1, **{**RUN, "hypotheses": 900})[0] > few).all()
    assert (least_rates([LABEL], 0.02, **RUN)[0] > few).all()


def test_where_too_few_images_show_a_cause_no_rate_is_found():
    assert np.isnan(least_rates([LabelSearch(60, 60, usual=0.1, penalty=6.0)], 0.02, **RUN)).all()
    assert least_rates([], 0.1, **RUN).shape == (0, len(POWERS))
