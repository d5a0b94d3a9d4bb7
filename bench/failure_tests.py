"""Simulates tests of rare failures: draws until a decision, false findings, and intervals after the whole procedure.

    python bench/failure_tests.py [pairs] [held-out] [race] [smallest] [--repeats N] [--seed S]

pairs: tests each pair of rates of Wiles et al. (`failure_pairs`) alone, with alpha .05 and a power of .95, and compares
the draws of both sides with the paper's 20/p1 + 20/p0. The test looks at the counts after every few draws (`block`);
the simulation skips blocks without failures, which change nothing. Two tests are compared: `any` knows nothing of the
ratio (the default), `planned` is planned for the true ratio, as a sample size is. False rejections come from the same
tests with p1 = p0 and p1 = p0/2, for either rate.

held-out: the same on pairs that were not used to choose any constant.

race: 200 hypotheses of ten labels, 5 % of them true.

smallest: one hypothesis alone at 1.5 and 2 times the baseline's rate, with the option `smallest_ratio` at 2 and 1.5:
power, false rejections (the same rate on both sides), and draws of both sides.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from failure_pairs import EVERY, TARGETS, Pair

from c2b_ray.audits.failures.discovery.race import Race, measure_draws, next_draws
from c2b_ray.stats import RateBatch, RateEvidence, Trials, failure_rates, more_evidence, no_evidence, rate_ratios

ALPHA = 0.05
PLANNED_POWER = 0.955  # slightly more than the demanded .95
TRUST = 0.99  # the trust in the ratio that the test is planned for
LEAST_EFFECT = 2.05
"""The smallest held-out ratio: below 2.03, no test can decide with fewer draws than the paper's count."""


@dataclass(frozen=True)
class Decided:
    power: float
    draws: float

    def against(self, draws: float) -> float:
        return draws / self.draws


Test = tuple[RateEvidence, tuple[int, int]]
"""The evidence before the first draw, and the draws of the caption and of its baseline between two looks."""


def decide(test: Test, p1: float, p0: float, random: np.random.Generator) -> Decided:
    """Simulates all repeats of one test together, each until its hypothesis is confirmed or abandoned."""
    start, block = test
    repeats = len(start.e_values)
    evidence, draws = start, np.zeros(repeats)
    rates = np.repeat([p1, p0], block)
    any_failure = -np.expm1(np.log1p(-rates).sum())
    first_chance = rates * np.concatenate([[1], np.cumprod(1 - rates)[:-1]]) / any_failure
    position = np.arange(len(rates))
    going = np.ones(repeats, dtype=bool)
    while going.any():
        draws += np.where(going, random.geometric(any_failure, repeats) * len(rates), 0)
        first = random.choice(len(rates), repeats, p=first_chance)[:, None]
        failed = (position == first) | ((position > first) & (random.random((repeats, len(rates))) < rates))
        sides = failed[:, : block[0]].sum(axis=1), failed[:, block[0] :].sum(axis=1)
        counts = [np.where(going, side, 0) for side in (sides[0], block[0], sides[1], block[1])]
        evidence = more_evidence(evidence, RateBatch.of(*counts), 1 / ALPHA)
        going = (evidence.e_values < 1 / ALPHA) & ~evidence.abandoned
    return Decided(float((evidence.e_values >= 1 / ALPHA).mean()), float(draws.mean()))


def tests(pair: Pair, repeats: int) -> dict[str, Test]:
    """Returns both tests of a pair.

    The planned test abandons a hypothesis whose odds ratio seems to be below the pair's own. For a small ratio, its
    blocks have almost as many draws of the caption as of the baseline.
    """
    p1, p0 = pair.rates
    odds = p1 * (1 - p0) / (p0 * (1 - p1))
    planned = no_evidence(repeats, odds, 1 - PLANNED_POWER, expected=np.full(repeats, odds), trust=TRUST)
    return {"any": (no_evidence(repeats), (3, 4)), "planned": (planned, (5, 6) if odds < 4 else (3, 4))}


def pairs_one_by_one(pairs: Sequence[Pair], repeats: int, random: np.random.Generator) -> list[dict[str, object]]:
    rows = []
    for pair in pairs:
        p1, p0 = pair.rates
        row: dict[str, object] = {"pair": pair.name, "p0": p0, "p1": p1, "ratio": round(pair.ratio, 2)}
        for name, test in tests(pair, repeats).items():
            decided = decide(test, p1, p0, random)
            nulls = [decide(test, p * share, p, random).power for p in (p0, p1) for share in (1.0, 0.5)]
            row[name] = {
                "power": round(decided.power, 3),
                "draws": round(decided.draws),
                "times_fewer": round(decided.against(pair.papers_draws), 2),
                "false_at_p0": nulls[0],
                "false_at_p1": nulls[2],
                "false_at_half": max(nulls[1], nulls[3]),
            }
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def summary(rows: list[dict[str, object]], of: str) -> None:
    for name in ("any", "planned"):
        column = {key: np.array([row[name][key] for row in rows]) for key in rows[0][name]}  # type: ignore[attr-defined]
        false = np.concatenate([column["false_at_p0"], column["false_at_p1"]])
        fewer = column["times_fewer"]
        print(
            json.dumps(
                {
                    "of": of,
                    "test": name,
                    "pairs": len(rows),
                    "times_fewer": {"median": float(np.median(fewer)), "least": float(fewer.min())},
                    "not_fewer": [row["pair"] for row, times in zip(rows, fewer, strict=True) if times <= 1],
                    "power_least": float(column["power"].min()),
                    "false_rejections": {
                        "mean": round(float(false.mean()), 4),
                        "most": float(false.max()),
                        "most_at_half": float(column["false_at_half"].max()),
                    },
                }
            ),
            flush=True,
        )


def held_out(number: int, random: np.random.Generator) -> list[Pair]:
    pairs = []
    while len(pairs) < number:
        p0, ratio = 10 ** random.uniform(-6, -1.3), LEAST_EFFECT * 10 ** random.exponential(0.6)
        if p0 * ratio < 0.8:
            pairs.append(Pair(f"held-out {len(pairs)}", 100 * p0, 100 * p0 * ratio))
    return pairs


@dataclass(frozen=True)
class World:
    """True rates of 200 hypotheses: 5 % of them fail more often than their label, the others as often or less."""

    label: np.ndarray
    rates: np.ndarray
    baselines: np.ndarray
    true: np.ndarray

    @classmethod
    def drawn(cls, random: np.random.Generator, labels: int = 10, captions: int = 20) -> World:
        baselines = 10 ** random.uniform(-5, -1.5, labels)
        label = np.repeat(np.arange(labels), captions)
        true = random.random(label.size) < 0.05
        less = baselines[label] * np.where(random.random(label.size) < 0.5, 1.0, random.random(label.size))
        more = np.maximum(10 ** random.uniform(-3, -0.5, label.size), 2.5 * baselines[label])
        return cls(label, np.where(true, more, less), baselines, true)


def race_once(world: World, budget: int, random: np.random.Generator) -> dict[str, float | list[float]]:
    race, left, calls = Race.start(np.arange(world.label.size), world.label), budget, 0
    while (draws := next_draws(race, left)).total:
        left, calls = left - draws.total, calls + 1
        own, base = random.binomial(draws.captions, world.rates), random.binomial(draws.baselines, world.baselines)
        race = race.after(own, draws.captions, base[race.label], draws.baselines[race.label])
    shown = np.flatnonzero(race.verdicts == "failure")
    plan = measure_draws(race, budget, budget)
    own, base = random.binomial(plan.captions, world.rates), random.binomial(plan.baselines, world.baselines)
    rates = failure_rates(own[shown], plan.captions[shown])
    at_baseline = Trials.of(base[world.label[shown]], plan.baselines[world.label[shown]])
    ratios = rate_ratios(Trials.of(own[shown], plan.captions[shown]), at_baseline)
    truth, base_truth = world.rates[shown], world.baselines[world.label[shown]]
    seen = race.evidence.seen.failed
    return {
        "false": float((~world.true[shown]).sum() / max(1, shown.size)),
        "found": float(world.true[shown].sum()),
        "true": float(world.true.sum()),
        "calls": calls,
        "held": ((rates.low <= truth) & (truth <= rates.high)).tolist(),
        "ratio_held": ((ratios.low <= truth / base_truth) & (truth / base_truth <= ratios.high)).tolist(),
        "relative": (rates.value / truth).tolist(),
        "test_relative": (seen.failures[shown] / seen.draws[shown] / truth).tolist(),
    }


def races(runs: int, budget: int, random: np.random.Generator) -> None:
    done = [race_once(World.drawn(random), budget, random) for _ in range(runs)]

    def joined(key: str) -> float:
        return round(float(np.mean(np.concatenate([np.asarray(one[key], dtype=float) for one in done]))), 4)

    def mean(key: str) -> float:
        return round(float(np.mean([one[key] for one in done])), 4)

    print(
        json.dumps(
            {
                "of": "race",
                "runs": runs,
                "budget": budget,
                "false_discovery_rate": mean("false"),
                "found": round(mean("found") / mean("true"), 3),
                "calls": mean("calls"),
                "rate_intervals_hold": joined("held"),
                "ratio_intervals_hold": joined("ratio_held"),
                "mean_rate_over_truth": joined("relative"),
                "of_the_test_part_alone": joined("test_relative"),
            }
        ),
        flush=True,
    )


def smallest(repeats: int, random: np.random.Generator) -> None:
    for worth in (2.0, 1.5):
        for p0 in (0.1, 0.01, 0.001):
            test = no_evidence(repeats, worth), (3, 4)
            more, twice, null = (decide(test, p0 * ratio, p0, random) for ratio in (1.5, 2.0, 1.0))
            row = {"smallest_ratio": worth, "p0": p0, "false": null.power, "draws_of_null": round(null.draws)}
            for name, decided in (("1.5", more), ("2", twice)):
                row |= {f"power_at_{name}": round(decided.power, 3), f"draws_at_{name}": round(decided.draws)}
            print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", nargs="*", default=["pairs", "held-out", "race"], help="pairs, held-out, race, smallest"
    )
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=300, help="number of races")
    parser.add_argument("--budget", type=int, default=2_000_000, help="draws of each race")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    if "pairs" in args.what:
        rows = pairs_one_by_one(EVERY, args.repeats, random)
        summary(rows[: len(TARGETS)], "Tables 1, 3, 4: targets")
        summary(rows, "Tables 1, 3, 4: targets and any failure")
    if "held-out" in args.what:
        summary(pairs_one_by_one(held_out(40, random), args.repeats, random), "held-out pairs")
    if "smallest" in args.what:
        smallest(args.repeats, random)
    if "race" in args.what:
        races(args.runs, args.budget, random)


if __name__ == "__main__":
    main()
