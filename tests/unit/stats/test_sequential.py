"""Sequential evidence: worked capital, validity under peeking at every round, and agreement with what is known."""

import math

import numpy as np
import pytest

from c2b_ray.stats import (
    chances_to_settle,
    confidence_sequence,
    evidence_paths,
    rounds_to_settle,
    sequential_evidence,
    sequential_p_values,
    sequential_verdicts,
)
from c2b_ray.stats.sequential import STAKES, WEIGHTS, joined


def test_capital_by_hand():
    # Two cells, three rounds: contrasts of the first are 1, 0, 1; "phi <= 0.05" pays (1 + X)/1.05 on each stake.
    outcomes = [[1, 0], [1, 1], [1, 0]]
    expected = sum(w * (1 - c + c * 2 / 1.05) ** 2 * (1 - c + c / 1.05) for c, w in zip(STAKES, WEIGHTS, strict=True))
    evidence = sequential_evidence(outcomes, 0.05)
    assert evidence.above_tau[0] == pytest.approx(expected)
    assert evidence.phi.tolist() == pytest.approx([2 / 3, -2 / 3])
    # With two cells the contrasts are each other's negatives, so the claims mirror each other.
    assert evidence.below_minus_tau[1] == pytest.approx(evidence.above_tau[0])
    assert evidence.above_minus_tau[1] == pytest.approx(evidence.below_tau[0])


def test_the_order_of_rounds_does_not_matter():
    random = np.random.default_rng(0)
    outcomes = random.random((60, 4)) < 0.7
    one, other = sequential_evidence(outcomes, 0.05), sequential_evidence(random.permutation(outcomes), 0.05)
    np.testing.assert_allclose(one.above_tau, other.above_tau)
    np.testing.assert_allclose(one.below_tau, other.below_tau)


@pytest.mark.parametrize(("step", "ends"), [(None, [50]), (20, [20, 40, 50]), (25, [25, 50]), (80, [50])])
def test_a_path_is_the_evidence_after_each_step(step, ends):
    outcomes = np.random.default_rng(6).random((50, 3)) < (0.9, 0.7, 0.5)
    path = evidence_paths(outcomes, 0.05, step)
    assert len(path) == len(ends)
    for found, end in zip(path, ends, strict=True):
        expected = sequential_evidence(outcomes[:end], 0.05)
        for name in ("phi", "above_tau", "below_minus_tau", "below_tau", "above_minus_tau"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name))
    assert len(evidence_paths(np.zeros((0, 3), bool), 0.05, step)) == 1


def test_peeking_after_every_round_keeps_the_error_rate():
    # phi of the first cell is exactly tau = 0.1 (0.9 against 0.8): both claims about it are false at their boundary.
    random, alpha, runs, rounds = np.random.default_rng(1), 0.1, 100, 128
    wrong_above = wrong_below = 0
    for _ in range(runs):
        outcomes = random.random((rounds, 3)) < (0.9, 0.8, 0.8)
        looks = [sequential_evidence(outcomes[:t], 0.1) for t in range(16, rounds + 1, 16)]
        wrong_above += any(look.above_tau[0] >= 1 / alpha for look in looks)
        wrong_below += any(look.below_tau[0] >= 1 / alpha for look in looks)
    # Ville: at most 0.1 in expectation; 0.1 + 3 standard errors of 100 runs = 0.19.
    assert wrong_above / runs <= 0.19
    assert wrong_below / runs <= 0.19


def test_limits_hold_at_all_rounds_at_once_and_shrink():
    random, runs, missed = np.random.default_rng(2), 25, 0
    phi = np.array([0.3, -0.15, -0.15])
    for _ in range(runs):
        outcomes = random.random((150, 3)) < (0.9, 0.6, 0.6)
        limits = [confidence_sequence(outcomes[:t], 0.9) for t in (10, 50, 150)]
        missed += any((phi < low).any() or (phi > high).any() for low, high in limits)
    assert missed / runs <= 0.4  # three cells at 0.1 each, and 25 runs
    (low, high), (first_low, first_high) = limits[-1], limits[0]
    assert (high - low < first_high - first_low).all()
    assert (low <= sequential_evidence(outcomes, 0.05).phi).all()
    assert (sequential_evidence(outcomes, 0.05).phi <= high).all()


def test_limits_and_evidence_are_one_thing():
    outcomes = np.random.default_rng(3).random((80, 2)) < (0.95, 0.6)
    low, _ = confidence_sequence(outcomes, 0.9)
    # The lower limit is where the capital against "phi <= m" is 2/alpha = 20.
    assert sequential_evidence(outcomes, float(low[0])).above_tau[0] == pytest.approx(20, rel=1e-6)


def test_strong_biases_are_settled_early_and_no_bias_is_shown():
    random = np.random.default_rng(4)
    strong = random.random((40, 2)) < (0.95, 0.4)
    clear = random.random((1500, 2)) < (0.98, 0.98)
    few = random.random((5, 2)) < (0.9, 0.9)
    evidence = joined([sequential_evidence(o, 0.05) for o in (strong, clear, few)])
    expected = ["for", "against", "none", "none", "undetermined", "undetermined"]
    assert sequential_verdicts(evidence, 0.05, 0.05) == expected


@pytest.mark.parametrize(("right", "claim"), [((19, 12), "for"), ((17, 17), "none"), ((20, 20), "none")])
def test_rounds_to_settle_do_and_half_of_them_do_not(right, claim):
    # Twenty rounds, which go on as they are: so many of them right in either cell, in an order that pairs them evenly.
    rounds = np.array([[(7 * i) % 20 < right[0], (11 * i + 3) % 20 < right[1]] for i in range(20)])
    needed = rounds_to_settle(rounds, 0.05, 0.05)
    assert (needed > 20).all()
    many = np.tile(rounds, (math.ceil(needed.max() / 20) + 1, 1))
    settled = sequential_verdicts(sequential_evidence(many, 0.05), 0.05, 0.05)
    assert settled[0] == claim
    few = sequential_verdicts(sequential_evidence(many[: needed.max() // 2], 0.05), 0.05, 0.05)
    assert set(few) == {"undetermined"}


def test_a_finding_among_many_takes_more_rounds():
    rounds = np.array([[1, (i % 20) < 15] for i in range(20)])
    alone, among = rounds_to_settle(rounds, 0.05, 0.05), rounds_to_settle(rounds, 0.05, 0.05, step=0.0005)
    assert (among > alone).all()
    assert rounds_to_settle(np.zeros((0, 2), bool), 0.05).tolist() == [-1, -1]
    even = np.array([[i != 0, 1] for i in range(20)])  # |phi| is tau: nothing ever tells
    assert rounds_to_settle(even, 0.05).tolist() == [-1, -1]


def test_nothing_drawn_is_undetermined():
    evidence = sequential_evidence(np.zeros((0, 3), bool), 0.05)
    assert np.isnan(evidence.phi).all()
    assert evidence.above_tau.tolist() == [1.0] * 3
    assert sequential_verdicts(evidence, 0.05, 0.05) == ["undetermined"] * 3
    low, high = confidence_sequence(np.zeros((0, 3), bool))
    assert (low.tolist(), high.tolist()) == ([-1.0] * 3, [1.0] * 3)
    lone = sequential_evidence(np.ones((9, 1), bool), 0.05)
    assert math.isnan(lone.phi[0])


@pytest.mark.parametrize(
    ("outcomes", "tau", "words"),
    [([1, 0], 0.05, "shape"), ([[0.5, 1]], 0.05, "right"), ([[1, 0]], 1.0, "tau")],
)
def test_bad_input_is_named(outcomes, tau, words):
    with pytest.raises(ValueError, match=words):
        sequential_evidence(outcomes, tau)


def test_without_a_margin_either_side_counts_and_the_level_holds():
    # equal accuracies, looked at after every round; by the larger side alone it was .066
    rng = np.random.default_rng(0)
    outcomes = rng.random((400, 150, 2)) < 0.5
    false = [min(sequential_p_values(now)[0] for now in evidence_paths(run, 0.0, 1)) <= 0.05 for run in outcomes]
    assert np.mean(false) <= 0.05
    one = sequential_evidence([[True, False]] * 30, 0.0)
    assert sequential_p_values(one)[0] == pytest.approx(2 / (one.above_tau[0] + one.below_minus_tau[0]))
    margin = sequential_evidence([[True, False]] * 30, 0.05)
    assert sequential_p_values(margin)[0] == pytest.approx(1 / margin.above_tau[0])


def test_chances_to_settle_agree_with_simulated_futures():
    random, rounds, n = np.random.default_rng(5), 200, 60
    accuracy = np.array([[0.95, 0.72], [0.95, 0.86], [0.97, 0.97]])  # biased, between, hardly any difference
    predicted, happened = np.zeros((3, 2)), np.zeros((3, 2))
    for row, truth in enumerate(accuracy):
        for _ in range(150):
            outcomes = random.random((rounds, 2)) < truth
            predicted[row] += [side[0] for side in chances_to_settle(outcomes[:n], rounds, 0.05)]
            now = sequential_evidence(outcomes, 0.05)
            bias = max(now.above_tau[0], now.below_minus_tau[0]) >= 20
            happened[row] += bias, min(now.below_tau[0], now.above_minus_tau[0]) >= 20
    assert np.abs(predicted - happened).max() / 150 < 0.25  # a forecast that steers images; no verdict rests on it
    assert chances_to_settle(outcomes, rounds, 0.05)[0].tolist() == [0, 0]  # no further rounds
    assert chances_to_settle(outcomes[:0], rounds, 0.05)[1].tolist() == [1, 1]  # nothing known


def test_where_captions_differ_a_forecast_counts_what_no_number_of_rounds_removes():
    outcomes = np.random.default_rng(5).random((400, 2)) < [0.97, 0.97]
    alike, differ = (chances_to_settle(outcomes, 4_000, 0.05, between=[spread] * 2) for spread in (0.0, 0.03))
    assert alike[1].min() > 0.9
    assert differ[1].max() == 0  # an interval of ±1.96 * .03 does not lie within ±.05
    worse = np.random.default_rng(5).random((400, 2)) < [0.97, 0.87]
    found = [chances_to_settle(worse, 4_000, 0.05, between=spread)[0].min() for spread in (0.0, 0.05)]
    assert found[0] > 0.9
    assert found[1] < 0.5
