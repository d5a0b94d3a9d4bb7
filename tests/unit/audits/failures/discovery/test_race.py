"""Who is drawn next: failures are shown with few draws, hopeless captions stop, and the budget holds."""

import numpy as np
import pytest

from c2b_ray.audits.failures.discovery.race import Race, RaceTerms, measure_draws, next_draws


def run(race, rates, baseline, budget, seed=0):
    """Draws until the race ends: (race, draws of captions, of baselines, calls)."""
    random = np.random.default_rng(seed)
    calls, own, base = 0, np.zeros(len(rates)), np.zeros(len(baseline))
    while (draws := next_draws(race, int(budget - own.sum() - base.sum()))).total:
        calls += 1
        own, base = own + draws.captions, base + draws.baselines
        failed, at_baseline = random.binomial(draws.captions, rates), random.binomial(draws.baselines, baseline)
        race = race.after(
            failed[race.caption], draws.captions[race.caption], at_baseline[race.label], draws.baselines[race.label]
        )
    return race, own, base, calls


def test_failures_are_shown_the_others_stop_and_the_budget_holds():
    rates, baseline = [0.2, 0.01, 0.01, 0.003], [0.01, 0.003]
    race, own, base, calls = run(Race.start([0, 1, 2, 3], [0, 0, 0, 1]), rates, baseline, 60_000)
    assert race.verdicts[0] == "failure"
    assert (race.verdicts[1:] == "hopeless").sum() >= 2
    assert own.sum() + base.sum() <= 60_000
    assert own[0] < 500
    assert calls <= 40
    measured = measure_draws(race, 10_000)
    assert 60 <= measured.captions[0] <= 200
    assert measured.captions[1:].tolist() == [0, 0, 0]
    assert measured.baselines[1] == 0
    whole, cut = measure_draws(race, 10**9), measure_draws(race, 10**9, 500)
    assert (whole.total > 500, 490 <= cut.total <= 500) == (True, True)
    assert cut.captions[0] == min(whole.captions[0], cut.baselines[0])  # the largest are cut, to one size


def test_draws_go_where_a_failure_is_near():
    # One in twenty captions fails at 1e-3, none else ever does, and the budget is too small for all.
    rates = [1e-3] + [1e-6] * 19
    race, own, _, _ = run(Race.start(range(20), [0] * 20), rates, [1e-6], 400_000)
    assert race.verdicts[0] == "failure"
    assert (race.verdicts[1:] != "failure").all()
    assert own[0] < 40_000


def test_hypotheses_of_one_caption_share_its_draws():
    race = Race.start([0, 0], [0, 0])
    draws = next_draws(race, 10_000)
    assert (len(draws.captions), len(draws.baselines)) == (1, 1)
    race = race.after([30, 0], [64, 64], [0, 0], [80, 80])
    assert race.verdicts.tolist() == ["failure", "open"]
    shown = race.evidence.e_values[0]
    race = race.after([0, 9], [64, 64], [9, 0], [80, 80])
    assert race.evidence.e_values[0] == shown  # decided: later draws are not counted
    assert race.evidence.seen.failed.draws.tolist() == [64, 128]


def test_replaying_the_batches_gives_the_same_race():
    random = np.random.default_rng(3)
    batches = [(random.binomial(50, 0.1, 3), [50] * 3, random.binomial(70, 0.05, 3), [70] * 3) for _ in range(6)]
    one, other = Race.start([0, 1, 2], [0, 0, 1]), Race.start([0, 1, 2], [0, 0, 1])
    for batch in batches:
        one, other = one.after(*batch), other.after(*batch)
        assert next_draws(one, 5000).captions.tolist() == next_draws(other, 5000).captions.tolist()
    assert one.evidence.e_values.tolist() == other.evidence.e_values.tolist()


def test_nothing_to_draw():
    assert next_draws(Race.start([], []), 1000).total == 0
    assert next_draws(Race.start([0], [0]), 2).total == 0
    assert 0 < next_draws(Race.start([0], [0]), 10).total <= 10
    assert measure_draws(Race.start([0], [0]), 100).total == 0


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"caption 0 has the labels \[0, 1\]"):
        Race.start([0, 0], [0, 1])
    with pytest.raises(ValueError, match="one shape"):
        Race.start([0], [0, 1])
    with pytest.raises(ValueError, match="worth"):
        RaceTerms(worth=1.0)


def found_at(ratio: float, smallest_ratio: float) -> float:
    """The share found of 60 captions, of one label each, that fail `ratio` times as often as a baseline of 4 %."""
    random, number, base = np.random.default_rng(5), np.arange(60), 0.04
    race, left = Race.start(number, number, RaceTerms(worth=smallest_ratio)), 3_000_000
    while (plan := next_draws(race, left)).total:
        left -= plan.total
        own, other = random.binomial(plan.captions, ratio * base), random.binomial(plan.baselines, base)
        race = race.after(own, plan.captions, other, plan.baselines)
    return float((race.verdicts == "failure").mean())


def test_a_smaller_ratio_that_is_searched_for_is_found_and_nothing_is_found_where_nothing_is() -> None:
    assert found_at(1.5, 1.5) > 0.9 > found_at(1.5, 2.0)
    assert found_at(1.0, 1.5) <= 0.05
