"""Plants causes of failures of one to three values in labelled images: which does `c2b failures` find, and name?

    python bench/failure_causes.py [--tables 40] [--images 3000] [--seed 0]
    python bench/failure_causes.py --power [--tables 60]

A table has one label and six columns of two to six values, each value drawn with a frequency of its own. A classifier
fails on a share of the images that show the planted values, and on another share of all others. Every third table has
no cause. The audit's own search, test and families run on the outcomes; no picture is drawn.

--power: how often is a cause found that fails at the least rate of which a run says that it finds it with probability
.8 or .95? The run is one on a table without a cause, and the cause is planted in others like it.

found: a confirmed caption whose values are the planted ones, or some of them, or these and more. named: the planted
ones and no other, as the lead of a finding. false: captions that fail no more often than the label's other images.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from itertools import product

import numpy as np

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.candidates import table as candidates_of
from c2b_ray.audits.failures.discovery.race import SHARES
from c2b_ray.audits.failures.discovery.value_sets import Condition, LabelledAnswers
from c2b_ray.audits.failures.labelled import reach_of
from c2b_ray.audits.failures.labelled_claims import Claim, ClaimAnswers, Parts, claims_of, hypotheses
from c2b_ray.audits.failures.report.rows import findings_of, hypotheses_of

LABEL = "bus"
SIZES = (2, 2, 3, 4, 5, 6)
USUAL = (0.01, 0.05)
RAISED = (0.15, 0.3, 0.6)
CONFIG = FailuresConfig.model_validate(
    {"labels": [LABEL], "classifier": "fake:", "images": {"labelled": {"table": "t.csv"}}, "rule": "top1"}
)


def planted_table(
    random: np.random.Generator, images: int, depth: int
) -> tuple[LabelledAnswers, ClaimAnswers, np.ndarray, dict]:
    columns = {}
    for number, size in enumerate(SIZES):
        shares = random.dirichlet(np.full(size, 5.0))
        columns[f"c{number}"] = np.array([f"v{value}" for value in random.choice(size, images, p=shares)], object)
    usual, raised = float(random.choice(USUAL)), float(random.choice(RAISED))
    names = random.choice(list(columns), depth, replace=False).tolist()
    values = {name: f"v{random.integers(len(set(columns[name])))}" for name in sorted(names)}
    shown = np.ones(images, bool) if values else np.zeros(images, bool)
    for name, value in values.items():
        shown &= columns[name] == value
    rates = np.where(shown, raised, usual)
    answered, answers = outcomes(random, columns, rates)
    return answered, answers, rates, {"values": values, "usual": usual, "raised": raised, "share": float(shown.mean())}


def power(tables: int, images: int, seed: int) -> None:
    for usual, share in product(USUAL, SHARES):
        random = np.random.default_rng([seed, images, int(1000 * usual), int(100 * share)])
        answered, answers, _ = table_with(random, images, usual, usual, share)
        suggested = claims_of(answered, answers, CONFIG)
        rows = hypotheses(CONFIG, "table", Parts(answered, answers), suggested.claims)
        reach = reach_of(CONFIG, Parts(answered, answers), suggested, rows)
        rates = next(one["rates"] for one in reach.labels[0].least if one["share"] == share)
        for wanted, rate in zip(reach.powers, rates, strict=True):
            if rate is None:
                continue
            exactly = parts_of = 0
            for _ in range(tables):
                answered, answers, cause = table_with(random, images, usual, rate, share)
                claims, rows, _ = audited(answered, answers)
                sets = [
                    set(claim.condition.values)
                    for claim, row in zip(claims, rows, strict=True)
                    if row["verdict"] == "failure"
                ]
                exactly += cause in sets
                parts_of += any(one & cause for one in sets)
            row = {"images": images, "usual": usual, "share": share, "wanted": wanted, "rate": round(rate, 4)}
            print(json.dumps({**row, "exactly": exactly / tables, "found": parts_of / tables}), flush=True)


def table_with(
    random: np.random.Generator, images: int, usual: float, raised: float, share: float
) -> tuple[LabelledAnswers, ClaimAnswers, set[tuple[str, str]]]:
    """Three columns of two values, whose second values together are a cause that a share of the images show, and three
    columns more."""
    each = share ** (1 / 3)
    columns = {f"c{at}": np.where(random.random(images) < each, "v1", "v0").astype(object) for at in range(3)}
    columns |= {
        f"c{at}": np.array([f"v{value}" for value in random.integers(at + 1, size=images)], object) for at in (3, 4, 5)
    }
    cause = {(f"c{at}", "v1") for at in range(3)}
    shown = np.array([columns[name] == value for name, value in cause], bool).all(axis=0)
    return *outcomes(random, columns, np.where(shown, raised, usual)), cause


def outcomes(
    random: np.random.Generator, columns: dict[str, np.ndarray], rates: np.ndarray
) -> tuple[LabelledAnswers, ClaimAnswers]:
    images = len(rates)
    failed = random.random(images) < rates
    parts = random.choice(np.array(["search", "test", "measure"], object), images)
    predicted = ["boat" if fails else LABEL for fails in failed]
    answers = ClaimAnswers({}, {"model": np.ones(images, bool)}, {"model": failed}, {"model": predicted})
    return LabelledAnswers(np.full(images, LABEL, object), columns, parts, np.arange(images)), answers


def audited(answered: LabelledAnswers, answers: ClaimAnswers) -> tuple[list[Claim], list[dict], list]:
    claims = claims_of(answered, answers, CONFIG).claims
    rows = hypotheses(CONFIG, "table", Parts(answered, answers), claims)
    captions = [Condition(LABEL).caption, *(claim.condition.caption for claim in claims)]
    return claims, rows.to_pylist()[: len(claims)], findings_of(hypotheses_of(rows, candidates_of(captions)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=40, help="tables of each depth, and as many without a cause")
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--power", action="store_true", help="see above")
    options = parser.parse_args()
    if options.power:
        power(options.tables, options.images, options.seed)
    else:
        named(options)


def named(options: argparse.Namespace) -> None:
    began, total = time.process_time(), Counter()
    for depth in (1, 2, 3, 0):
        count = Counter()
        for number in range(options.tables):
            random = np.random.default_rng([options.seed, depth, number])
            answered, answers, rates, plant = planted_table(random, options.images, depth)
            claims, rows, findings = audited(answered, answers)
            planted = set(plant["values"].items())
            confirmed = [(claim, row) for claim, row in zip(claims, rows, strict=True) if row["verdict"] == "failure"]
            count["claims"] += len(claims)
            count["confirmed"] += len(confirmed)
            for claim, row in confirmed:
                shown = answered.showing(claim.condition.values)
                count["false"] += bool(rates[shown].mean() <= rates[~shown].mean() + 1e-12)
                count["held"] += bool(row["rate_low"] <= rates[shown].mean() <= row["rate_high"])
            sets = [set(claim.condition.values) for claim, _ in confirmed]
            strong = depth and plant["share"] * options.images / 3 * plant["raised"] >= 8
            for among in ("", "strong ") if strong else ("",):
                count[f"{among}tables"] += 1
                count[f"{among}found"] += any(one & planted for one in sets)
                count[f"{among}confirmed exactly"] += planted in sets
                leads = [{tuple(s.removeprefix("its ").split(" is ")) for s in f.lead.sentences} for f in findings]
                count[f"{among}named"] += planted in leads
        total += Counter({name: count[name] for name in ("confirmed", "false", "held", "claims")})
        print(json.dumps({"values": depth, **count}), flush=True)
    print(json.dumps({**total, "cpu_seconds": round(time.process_time() - began, 1)}))


if __name__ == "__main__":
    main()
