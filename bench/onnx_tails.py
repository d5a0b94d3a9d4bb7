"""Counts the ONNX graphs, of random heads and tails, whose label and probability are right, refused or wrong.

    PYTHONPATH=.:tests/support python bench/onnx_tails.py [--graphs 2000]

Each graph ends in one to three random nodes after one of nine heads (`tests/support/tailed_graphs.py`); the oracle is
onnxruntime itself. It ends with status 1 where one is wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tailed_graphs import HEADS, TAILS, Recipe, outcome


def recipe_of(seed: int) -> Recipe:
    random = np.random.default_rng(seed)
    names = [name for name in TAILS if name != "ArgMax"]
    tail = [str(name) for name in random.choice(names, random.integers(1, 4))]
    if random.random() < 0.03:
        tail[-1] = "ArgMax"
    labels, temperature = random.choice([2, 3, 5, 10, 200, 1000]), random.choice([0.01, 0.3, 3.0, 10.0, 100.0])
    return Recipe(str(random.choice(list(HEADS))), tuple(tail), int(labels), float(temperature), seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=2000)
    count, kinds = Counter[str](), Counter[str]()
    with TemporaryDirectory() as folder:
        for seed in range(100_000, 100_000 + parser.parse_args().graphs):
            recipe = recipe_of(seed)
            found, reason = outcome(recipe, Path(folder) / "m.onnx")
            count[found] += 1
            if found == "right":
                kinds[reason] += 1
            if found == "wrong":
                print(f"wrong: {recipe}: {reason}")
    print(f"right {count['right']}, refused {count['refused']}, wrong {count['wrong']}")
    print("right as:", ", ".join(f"{kind} {n}" for kind, n in kinds.most_common()))
    return 1 if count["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
