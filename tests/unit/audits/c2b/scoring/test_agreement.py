import math

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.scoring.findings import agreement
from c2b_ray.stats import p_value_of_limit
from c2b_ray.tables import AGREEMENT, SCORES


def scores(*cells, classifier="m"):
    """Rows of (bias class, φ, low, high)."""
    rows = [
        {
            "classifier": classifier,
            "target_class": "bus",
            "attribute": "weather",
            "bias_class": value,
            "n": 100,
            "correct": 50,
            "errors": 0,
            "phi": phi,
            "phi_low": low,
            "phi_high": high,
            "verdict": "none",
            "paper_verdict": 0,
            "repeats": 0,
            "mistaken": 0,
        }
        for value, phi, low, high in cells
    ]
    return pa.Table.from_pylist(rows, SCORES)


def test_worked_numbers():
    # difference .5 - .1 = .4; below: sqrt((.5 - .44)^2 + (.18 - .1)^2) = sqrt(.0036 + .0064) = .1
    # above: sqrt((.53 - .5)^2 + (.1 - .06)^2) = sqrt(.0009 + .0016) = .05
    found = agreement(scores(("snow", 0.1, 0.06, 0.18)), scores(("snow", 0.5, 0.44, 0.53)), 0.05, 0.05)
    assert found.schema == AGREEMENT
    (row,) = found.to_pylist()
    assert (row["phi_retrieve"], row["phi_generate"]) == (0.1, 0.5)
    assert (row["n_retrieve"], row["phi_low_generate"], row["phi_high_retrieve"]) == (100, 0.44, 0.18)
    assert (row["difference"], row["difference_low"], row["difference_high"]) == pytest.approx((0.4, 0.3, 0.45))
    assert row["p_value"] == pytest.approx(p_value_of_limit(0.4, 0.1, 0.95, 0.05))
    assert row["q_value"] == row["p_value"]
    assert row["agreement"] == "different"


def test_the_other_way_round_the_signs_turn():
    one, other = scores(("snow", 0.1, 0.06, 0.18)), scores(("snow", 0.5, 0.44, 0.53))
    (row,), (turned,) = (agreement(*pair, 0.05, 0.05).to_pylist() for pair in ((one, other), (other, one)))
    assert turned["difference"] == -row["difference"]
    assert (turned["difference_low"], turned["difference_high"]) == (-row["difference_high"], -row["difference_low"])
    assert turned["p_value"] == row["p_value"]


@pytest.mark.parametrize(
    ("generated", "verdict"),
    [
        ((0.10, 0.07, 0.13), "same"),  # .00 -+ .042, within .1 of 0
        ((0.14, 0.11, 0.17), "same"),  # .04 -+ .042: excludes not even 0
        ((0.145, 0.14, 0.15), "same"),  # .045 -+ .030 excludes 0, but .045 is less than tau
        ((0.19, 0.17, 0.21), "different"),  # .09 -+ .036
        ((0.10, 0.00, 0.20), "undetermined"),  # .00 -+ .104
        ((0.30, 0.00, 0.60), "undetermined"),  # .20 -+ .301
    ],
)
def test_same_different_or_undetermined(generated, verdict):
    found = agreement(scores(("snow", 0.1, 0.07, 0.13)), scores(("snow", *generated)), 0.05, 0.05)
    assert found["agreement"].to_pylist() == [verdict]


def test_the_false_discovery_rate_is_all_classifiers():
    # p = Phi(-1.96 * (.16 - .05)/.1) = .0156: alone it is found, beside eleven cells of no difference it is not
    sure, even = ("snow", 0.16, 0.06, 0.26), [(f"value {i}", 0.0, -0.1, 0.1) for i in range(11)]
    zero = ("snow", 0.0, 0.0, 0.0)
    alone = agreement(scores(zero), scores(sure), 0.05, 0.05)
    assert alone["agreement"].to_pylist() == ["different"]
    among = agreement(scores(zero, *even), scores(sure, *even), 0.05, 0.05)
    assert among["agreement"].to_pylist()[0] == "undetermined"
    apart = [pa.concat_tables([scores(first), scores(*even, classifier="other")]) for first in (zero, sure)]
    assert agreement(*apart, 0.05, 0.05)["agreement"].to_pylist()[0] == "undetermined"


def test_a_difference_of_tau_is_not_called_different_more_often_than_alpha():
    """The null is |difference| ≤ τ: differences of two φ with standard error .05, whose truth is τ itself."""
    random, called = np.random.default_rng(7), 0
    for _ in range(1000):
        phi = random.normal(0.05, 0.05)
        found = agreement(scores(("a", 0.0, 0.0, 0.0)), scores(("a", phi, phi - 0.098, phi + 0.098)), 0.05, 0.05)
        called += found["agreement"].to_pylist() == ["different"]
    assert called / 1000 <= 0.06  # testing for no difference at all called 0.11 of them, and 0.17 at any |φ| > τ


def test_a_cell_without_a_score_is_undetermined_and_of_one_source_alone_left_out():
    nothing = (math.nan,) * 3
    one, other = scores(("snow", 0.1, 0.0, 0.2), ("rain", *nothing)), scores(("rain", 0.1, 0.0, 0.2))
    (row,) = agreement(one, other, 0.05, 0.05).to_pylist()
    assert (row["bias_class"], row["agreement"]) == ("rain", "undetermined")
    for name in ("difference", "difference_low", "difference_high", "p_value", "q_value"):
        assert math.isnan(row[name])
    assert agreement(one, scores(), 0.05, 0.05).num_rows == 0
