import numpy as np
import pytest

from c2b_ray import stats
from c2b_ray.stats.sample_size import TwoStages, Variation, least_found, two_stage_power

TAU, LEAST, LEVEL = 0.05, 0.08, 0.01
SIZES = (100, 300)
DESIGN = TwoStages(SIZES, LEAST, TAU, LEVEL)


@pytest.mark.parametrize(
    ("better", "worse", "spread", "captions"),
    [
        (0.8, 0.6, 0.0, 5),
        (0.85, 0.7, 0.0, 5),
        (1.0, 0.87, 0.0, 5),
        (0.3, 0.47, 0.0, 5),
        (0.8, 0.6, 0.05, 5),
        (0.85, 0.65, 0.05, 5),
        (0.8, 0.5, 0.1, 2),
        (0.7, 0.4, 0.1, 10),
    ],
)
def test_power_is_that_of_simulated_audits(better, worse, spread, captions):
    """Two cells, one of them worse: both stages are drawn from the same captions, and tested as an audit tests them
    that knows how far captions differ."""
    random, runs = np.random.default_rng(100_000), 4_000
    rates = np.array([better, worse])
    chance = np.clip(rates[:, None] + random.normal(0, spread, (runs, 2, captions)), 0, 1)
    right = [random.binomial(n // captions, chance).sum(axis=2) for n in SIZES]
    first = right[0] / SIZES[0]
    selected = np.abs(first[:, 0] - first[:, 1]) >= LEAST
    of_answer = rates * (1 - rates)
    worth = 1 / (1 / SIZES[1] + spread**2 / captions / np.maximum(of_answer, 1e-9))
    p = stats.contrast_test(right[1] / SIZES[1], np.broadcast_to(worth, (runs, 2)), TAU).p_value[:, 1]
    found = selected & (p <= LEVEL)
    cell = Variation(better, of_answer[0], captions=2 * spread**2 / captions / of_answer.sum())
    assert two_stage_power(better - worse, cell, DESIGN) == pytest.approx(found.mean(), abs=0.04)


def test_captions_that_differ_raise_the_least_score_that_is_found_however_many_images_there_are():
    cell = Variation([0.95, 0.95, 0.95], 0.05, captions=[0.0, 0.01, 0.04])
    found = least_found(cell, DESIGN)
    assert (np.diff(found) > 0.01).all()
    many = least_found(cell, TwoStages((100_000, 300_000), LEAST, TAU, LEVEL))
    assert many[0] == pytest.approx(LEAST, abs=0.01)
    assert many[2] > many[1] > many[0] + 0.02


def test_the_least_score_that_is_found_has_the_power_asked_for():
    cell = Variation([1.0, 0.9, 0.6, np.nan], [0.0, 0.02, 0.2, 0.1])
    found = least_found(cell, DESIGN, 0.8)
    assert np.isnan(found[3])
    known = Variation(cell.rate[:3], cell.others[:3])
    assert two_stage_power(found[:3], known, DESIGN) == pytest.approx(0.8, abs=1e-6)
    assert (np.diff(found[:3]) >= 0).all()
    assert found[0] > LEAST
    assert np.isnan(least_found(Variation(0.9, 0.1, inflation=500.0), DESIGN))
    with pytest.raises(ValueError, match="power"):
        least_found(cell, DESIGN, 1.0)
    with pytest.raises(ValueError, match="level"):
        TwoStages(SIZES, LEAST, TAU, 0.0)
