"""How often captions at the least failure rate that a run names are found, in simulated screenings and races.

    python bench/caption_reach.py

Each row has one caption that fails at the least rate, of one label, beside three captions of other labels that fail as
often as theirs. Screening and race apply their own rules; the promise is 4 in 5. A label's draws are those of the test.
"""

from __future__ import annotations

import numpy as np

from c2b_ray.audits.failures.discovery.race import (
    Confirming,
    Race,
    RaceTerms,
    Screening,
    least_caption_rate,
    next_draws,
)
from c2b_ray.audits.failures.refinement import FIRST, GOAL, GROWTH
from c2b_ray.audits.failures.search import FEWEST, SURPRISE

MOST, RATIO, ALPHA, REPEATS = 2_000, 2.0, 0.05, 400
WORLDS = ((0.01, 8_000), (0.01, 3_000), (0.05, 3_000), (0.002, 30_000))


def screened(random: np.random.Generator, rate: float, baseline: float) -> float | None:
    """Returns the rate that screening shows of a caption; None where it is not promising."""
    failures = draws = 0
    while draws < MOST and failures < GOAL and draws * RATIO * baseline < failures + 3:
        more = min(max(FIRST, int(draws * (GROWTH - 1))), MOST - draws)
        failures, draws = failures + int(random.binomial(more, rate)), draws + more
    least = draws * RATIO * baseline
    promising = failures > least and (failures >= FEWEST or 1 - np.exp(-least) < SURPRISE)
    return failures / draws if promising else None


def confirmed(random: np.random.Generator, rate: float, baseline: float, seen: float, draws: int) -> bool:
    rates = np.array([rate, baseline, baseline, baseline])
    expected = [seen / baseline, 2.5, 2.5, 2.5]
    race, left = Race.start(range(4), range(4), RaceTerms(alpha=ALPHA, worth=RATIO), expected), 4 * draws
    while (plan := next_draws(race, left)).total:
        left -= plan.total
        sides = random.binomial(plan.captions, rates), random.binomial(plan.baselines, baseline)
        race = race.after(sides[0], plan.captions, sides[1], plan.baselines)
    return bool(race.verdicts[0] == "failure")


def main() -> None:
    random = np.random.default_rng(100_004)
    screening = Screening(MOST, FIRST, GROWTH, GOAL, FEWEST, SURPRISE)
    for baseline, draws in WORLDS:
        rate = least_caption_rate(baseline, screening, Confirming(draws, 4, ALPHA, RATIO))
        assert rate is not None
        found = 0
        for _ in range(REPEATS):
            seen = screened(random, rate, baseline)
            found += seen is not None and confirmed(random, rate, baseline, seen, draws)
        print(
            f"label fails at {baseline}, {draws:,} draws: least {rate:.4f} ({rate / baseline:.2f} times), "
            f"found {found / REPEATS:.3f}"
        )


if __name__ == "__main__":
    main()
