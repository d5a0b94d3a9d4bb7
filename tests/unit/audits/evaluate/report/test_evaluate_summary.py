"""What the terminal says of an evaluation."""

from __future__ import annotations

import pytest

from c2b_ray.audits.evaluate.report.comparison import of_biased


@pytest.mark.parametrize(
    ("agreement", "said"),
    [
        (float("nan"), "of 32 possible biases neither finds any"),
        (None, "of 32 possible biases neither finds any"),
        (0.2, "of the biases that either finds +0.20"),
    ],
)
def test_two_sides_that_find_nothing_agree_in_full_which_says_nothing(agreement, said):
    assert of_biased({"biases": 32, "agreement_of_biased": agreement}) == said
