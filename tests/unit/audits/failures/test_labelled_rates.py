"""Rates of findings on labelled images are from images that did not decide that they are findings."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.value_sets import Answered
from c2b_ray.audits.failures.labelled_claims import Answers, Parts, claims_of, hypotheses

LABEL, RAISED, OTHERS, IMAGES = "bus", 0.15, 0.03, 900
CONFIG = FailuresConfig.model_validate(
    {"labels": [LABEL], "classifier": "fake:", "images": {"labelled": {"table": "labels.csv"}}, "rule": "top1"}
)
SITES = np.array(list("ABCDEF"), object)


def findings(random):
    """A table in which a classifier fails more often at three of six sites, by so little that chance decides."""
    labels, sites = np.full(IMAGES, LABEL, object), random.choice(SITES, IMAGES)
    failed = random.random(IMAGES) < np.where(np.isin(sites, SITES[:3]), RAISED, OTHERS)
    parts = random.choice(np.array(["search", "test", "measure"], object), IMAGES)
    known = np.ones(IMAGES, bool)
    predicted = ["boat" if fails else LABEL for fails in failed]
    answers = Answers({}, {"model": known}, {"model": failed}, {"model": predicted})
    answered = Answered(labels, {"site": sites}, parts, np.arange(IMAGES))
    claims = claims_of(answered, answers, CONFIG).claims
    rows = hypotheses(CONFIG, "table", Parts(answered, answers), claims).to_pylist()
    return [row for row in rows if row["verdict"] == "failure"]


@pytest.mark.long
def test_rates_of_findings_are_not_too_high():
    """Measured on the images of the test they were .24 on average, and .74 of the intervals held the truth."""
    random = np.random.default_rng(0)
    rows = [row for _ in range(150) for row in findings(random) if row["caption"][-2] in "ABC"]
    assert len(rows) > 30
    assert np.mean([row["rate"] for row in rows]) == pytest.approx(RAISED, abs=0.025)
    assert np.mean([row["rate_low"] <= RAISED <= row["rate_high"] for row in rows]) > 0.9
