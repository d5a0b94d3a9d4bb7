"""Measures a run's prompts again, on many new images: is a gain seen on few images real?

    python bench/prompts_again.py RUN [--images N] [--method NAME] [--seed S]

RUN is a run of `bench/prompts.py` or `c2b prompts`. For each of its generators, every prompt of the method and every
prompt of the language model alone gets N images of seeds that the run did not use. A judge that learned from renders
alone (`world.training.judge`) says what they show; the run's judge was the embedded world's CLIP model. The gain is
the mean
over searches, one for each value; prompts of one search resemble each other, so that the standard error is over
searches. Prompts that leak are left out, as in the run.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from statistics import fmean, stdev
from typing import Any

import numpy as np

import c2b_ray
from c2b_ray.models import catalog
from c2b_ray.roles import GenerationRequest, ImageGenerator
from c2b_ray.tables import seed_of
from c2b_ray.world import zoo
from c2b_ray.world.queries import FACTORS, Codes
from c2b_ray.world.training import judge

OWN = "llm"
BATCH = 50


class Shown:
    """What a generator's new images show, found once for each prompt."""

    def __init__(self, generator: ImageGenerator, judged: judge.Judge, count: int, seed: int) -> None:
        self._generator, self._judge, self._count, self._seed = generator, judged, count, seed
        self._codes: dict[str, Codes] = {}

    def frequency(self, row: dict[str, Any]) -> float:
        """Returns the share of images of the row's prompt that show its value."""
        column = self._of(row["prompt"])[:, list(FACTORS).index(row["attribute"])]
        return float((column == FACTORS[row["attribute"]].index(row["value"])).mean())

    def _of(self, prompt: str) -> Codes:
        if prompt not in self._codes:
            requests = [GenerationRequest(prompt, seed_of("again", self._seed, prompt, n)) for n in range(self._count)]
            batches = [self._generator.generate(requests[at : at + BATCH]) for at in range(0, self._count, BATCH)]
            pictures = [image.pixels for batch in batches for image in batch if image.pixels is not None]
            self._codes[prompt] = self._judge.codes(np.stack(pictures))
        return self._codes[prompt]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--method", default="bgps λ=100")
    parser.add_argument("--seed", type=int, default=9_000_001)
    asked = parser.parse_args()
    run, judged = c2b_ray.load_run(asked.run), judge.load(zoo.WEIGHTS / "judge")
    specs, rows = run.manifest["config"]["generators"], run.read("prompts").to_pylist()
    print("| generator | searches | their frequency | the language model's own | gain (standard error) |")
    print("|---" * 5 + "|")
    for name, spec in specs.items():
        shown = Shown(catalog.image_generator(spec), judged, asked.images, asked.seed)
        frequencies: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for row in rows:
            if row["generator"] == name and row["method"] in (asked.method, OWN) and not row["leaked"]:
                frequencies[row["method"], row["attribute"], row["value"]].append(shown.frequency(row))
        means = {key: fmean(values) for key, values in frequencies.items()}
        searches = [key[1:] for key in means if key[0] == asked.method and (OWN, *key[1:]) in means]
        found, own = ([means[method, *search] for search in searches] for method in (asked.method, OWN))
        gains = [one - other for one, other in zip(found, own, strict=True)]
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
        gain = f"{fmean(gains):+.3f} ({error:.3f})"
        print(f"| {name} | {len(searches)} | {fmean(found):.3f} | {fmean(own):.3f} | {gain} |", flush=True)


if __name__ == "__main__":
    main()
