"""Simulates audits under conditions that the embedded world does not have: compares their claims with the truth.

    python bench/hostile.py [--repeats N] [--seed S] [--only NAME …]

Each scenario makes the tables of an audit (captions, draws, predictions, verifications, calibration) from known
accuracies, scores them with `audits.c2b.scoring.score`, and compares the results with the truth:

    false findings   share of findings whose true |φ| ≤ τ, or whose sign is wrong
    cover            share of intervals that contain the true φ, among cells without a doubt; among findings alone
    false none       share of the verdicts `none` whose true |φ| > τ
    strong found     share of cells with true |φ| ≥ 0.15 that are findings of the right sign; null where there is none
    doubted          share of the cells that are in doubt

The numbers of a scenario cover all its repeats; each repeat has its own accuracies, effects and images.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from hostile_audits import SCENARIOS, TAU

STRONG = 0.15


def judge(audits: list[tuple[list[dict], dict[tuple[str, str], float]]]) -> dict[str, float | int | None]:
    cells = [(row, truth[row["attribute"], row["bias_class"]]) for rows, truth in audits for row in rows]
    found = [(row, phi) for row, phi in cells if row["verdict"] in ("for", "against")]
    strong = [(row, phi) for row, phi in cells if abs(phi) >= STRONG]
    sure = [(row, phi) for row, phi in cells if row["doubt"] is None and row["phi"] == row["phi"]]
    none = [phi for row, phi in cells if row["verdict"] == "none"]

    def wrong(row: dict, phi: float) -> bool:
        return abs(phi) <= TAU + 1e-9 or (phi > 0) != (row["verdict"] == "for")

    def share(hits: list[bool]) -> float | None:
        return round(float(np.mean(hits)), 4) if hits else None

    return {
        "cells": len(cells),
        "findings": len(found),
        "false findings": share([wrong(*one) for one in found]),
        "cover": share([row["phi_low"] <= phi <= row["phi_high"] for row, phi in sure]),
        "cover of findings": share([row["phi_low"] <= phi <= row["phi_high"] for row, phi in found]),
        "nones": len(none),
        "false none": share([abs(phi) > TAU + 1e-9 for phi in none]),
        "strong found": share([row["verdict"] in ("for", "against") and not wrong(row, phi) for row, phi in strong]),
        "doubted": share([row["doubt"] is not None for row, _ in cells]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100_009)
    parser.add_argument("--only", nargs="*", default=[], help="scenarios whose names hold one of these")
    args = parser.parse_args()
    whole = []
    for number, (name, make) in enumerate(SCENARIOS.items()):
        if args.only and not any(word in name for word in args.only):
            continue
        audits = []
        for repeat in range(args.repeats):
            audit = make(np.random.default_rng([args.seed, number, repeat]))
            audits.append((audit.scores(), audit.truth))
        whole += audits
        print(json.dumps({"scenario": name, **judge(audits)}), flush=True)
    print(json.dumps({"scenario": "all", **judge(whole)}))


if __name__ == "__main__":
    main()
