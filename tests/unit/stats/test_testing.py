import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, norm
from statsmodels.stats.multitest import multipletests

from c2b_ray.stats import (
    benjamini_hochberg,
    bias_score_interval,
    bias_score_p_values,
    equivalence_p_values,
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
