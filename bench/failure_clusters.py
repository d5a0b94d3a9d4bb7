"""Simulates `c2b failures` on labelled images that come in clusters: false findings, and coverage of rates and ratios.

    python bench/failure_clusters.py [--tables 20] [--seed 100031] [--cells]

A table has one label, three columns whose values vary within a camera, and three with one value for each camera. Images
of one camera share a draw of the failure rate from a beta distribution with the intraclass correlation ICC. In a null
table no value matters; in a planted one a value that varies within cameras makes images fail four times as often, up to
.9. The audit's own parts, search, test and measurement run on the outcomes; no picture is drawn.

false: null tables with a finding, and findings that fail no more often than the other images, as a share of all. found:
planted tables whose value leads to a finding. rate, ratio: intervals of the claims that were tested, which hold the
truth. The first table of each setting is also measured as if images were independent.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.value_sets import LabelledAnswers
from c2b_ray.audits.failures.labelled import PARTS, parts_of_clusters
from c2b_ray.audits.failures.labelled_claims import ClaimAnswers, Parts, claims_of, hypotheses

LABEL, CAUSE = "bus", ("c0", "v0")
SIZES = (3, 2, 4, 2, 3, 4)
WITHIN = 3
"""Columns whose values vary within a cluster."""
IMAGES = 3000
CONFIG = FailuresConfig.model_validate(
    {
        "labels": [LABEL],
        "classifier": "fake:",
        "images": {"labelled": {"table": "t.csv", "cluster": "camera"}},
        "rule": "top1",
    }
)


class Setting(NamedTuple):
    icc: float
    clusters: int
    sizes: str
    usual: float
    planted: bool

    @property
    def raised(self) -> float:
        return min(4 * self.usual, 0.9) if self.planted else self.usual


def settings() -> Iterator[Setting]:
    for one in product((0.02, 0.05, 0.2), (5, 10, 20, 50), ("equal", "unequal"), (0.03, 0.15), (False, True)):
        yield Setting(*one)


def table(s: Setting, random: np.random.Generator) -> tuple[LabelledAnswers, ClaimAnswers, NDArray[np.float64]]:
    """Returns images, answers, and the true failure rate of each image over all cameras."""
    weights = random.lognormal(0, 0.9, s.clusters) if s.sizes == "unequal" else np.ones(s.clusters)
    camera = random.choice(s.clusters, IMAGES, p=weights / weights.sum())
    columns = {}
    for number, size in enumerate(SIZES):
        value = random.integers(size, size=IMAGES if number < WITHIN else s.clusters)
        columns[f"c{number}"] = np.array([f"v{v}" for v in (value if number < WITHIN else value[camera])], object)
    rates = np.where(columns[CAUSE[0]] == CAUSE[1], s.raised, s.usual)
    shape = 1 / s.icc - 1
    failed = random.random(IMAGES) < betaincinv(rates * shape, (1 - rates) * shape, random.random(s.clusters)[camera])
    answers = ClaimAnswers(
        {},
        {"model": np.ones(IMAGES, bool)},
        {"model": failed},
        {"model": ["boat" if fails else LABEL for fails in failed]},
    )
    parts = np.array(PARTS, object)[parts_of_clusters(np.array([f"camera {c}" for c in camera], object), 0)]
    return LabelledAnswers(np.full(IMAGES, LABEL, object), columns, parts, np.arange(IMAGES), camera), answers, rates


def audited(answered: LabelledAnswers, answers: ClaimAnswers, rates: NDArray[np.float64]) -> dict[str, list[float]]:
    claims = claims_of(answered, answers, CONFIG).claims
    rows: list[dict[str, Any]] = hypotheses(CONFIG, "table", Parts(answered, answers), claims).to_pylist()
    result: dict[str, list[float]] = {name: [] for name in ("rate", "ratio", "finding", "false", "found")}
    for claim, row in zip(claims, rows[: len(claims)], strict=True):
        shown = answered.showing(claim.condition.values)
        mine, others = rates[shown].mean(), rates[~shown].mean()
        if row["draws"] and row["baseline_draws"] and not row["doubts"]:
            result["rate"].append(row["rate_low"] <= mine <= row["rate_high"])
            result["ratio"].append(row["ratio_low"] <= mine / others <= row["ratio_high"])
        if row["verdict"] == "failure":
            result["finding"].append(1)
            result["false"].append(mine <= others * 1.05)  # chance alone mixes a little of the cause in
            result["found"].append(CAUSE in claim.condition.values)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=20, help="of each setting")
    parser.add_argument("--seed", type=int, default=100_031)
    parser.add_argument("--cells", action="store_true", help="print each setting too")
    options = parser.parse_args()
    began, random = time.process_time(), np.random.default_rng(options.seed)
    rows: list[tuple[Setting, str, dict[str, list[float]]]] = []
    for setting in settings():
        for number in range(options.tables):
            answered, answers, rates = table(setting, random)
            rows.append((setting, "clustered", audited(answered, answers, rates)))
            if number:
                continue
            apart = random.choice(np.array(PARTS, object), IMAGES)
            independent = LabelledAnswers(answered.labels, answered.columns, apart, answered.pictures)
            rows.append((setting, "independent", audited(independent, answers, rates)))
        if options.cells:
            show(str(tuple(setting)), [row for row in rows if row[0] == setting])
    show("all", rows)
    for field in ("icc", "clusters", "sizes", "usual"):
        for value in dict.fromkeys(getattr(setting, field) for setting, *_ in rows):
            show(f"{field} {value}", [row for row in rows if getattr(row[0], field) == value])
    print(json.dumps({"tables": options.tables, "seed": options.seed, "cpu_s": round(time.process_time() - began)}))


def show(title: str, rows: list[tuple[Setting, str, dict[str, list[float]]]]) -> None:
    for how in ("clustered", "independent"):
        mine = [(setting, result) for setting, name, result in rows if name == how]
        null, planted = ([result for setting, result in mine if setting.planted == which] for which in (False, True))
        every = [result for _, result in mine]
        numbers = {
            "null tables with a finding": _mean([bool(one["finding"]) for one in null]),
            "false of findings": _mean([value for one in planted for value in one["false"]]),
            "planted found": _mean([any(one["found"]) for one in planted]),
            **{name: _mean([value for one in every for value in one[name]]) for name in ("rate", "ratio")},
            "claims": sum(len(one["rate"]) for one in every),
        }
        print(f"{title}, {how}: {json.dumps({name: round(value, 3) for name, value in numbers.items()})}", flush=True)


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else float("nan")


if __name__ == "__main__":
    main()
