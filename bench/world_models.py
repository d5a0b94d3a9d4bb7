"""Measures the world's shipped models on unseen data.

python bench/world_models.py clip|lm [--n N] [--seed S]
"""

from __future__ import annotations

import argparse
import json
import time

from c2b_ray.world.zoo import WEIGHTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=["clip", "lm"])
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=200_001)
    args = parser.parse_args()
    began = time.perf_counter()
    if args.model == "clip":
        from c2b_ray.world.training.clip_quality import evaluate

        found = evaluate(WEIGHTS / "clip", args.seed, args.n)
    else:
        from c2b_ray.world.training.lm_quality import evaluate

        found = evaluate(WEIGHTS / "lm", args.seed)
    print(json.dumps({**found, "seconds": round(time.perf_counter() - began, 1)}, indent=1))


if __name__ == "__main__":
    main()
