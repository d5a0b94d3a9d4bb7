"""A threshold that says nothing of what was detected is called so."""

from __future__ import annotations

import pyarrow as pa
import pytest

from c2b_ray.audits.evaluate.steps.outcomes import threshold_notes


def near(**cosines):
    rows = [(method, cosine) for method, some in cosines.items() for cosine in some]
    return pa.table({"method": [m for m, _ in rows], "similarity": pa.array([c for _, c in rows], pa.float64())})


def test_a_threshold_that_no_name_reaches_is_named_with_the_nearest_of_each_method():
    (note,) = threshold_notes(near(C2B=[0.73, 0.4], B2T=[0.34]), 100, 0.9, 0.72)
    assert note.startswith("At the set threshold, cosine 0.90, no name")
    assert "the nearest has 0.73 (C2B), 0.34 (B2T)." in note


def test_a_threshold_that_one_method_reaches_is_not_to_blame():
    assert threshold_notes(near(C2B=[0.9 - 1e-13], B2T=[0.34]), 741, 0.9, 0.72) == []
    assert threshold_notes(near(), 741, 0.9, 0.72) == []  # no side has biases: it says so elsewhere


@pytest.mark.parametrize(("pairs", "said"), [(1, "1 pair of names"), (10, "10 pairs of names"), (99, "99 pairs")])
def test_a_threshold_calibrated_on_few_names_is_said_to_be(pairs, said):
    (note,) = threshold_notes(near(C2B=[0.95]), pairs, 0.9, 0.43)
    assert note.startswith("The calibrated threshold, cosine 0.43")
    assert said in note


def test_one_name_calibrates_nothing():
    assert threshold_notes(near(C2B=[0.95]), 0, 0.9, float("nan")) == []
