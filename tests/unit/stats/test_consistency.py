import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from c2b_ray.stats import error_consistency


@pytest.mark.parametrize(
    ("a", "b", "kappa"),
    [
        ("1100", "1010", 0),  # both .5: c_exp = .5, c_obs = 2/4
        ("1110", "1101", -1 / 3),  # both .75: c_exp = .625, c_obs = .5: -.125/.375
        ("1100", "0011", -1),  # c_exp = .5, c_obs = 0
        ("1111", "1111", 1),  # 0/0 by the formula
        ("0000", "1111", 0),  # c_exp = c_obs = 0
    ],
)
def test_worked_examples(a, b, kappa):
    assert error_consistency([c == "1" for c in a], [int(c) for c in b]) == pytest.approx(kappa, abs=1e-15)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_it_is_cohens_kappa(pairs):
    a, b = (np.array(column) for column in zip(*pairs, strict=True))
    ours = error_consistency(a, b)
    assert ours == pytest.approx(error_consistency(b, a), abs=1e-15)
    assert ours == 1 if (a == b).all() else ours == pytest.approx(cohen_kappa_score(a, b, labels=[0, 1]), abs=1e-12)


def test_other_inputs():
    assert np.isnan(error_consistency([], []))
    for a, b in (([1, 0], [1]), ([1, 2], [1, 0]), ([np.nan, 1.0], [1, 0]), ([[1]], [[1]])):
        with pytest.raises(ValueError, match=r"shape|0 or 1"):
            error_consistency(a, b)
