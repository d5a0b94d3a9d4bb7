"""The least rates of causes that a search would have found, against simulated tests of the same rates."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.audits.failures.discovery.power import POWERS, Searched, least_rates
from c2b_ray.audits.failures.discovery.value_sets import excess
from c2b_ray.stats.rate_evidence import RateBatch, more_evidence, no_evidence

LABEL = Searched(1000, 1000, usual=0.02, penalty=6.0)
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
    larger = Searched(4000, 4000, usual=0.02, penalty=6.0)
    few, many = least_rates([LABEL, larger], 0.1, **RUN)
    assert (few > many).all()
    assert few[0] < few[1]
    assert many[0] < many[1]
    assert (least_rates([LABEL], 0.1, **{**RUN, "hypotheses": 900})[0] > few).all()
    assert (least_rates([LABEL], 0.02, **RUN)[0] > few).all()


def test_where_too_few_images_show_a_cause_no_rate_is_found():
    assert np.isnan(least_rates([Searched(60, 60, usual=0.1, penalty=6.0)], 0.02, **RUN)).all()
    assert least_rates([], 0.1, **RUN).shape == (0, len(POWERS))
