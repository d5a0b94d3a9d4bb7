"""Outcomes of two evaluations: which differ, of how many classes, and what has no bias to be hit."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.audits.evaluate.comparison import Levels, compared_outcomes
from c2b_ray.tables.evaluate import EVALUATION_COMPARISON

LEVELS = Levels(0.05, 0)
OF = {"method": "C2B", "rule": "tested", "threshold_kind": "set", "direction": "truth_to_detected"}


def outcomes(words, classes, **more):
    return [
        {**OF, **more, "classifier": "m", "target_class": f"c{number % classes}", "outcome": word}
        for number, word in enumerate(words)
    ]


def told(a, b, pairs=(("C2B", "C2B"),)):
    table = compared_outcomes(a, b, pairs, LEVELS)
    assert table.schema.equals(EVALUATION_COMPARISON)
    return table.to_pylist()


def test_what_hits_more_is_better_and_the_same_is_not_told_apart():
    worse, better = outcomes(["miss"] * 40, 10), outcomes(["hit"] * 36 + ["miss"] * 4, 10)
    (row,) = told(worse, better)
    assert (row["change"], row["difference"]) == ("better", pytest.approx(0.9))
    assert (row["hit_minus_false_a"], row["hit_minus_false_b"]) == (0, pytest.approx(0.9))
    (back,) = told(better, worse)
    assert (back["change"], back["difference"]) == ("worse", pytest.approx(-0.9))
    assert told(better, better)[0]["p_value"] == 1


def test_two_classes_that_lean_one_way_show_nothing():
    """Every draw of both leans so too: by the draws alone p would be 0."""
    (row,) = told(outcomes(["miss"] * 20, 2), outcomes(["hit"] * 20, 2))
    assert row["p_value"] == pytest.approx(2 * (2 / 3) ** 2)
    assert row["change"] == "undetermined"


def test_other_methods_are_compared_under_both_names_and_no_bias_is_not_known():
    writer = outcomes(["hit"] * 20, 10, method="writer")
    (row,) = told(outcomes(["false_hit"] * 20, 10), writer, [("C2B", "writer")])
    assert (row["method_a"], row["method_b"], row["difference"]) == ("C2B", "writer", 2)
    (row,) = told(outcomes(["hit"] * 3, 1), [])
    assert (row["hit_minus_false_b"], row["p_value"], row["change"]) == (None, None, "undetermined")


def test_equal_methods_are_seldom_told_apart():
    random, called = np.random.default_rng(0), []
    words = np.array(["hit", "miss", "false_hit"])
    for _ in range(60):
        sides = [outcomes(random.choice(words, 60, p=[0.5, 0.4, 0.1]), 12) for _ in range(2)]
        called.append(told(*sides)[0]["change"] != "undetermined")
    assert np.mean(called) <= 0.1
