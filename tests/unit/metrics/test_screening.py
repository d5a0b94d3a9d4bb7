import numpy as np
import pytest

from c2b_ray import metrics
from c2b_ray.metrics.screening import least_found, two_stage_power

TAU, LEAST, LEVEL = 0.05, 0.08, 0.01


@pytest.mark.parametrize(("better", "worse"), [(0.8, 0.6), (0.85, 0.7), (1.0, 0.87)])
def test_power_is_that_of_simulated_audits(better, worse):
    """Two cells, one of them worse: both stages are drawn and tested as an audit tests them."""
    random, runs, sizes = np.random.default_rng(100_000), 4_000, (100, 300)
    right = [random.binomial(n, (better, worse), (runs, 2)) for n in sizes]
    first = right[0] / sizes[0]
    selected = np.abs(first[:, 0] - first[:, 1]) >= LEAST
    p = metrics.bias_score_p_values(right[1], np.full((runs, 2), sizes[1]), TAU)[:, 0]
    found = selected & (p <= LEVEL)
    rates = np.array([better, worse])
    deviation = np.sqrt((rates * (1 - rates)).sum() / sizes[0])
    assert two_stage_power(better - worse, deviation, sizes, LEAST, TAU, LEVEL) == pytest.approx(found.mean(), abs=0.04)


def test_the_least_score_that_is_found_has_the_power_asked_for():
    deviation = np.array([0.0, 0.02, 0.06, np.nan])
    found = least_found(deviation, (100, 300), LEAST, TAU, LEVEL, 0.8)
    assert np.isnan(found[3])
    assert two_stage_power(found[:3], deviation[:3], (100, 300), LEAST, TAU, LEVEL) == pytest.approx(0.8, abs=1e-6)
    assert (np.diff(found[:3]) >= 0).all()
    assert found[0] > LEAST
    assert np.isnan(least_found(5.0, (100, 300), LEAST, TAU, LEVEL))
    with pytest.raises(ValueError, match="power"):
        least_found(0.1, (100, 300), LEAST, TAU, LEVEL, 1.0)
