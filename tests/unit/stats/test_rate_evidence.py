"""E-values of rates: exactly valid whatever decides the next batch, and worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from c2b_ray.stats import RateBatch, Trials, e_q_values, more_evidence, no_evidence
from c2b_ray.stats.rate_evidence import RATIOS, WEIGHTS

ALPHA = 0.05


def every(n1, n0):
    """All outcomes of a batch: failures on either side."""
    return [side.ravel() for side in np.meshgrid(np.arange(n1 + 1), np.arange(n0 + 1))]


def chance(f1, n1, f0, n0, p1, p0):
    return binom.pmf(f1, n1, p1) * binom.pmf(f0, n0, p0)


def of(f1, n1, f0, n0):
    return RateBatch.of(*np.broadcast_arrays(np.atleast_1d(f1), n1, f0, n0))


def after_two(worth, target, p1, p0):
    """Expected e-values after two batches, the second one's sizes and target chosen by looking at the first."""
    f1, f0 = every(5, 7)
    of_first = chance(f1, 5, f0, 7, p1, p0)
    first = more_evidence(no_evidence(len(f1), worth), of(f1, 5, f0, 7), target)
    n1, n0 = np.where(f1 > 0, 6, 1), np.where(f0 > 0, 2, 5)  # more draws where it looks like a failure
    expected = np.zeros(2)
    for g1, g0 in zip(*every(6, 5), strict=True):
        possible = (g1 <= n1) & (g0 <= n0)
        second = more_evidence(first, of(np.minimum(g1, n1), n1, np.minimum(g0, n0), n0), np.where(f1 > 2, 5.0, target))
        weights = np.where(possible, of_first * chance(g1, n1, g0, n0, p1, p0), 0.0)
        expected += [weights @ second.e_values, weights @ second.hopeless]
    return expected


@pytest.mark.parametrize("p0", [1e-5, 0.01, 0.3, 0.9])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("target", [2.0, 20.0, 4000.0])
@pytest.mark.parametrize("worth", [2.0, 1.2])
def test_no_caption_as_good_as_its_baseline_is_expected_to_gain(p0, share, target, worth):
    gained = after_two(worth, target, share * p0, p0)[0]
    assert gained <= 1 + 1e-9
    if share == 1:  # nothing is given away either, unless all that is of use is paid in full
        assert gained >= 0.95


@pytest.mark.parametrize(("p0", "odds"), [(1e-5, 2.0), (0.01, 2.0), (0.3, 2.0), (0.4, 9.0), (0.9, 2.0), (0.0, np.inf)])
def test_no_caption_that_is_worth_it_is_expected_to_look_hopeless(p0, odds):
    p1 = 0.5 if odds == np.inf else odds * p0 / (1 - p0 + odds * p0)
    assert after_two(2.0, 20.0, p1, p0)[1] <= 1 + 1e-9


def test_the_first_bet_is_slightly_above_a_ratio_below_2_that_is_worth_it():
    assert np.exp(no_evidence(1, 1.5).log_ratios[0]) == pytest.approx([1.575, 8, 20])
    assert (np.exp(no_evidence(1, 4.0).log_ratios) == np.exp(no_evidence(1).log_ratios)).all()
    np.testing.assert_array_equal(np.exp(no_evidence(1).log_ratios[0]), np.exp(np.log(RATIOS)))


def test_one_failure_by_hand():
    # One failure in 10 + 13 draws: it is the caption's with chance r*10/(r*10 + 13) if the odds ratio is r.
    shown = more_evidence(no_evidence(1), of(1, 10, 0, 13), 20)
    by_ratio = RATIOS * 10 / (RATIOS * 10 + 13) / (10 / 23)
    assert shown.e_values == pytest.approx(WEIGHTS @ by_ratio)
    assert np.exp(shown.log_beliefs[0]) == pytest.approx(WEIGHTS * by_ratio / (WEIGHTS @ by_ratio))
    assert shown.hopeless == pytest.approx((10 / 23) / (20 / 33))
    # ... and a failure at baseline costs what keeps the mean at 1.
    lost = more_evidence(no_evidence(1), of(0, 10, 1, 13), 20)
    assert 10 / 23 * shown.e_values + 13 / 23 * lost.e_values == pytest.approx(1)


def test_gains_end_at_the_target_and_what_is_saved_is_paid_elsewhere():
    near, far = (more_evidence(no_evidence(7), of(np.arange(7), 60, 6 - np.arange(7), 60), top) for top in (3.0, 1e6))
    assert near.e_values.max() == pytest.approx(3)
    assert far.e_values.max() > 10
    below = near.e_values < 2.9
    assert (near.e_values[below] > far.e_values[below]).all()
    strong = more_evidence(no_evidence(7), of(np.arange(7), 60, 6 - np.arange(7), 60), 3.0, beyond=np.inf)
    np.testing.assert_allclose(strong.e_values, far.e_values)


@pytest.mark.parametrize(("p1", "p0"), [(0.01, 0.01), (0.3, 0.3), (0.9, 0.9), (0.02, 0.03)])
def test_looking_until_it_is_shown_keeps_the_level(p1, p0):
    random, runs = np.random.default_rng(0), 1500
    evidence, step = no_evidence(runs), max(1, round(0.3 / p0))
    for _ in range(60):  # the sides take turns in having more draws, by who leads
        leads = evidence.e_values > 1
        n1, n0 = np.where(leads, 2 * step, step), np.where(leads, step, 2 * step)
        going = ~evidence.abandoned & (evidence.e_values < 1 / ALPHA)
        f1, f0 = random.binomial(n1, p1), random.binomial(n0, p0)
        evidence = more_evidence(evidence, of(f1 * going, n1 * going, f0 * going, n0 * going), 1 / ALPHA)
    shown = (evidence.e_values >= 1 / ALPHA).mean()
    assert shown <= ALPHA + 3 * np.sqrt(ALPHA / runs)
    if p1 == p0:
        assert shown >= 0.5 * ALPHA  # the level is spent
        assert evidence.abandoned.mean() > 0.05


def test_a_ratio_that_is_worth_it_is_given_up_as_seldom_as_promised():
    random, runs = np.random.default_rng(1), 1000
    evidence = no_evidence(runs)
    for _ in range(250):
        going = ~evidence.abandoned & (evidence.e_values < 1 / ALPHA)
        counts = random.binomial(100, 0.004, runs), random.binomial(130, 0.002, runs)
        evidence = more_evidence(evidence, of(counts[0] * going, 100 * going, counts[1] * going, 130 * going), 20)
    assert evidence.abandoned.mean() <= 0.05 + 3 * np.sqrt(0.05 / runs)
    assert (evidence.e_values >= 20).mean() > 0.9


def test_an_expected_ratio_saves_draws_and_a_wrong_one_keeps_the_mean():
    batch = of(4, 1000, 0, 1300)
    plain, expected = (more_evidence(no_evidence(1, expected=e), batch, 1e9) for e in (None, [60.0]))
    assert expected.e_values > plain.e_values
    unknown = more_evidence(no_evidence(1, expected=[np.nan]), batch, 1e9)
    assert unknown.e_values == pytest.approx(plain.e_values)


def test_a_batch_without_a_side_or_a_failure_teaches_nothing():
    for counts in ((3, 10, 0, 0), (0, 0, 2, 10)):
        after = more_evidence(no_evidence(1), of(*counts), 20)
        assert (after.e_values[0], after.hopeless[0], after.seen.failed.draws[0]) == (1, 1, 0)
    after = more_evidence(no_evidence(1), of(0, 1_000_000, 0, 1_000_000), 20)
    assert (after.e_values[0], after.seen.failed.draws[0]) == (1, 1_000_000)


def test_many_failures_and_many_hypotheses_at_once_are_what_they_are_alone():
    f1, f0 = np.array([3, 40_000, 0, 500]), np.array([1, 30_000, 2, 900])
    n1, n0 = np.array([100, 90_000, 50, 1000]), np.array([200, 90_000, 70, 1500])
    together = more_evidence(no_evidence(4), of(f1, n1, f0, n0), 1e4)
    alone = [more_evidence(no_evidence(1), of(*one), 1e4) for one in zip(f1, n1, f0, n0, strict=True)]
    np.testing.assert_allclose(together.e_values, [one.e_values[0] for one in alone], rtol=1e-6)
    assert together.e_values[1] == pytest.approx(1e4)
    assert np.isfinite(together.log_beliefs).all()


def test_e_bh_by_hand():
    # 4 hypotheses: the largest e needs 4/(1*alpha) = 80, the two largest 4/(2*alpha) = 40.
    assert e_q_values([100, 1, 40, 0]).tolist() == pytest.approx([4 / 100, 1, 4 / 80, 1])
    assert np.isnan(e_q_values([np.nan, 30.0])[0])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"at \(0,\): failures=3.0, draws=2.0"):
        RateBatch.of([3], [2], [0], [1])
    with pytest.raises(ValueError, match="worth"):
        no_evidence(1, worth=1.0)
    with pytest.raises(ValueError, match="expected has shape"):
        no_evidence(2, expected=[1.0])
    with pytest.raises(ValueError, match="2 hypotheses, expected 1"):
        more_evidence(no_evidence(1), of([0, 0], 1, 0, 1), 20)
    with pytest.raises(ValueError, match="negative"):
        e_q_values([-1.0])
    assert replace(of(0, 1, 0, 1), failed=Trials.of([1], [1])).failed.failures.tolist() == [1]
