import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, false_discovery_control, norm
from statsmodels.stats.multitest import multipletests

from c2b_ray.metrics import (
    MOST_IMAGES,
    benjamini_hochberg,
    bias_score_interval,
    bias_score_p_values,
    equivalence_p_values,
    images_to_settle,
    selected_confidence,
    verdicts,
)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_benjamini_hochberg_is_scipys_and_statsmodels(p_values):
    q = benjamini_hochberg(p_values)
    np.testing.assert_allclose(q, false_discovery_control(p_values), atol=1e-15)
    np.testing.assert_allclose(q, multipletests(p_values, method="fdr_bh")[1], atol=1e-15)


def test_tests_that_were_not_made_do_not_count():
    # of three: .01 * 3/1, .02 * 3/2, .5 * 3/3
    q = benjamini_hochberg([[np.nan, 0.02, 0.01], [np.nan, np.nan, 0.5]])
    np.testing.assert_allclose(q, [[np.nan, 0.03, 0.03], [np.nan, np.nan, 0.5]])
    assert benjamini_hochberg([]).size == 0
    assert np.isnan(benjamini_hochberg([np.nan])).all()
    with pytest.raises(ValueError, match=r"\[1\] = 1.5"):
        benjamini_hochberg([0.1, 1.5])


def test_every_verdict_and_what_leads_to_it():
    nan = float("nan")
    cases = [
        # phi, q, none_q
        (0.20, 0.01, 1.00, "for"),
        (-0.20, 0.01, 1.00, "against"),
        (0.00, 1.00, 0.05, "none"),
        (0.00, 1.00, 0.06, "undetermined"),
        (0.20, 0.06, 1.00, "undetermined"),  # beyond tau, but not after adjusting
        (0.05, 0.01, 1.00, "undetermined"),  # |phi| = tau is not beyond
        (nan, nan, nan, "undetermined"),
        (nan, 0.01, 0.01, "undetermined"),
        (0.20, nan, 0.01, "undetermined"),
        (0.00, nan, 0.04, "none"),
        (0.00, 1.00, nan, "undetermined"),
    ]
    *columns, expected = zip(*cases, strict=True)
    assert verdicts(*columns, tau=0.05, alpha=0.05) == list(expected)
    assert verdicts([], [], [], 0.05, 0.05) == []
    for wrong in ({"tau": -1, "alpha": 0.05}, {"tau": 0.05, "alpha": 5}):
        with pytest.raises(ValueError, match=r"tau|alpha"):
            verdicts(*columns, **wrong)
    with pytest.raises(ValueError, match="shape"):
        verdicts([0.1], [0.1], [0.1, 0.2], 0.05, 0.05)


def settled(n: int, accuracy: np.ndarray, tau: float) -> float:
    """Exact chance that n images a cell settle the first of two cells at these true accuracies."""
    weights = np.outer(*(binom.pmf(np.arange(n + 1), n, a) for a in accuracy))
    outcomes = np.argwhere(weights > 1e-6)
    totals = np.full(outcomes.shape, n)
    found = bias_score_p_values(outcomes, totals, tau)[:, 0] <= 0.05
    none = equivalence_p_values(outcomes, totals, tau)[:, 0] <= 0.05
    return float(weights[tuple(outcomes[none | found].T)].sum())


@pytest.mark.parametrize(
    ("correct", "tau"), [((18, 14), 0.0), ((18, 12), 0.05), ((14, 18), 0.05), ((16, 16), 0.2), ((17, 16), 0.2)]
)
def test_that_many_images_settle_a_cell_about_as_often_as_promised(correct, tau):
    # 120 images were seen, so that smoothing hardly moves the accuracies
    counts, totals = np.array(correct) * 6, np.array([120, 120])
    n = images_to_settle(counts, totals, tau)[0]
    assert 0.75 < settled(n, counts / totals, tau) < 0.9
    assert settled(n // 2, counts / totals, tau) < 0.65


def test_a_gap_needs_the_textbooks_sample_size():
    # .7 against .5, tau 0: V = .7*.3 + .5*.5 = .46, n = .46 * ((1.959964 + .841621)/.2)^2 = 90.3 (smoothing is slight)
    assert images_to_settle([700_000, 500_000], [10**6, 10**6], 0.0).tolist() == [91, 91]
    # .7, .5, .5, tau 0: phi = .2, -.1, -.1 and V = .21 + (.25 + .25)/4 = .335, .25 + (.21 + .25)/4 = .365:
    # .335 * (2.801585/.2)^2 = 65.7 and .365 * (2.801585/.1)^2 = 286.5
    assert images_to_settle([700_000, 500_000, 500_000], [10**6] * 3, 0.0).tolist() == [66, 287, 287]
    # .7 against .5, tau .05: the far end of the null counts for nothing, n = .46 * ((1.644854 + .841621)/.15)^2 = 126.4
    assert images_to_settle([700_000, 500_000], [10**6, 10**6], 0.05).tolist() == [127, 127]
    # both .5, tau .1: two one-sided tests share the risk, V = .5, n = .5 * ((1.644854 + 1.281552)/.1)^2 = 428.2
    assert images_to_settle([500_000, 500_000], [10**6, 10**6], 0.1).tolist() == [429, 429]


def test_certainty_is_not_promised_after_one_image():
    assert images_to_settle([20, 20], [20, 20], 0.05)[0] > 100
    assert (images_to_settle([1, 0], [1, 1], 0.05) > 1).all()


def test_what_no_number_of_images_settles_is_minus_one():
    # phi = tau (in floats 4e-17 above it), phi = tau = 0, an empty cell, one cell alone, a gap of 1e-6 beyond tau = 0
    assert images_to_settle([16, 15], [20, 20], 0.05).tolist() == [-1, -1]
    assert images_to_settle([5, 5], [20, 20], 0.0).tolist() == [-1, -1]
    assert images_to_settle([16, 0, 5], [20, 0, 20], 0.05)[1] == -1
    assert images_to_settle([16], [20], 0.05).tolist() == [-1]
    assert images_to_settle([500_001, 500_000], [10**6, 10**6], 0.0).tolist() == [-1, -1]
    assert 0 < images_to_settle([5_010, 5_000], [10**4, 10**4], 0.0)[0] <= MOST_IMAGES
    assert images_to_settle([], [], 0.05).size == 0
    with pytest.raises(ValueError, match="power"):
        images_to_settle([1, 2], [3, 3], 0.05, power=1.0)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 30), min_size=2, max_size=5), st.sampled_from([0.0, 0.05, 0.3]))
def test_settling_follows_its_cells_and_wants_more_for_more_power(correct, tau):
    counts, totals = np.array(correct), np.full(len(correct), 30)
    needed, surer = images_to_settle(counts, totals, tau), images_to_settle(counts, totals, tau, power=0.95)
    np.testing.assert_array_equal(images_to_settle(counts[::-1], totals, tau), needed[::-1])
    both = (needed > 0) & (surer > 0)
    assert (surer[both] >= needed[both]).all()
    assert ((needed == -1) | (needed >= 1)).all()


def test_verdict_and_interval_agree_on_a_single_test():
    correct, total = [44, 31, 44], [50, 50, 50]
    low, high = bias_score_interval(correct, total, 0.9)
    p, none = bias_score_p_values(correct, total, 0.05), equivalence_p_values(correct, total, 0.05)
    phi = np.array([0.13, -0.26, 0.13])  # .88 - (.62 + .88)/2; .62 - .88
    assert verdicts(phi, p, none, 0.05, 0.05) == ["undetermined", "against", "undetermined"]
    assert low[0] < 0.05 < p[0]
    assert high[1] < -0.05
    assert p[1] < 0.05


def test_intervals_of_the_selected_hold_the_truth_where_plain_ones_do_not():
    # 4 of 40 effects are .4, the rest 0; those beyond 2 deviations are selected
    rng = np.random.default_rng(4)
    truth = np.where(np.arange(40) < 4, 0.4, 0.0)
    misses = {"plain": [], "selected": []}
    for estimate in truth + 0.15 * rng.standard_normal((1000, 40)):
        found = benjamini_hochberg(2 * norm.sf(np.abs(estimate) / 0.15)) <= 0.2
        if not found.any():
            continue
        for name, confidence in (("plain", 0.8), ("selected", selected_confidence(int(found.sum()), 40, 0.2))):
            missed = np.abs(estimate - truth)[found] > norm.ppf((1 + confidence) / 2) * 0.15
            misses[name].append(missed.mean())
    assert np.sum(misses["plain"]) / 1000 > 0.22
    assert np.sum(misses["selected"]) / 1000 < 0.2
    assert selected_confidence(0, 40, 0.2) == 1 - 0.2 / 40
    assert selected_confidence(0, 0, 0.05) == 0.95
    with pytest.raises(ValueError, match="selected"):
        selected_confidence(3, 2, 0.05)


@pytest.mark.parametrize("alpha", [0.8, 0.9])
def test_an_error_rate_that_leaves_nothing_to_gain_is_no_division_of_nothing_by_nothing(alpha):
    # z of alpha and z of power cancel, where no number of images brings the estimate within tau.
    assert images_to_settle([9, 3], [10, 10], 0.05, alpha).min() >= 1
