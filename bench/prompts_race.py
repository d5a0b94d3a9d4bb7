"""Compares searches whose candidates race with the same searches that give every candidate all K images.

    python bench/prompts_race.py [--searches N] [--images N] [--seed S] [--generator SPEC] [--out FOLDER]

It searches `world:hidden` for each value of lighting N times, each time about another class, with heads as guides.
Every prompt found then gets images of new seeds, and a judge that learned from renders alone (`world.judge`) says what
they show. The standard error is over searches: the two ways share a search's first tokens and seeds. Runs resume from
FOLDER.
"""

from __future__ import annotations

import argparse
from statistics import fmean, stdev
from typing import Any

import c2b_ray
from bench.prompts import FULL, WEIGHT, config
from bench.prompts_again import Shown
from c2b_ray.models import catalog
from c2b_ray.store.prompts_run import PromptsRun
from c2b_ray.world import judge, zoo
from c2b_ray.world.associations import LINKS
from c2b_ray.world.scenes import CLASSES

ATTRIBUTE = "lighting"
KEEP = 2
"""Prompts of a search."""


def searched(asked: argparse.Namespace, raced: bool, heads: dict[str, Any]) -> PromptsRun:
    """Returns a run that has only searches."""
    whole = config(LINKS, {"base": asked.generator}, FULL[2], asked)
    search = {"weights": [WEIGHT], "images": 16, "most_tokens": 14, "keep": KEEP, "raced": raced}
    whole |= {"methods": ["bgps"], "search": search, "associations": None, "modifiers": None}
    whole |= {"heads": heads, "evaluation": {"prompts": KEEP * asked.searches, "images": 4}}
    return c2b_ray.search_prompts(whole, f"{asked.out}/{'raced' if raced else 'fixed'}", "here", print)


def frequencies(run: PromptsRun, shown: Shown) -> dict[tuple[str, str], float]:
    """Returns the mean frequency of each search's prompts, by value and subject; not of searches that found none."""
    result = {}
    for row in run.read("searches").to_pylist():
        rates = [shown.frequency({**row, "prompt": prompt}) for prompt in row["prompts"]]
        if rates:
            result[row["value"], row["subject"]] = fmean(rates)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=6, choices=range(1, len(CLASSES) + 1))
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--generator", default=FULL[0])
    parser.add_argument("--out", default="runs/bench-prompts-race")
    asked = parser.parse_args()
    vars(asked).update(quick=False, prompts=3, attributes=ATTRIBUTE, tokens=14, no_words=True)
    vars(asked).update(language_model="world:prompter", reader="world:reader", encoder="world:clip")
    raced = searched(asked, True, {"prompts": 80, "images": 3})
    fixed = searched(asked, False, {"files": f"{raced.path}/heads"})
    shown = Shown(catalog.image_generator(asked.generator), judge.load(zoo.WEIGHTS / "judge"), asked.images, asked.seed)
    images = [sum(run.read("searches")["images_used"].to_pylist()) for run in (raced, fixed)]
    print(f"images: {images[0]:,} / {images[1]:,} = {images[0] / images[1]:.3f}")
    ours, theirs = frequencies(raced, shown), frequencies(fixed, shown)
    print("| value | searches | raced | fixed K | difference (standard error) |", "|---" * 5 + "|", sep="\n")
    for value in (None, *dict.fromkeys(key[0] for key in ours)):
        keys = [key for key in ours if key in theirs and value in (None, key[0])]
        gaps = [ours[key] - theirs[key] for key in keys]
        error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
        means = [fmean(some[key] for key in keys) for some in (ours, theirs)]
        print(
            f"| {value or 'all'} | {len(keys)} | {means[0]:.3f} | {means[1]:.3f} | {fmean(gaps):+.3f} ({error:.3f}) |"
        )


if __name__ == "__main__":
    main()
