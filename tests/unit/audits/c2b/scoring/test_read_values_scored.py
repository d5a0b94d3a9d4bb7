"""Scores of values that a model read: corrected where it was calibrated on all of them, on its word otherwise."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.scoring.estimates import ReadValues
from c2b_ray.audits.c2b.scoring.judge import Estimate
from c2b_ray.stats.read_values import read_accuracies
from c2b_ray.steps.cells import CellGroup, GroupName
from c2b_ray.tables import CALIBRATION, PROPOSALS

NAME = GroupName("bus", "weather")
CORRECT, TOTAL = np.array([80, 30]), np.array([100, 60])


def questions(*values: str) -> pa.Table:
    row = {"proposal_id": "p", "target_class": "bus", "attribute": "weather", "bias_classes": list(values)}
    return pa.Table.from_pylist([{**row, "source": "user", "merged_from": [], "merged": []}], PROPOSALS)


def calibration(counts: dict[tuple[str, str], float]) -> pa.Table:
    rows = [
        {"attribute": "weather", "value": value, "answer": answer, "images": images, "source": "table"}
        for (value, answer), images in counts.items()
    ]
    return pa.Table.from_pylist(rows, CALIBRATION)


def corrected(read: ReadValues, name: GroupName = NAME) -> Estimate:
    estimate = Estimate(
        classifier="c",
        target_class=name.target_class,
        attribute=name.attribute,
        values=("clear", "fog"),
        accuracy=CORRECT / TOTAL,
        effective=TOTAL.astype(float),
        basis="labels",
        doubts=[None, None],
        shared=np.zeros(2),
    )
    read.correct(estimate, CellGroup(name, ("clear", "fog"), slice(0, 2)), CORRECT, TOTAL, 0.95)
    return estimate


KNOWN = {("clear", "clear"): 90.0, ("clear", "fog"): 10.0, ("fog", "clear"): 20.0, ("fog", "fog"): 80.0}


def test_a_calibrated_reader_is_corrected():
    found = corrected(ReadValues(questions("clear", "fog"), calibration(KNOWN)))
    expected = read_accuracies(CORRECT, TOTAL - CORRECT, [[90, 10], [20, 80]])
    assert found.basis == "calibrated"
    assert found.doubts == [None, None]
    assert found.accuracy == pytest.approx(expected.accuracy)
    assert found.effective == pytest.approx(expected.effective)
    assert found.accuracy[1] < 0.5, "images that only look foggy made it look better"


def test_a_value_that_is_asked_about_and_never_read_still_counts():
    """The calibration says that snow is read as fog: some of the foggy images show snow."""
    more = {**KNOWN, ("snow", "fog"): 60.0, ("snow", "snow"): 40.0}
    found = corrected(ReadValues(questions("clear", "fog", "snow"), calibration(more)))
    assert found.basis == "calibrated"
    assert found.accuracy.shape == (2,)


def test_without_a_calibration_of_all_values_it_is_the_readers_word():
    for known in ({}, {pair: images for pair, images in KNOWN.items() if pair[0] == "clear"}):
        found = corrected(ReadValues(questions("clear", "fog"), calibration(known)))
        assert found.basis == "verifier"
        assert found.accuracy == pytest.approx(CORRECT / TOTAL), "and nothing is corrected"


def test_a_reader_that_guesses_leaves_the_value_in_doubt():
    guess = dict.fromkeys(KNOWN, 50.0)
    found = corrected(ReadValues(questions("clear", "fog"), calibration(guess)))
    assert all(doubt is not None and "cannot tell" in doubt for doubt in found.doubts)


def test_attributes_that_nobody_read_keep_their_labels():
    found = corrected(ReadValues(questions("clear", "fog"), calibration(KNOWN)), GroupName("bus", "brightness"))
    assert found.basis == "labels"
    assert found.accuracy == pytest.approx(CORRECT / TOTAL)
