import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy

from c2b_ray.stats import max_skew, ndkl

WORKED = [0, 0, 0, 1, 1, 0, 1, 1, 0, 1]


def test_max_skew_of_the_worked_example():
    # group 0 has 3 of the first 4 and 5 of all 10: ln((3/4)/(1/2)) = ln 1.5
    assert max_skew(WORKED, 4) == pytest.approx(0.4054651081, abs=1e-10)
    assert max_skew(np.array(WORKED), 4) == max_skew(WORKED, 4)
    assert max_skew(WORKED, 10) == 0


def test_an_absent_group_cannot_make_the_maximum():
    # 'c' is rare (ideal .01) and absent from the top 2: the usual code gives it 1/2 and finds ln 50; right is ln(1/.9)
    assert max_skew(["a", "a", "b", "a"], 2, {"a": 0.9, "b": 0.09, "c": 0.01}) == pytest.approx(np.log(1 / 0.9))


def test_ideal_shares_of_ones_own():
    # f = (1/2, 1/2) against (.25, .75): ln 2
    assert max_skew(["a", "b"], 2, {"a": 0.25, "b": 0.75}) == pytest.approx(np.log(2))
    assert max_skew(["a", "b"], 1, {"a": 0.0, "b": 1.0}) == np.inf
    assert np.isnan(max_skew([], 4))
    assert np.isnan(ndkl([]))


@pytest.mark.parametrize(
    ("groups", "k", "ideal", "said"),
    [
        (["a"], 2, None, "k = 2"),
        (["a"], 0, None, "k = 0"),
        (["a", None], 1, None, "rank 1 has no group"),
        ([0.0, float("nan")], 1, None, "rank 1 has no group"),
        (["a", "b"], 1, {"a": 1.0}, "'b' has no ideal share"),
        (["a"], 1, {"a": 0.4, "b": 0.5}, "sum to 1"),
        (["a"], 1, {"a": 1.5, "b": -0.5}, "sum to 1"),
    ],
)
def test_what_has_no_skew_is_refused(groups, k, ideal, said):
    with pytest.raises(ValueError, match=said):
        max_skew(groups, k, ideal)


def test_ndkl_by_hand():
    # ranking a a b, shares 2/3 and 1/3; prefixes (1, 0), (1, 0), (2/3, 1/3): KL ln 1.5, ln 1.5, 0
    # discounts 1/log2(2) = 1, 1/log2(3) = .63093, 1/2: ln 1.5 * 1.63093/2.13093 = .310328
    discounts = 1 / np.log2([2, 3, 4])
    assert ndkl(["a", "a", "b"]) == pytest.approx(np.log(1.5) * discounts[:2].sum() / discounts.sum(), abs=1e-15)
    assert ndkl(["a"] * 5) == 0
    assert ndkl(["a", "b"], {"a": 1.0, "b": 0.0}) == np.inf


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_skews_agree_with_a_plain_reading_of_the_formulas(groups):
    names = sorted(set(groups))
    share = np.array([groups.count(name) for name in names]) / len(groups)
    total = 0.0
    for i in range(1, len(groups) + 1):
        top = np.array([groups[:i].count(name) for name in names]) / i
        total += entropy(top, share) / np.log2(i + 1)
        with np.errstate(divide="ignore"):
            assert max_skew(groups, i) == pytest.approx(np.log(top / share).max(), abs=1e-12)
        assert max_skew(groups, i) >= -1e-12
    assert ndkl(groups) == pytest.approx(total / sum(1 / np.log2(i + 1) for i in range(1, len(groups) + 1)), abs=1e-12)
    renamed = [{"a": 7, "b": 1, "c": 9, "d": 0}[group] for group in groups]
    assert ndkl(renamed) == pytest.approx(ndkl(groups), abs=1e-15)
