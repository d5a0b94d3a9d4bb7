import numpy as np

from c2b_ray.steps.discovery.race import Race, measure_draws, next_draws


def run(race, rates, baseline, budget, seed=0):
    random = np.random.default_rng(seed)
    calls, left = 0, budget
    while (draws := next_draws(race, left)).total:
        calls += 1
        left -= draws.total
        own = random.binomial(draws.captions, rates)
        base = random.binomial(draws.baselines, baseline)
        race = race.after(
            own[race.caption], draws.captions[race.caption], base[race.label], draws.baselines[race.label]
        )
    return race, calls, left


def test_a_failure_is_shown_the_hopeless_stop_and_the_budget_holds():
    race, calls, left = run(Race.start([0, 1, 2], [0, 0, 1]), [0.2, 0.01, 0.003], [0.01, 0.003], 40_000)
    assert race.standing.tolist()[0] == "failure"
    assert race.standing.tolist()[1] != "failure"
    assert left >= 0
    assert calls <= 25
    measured = measure_draws(race, 10_000)
    assert 40 <= measured.captions[0] <= 400
    assert measured.captions[1:].tolist() == [0, 0]
