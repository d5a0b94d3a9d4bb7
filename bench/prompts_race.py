"""Compares searches whose candidates race with the same searches that give every candidate all K images, or K / 4.

    python bench/prompts_race.py [--searches N] [--images N] [--seed S] [--generator SPEC] [--out FOLDER]

It searches `world:hidden` for each value of lighting N times, each time about another class, with heads as guides.
Every prompt found then gets images of new seeds, and a judge that learned from renders alone (`world.training.judge`)
says what
they show. Standard errors are over searches: the ways share a search's first tokens, and its seeds. Runs resume from
FOLDER.
"""

from __future__ import annotations

import argparse
from statistics import fmean, stdev
from typing import Any

from prompts import FULL, WEIGHT, config
from prompts_again import Shown

import c2b_ray
from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.models import catalog
from c2b_ray.world import zoo
from c2b_ray.world.associations import LINKS
from c2b_ray.world.scenes import CLASSES
from c2b_ray.world.training import judge

ATTRIBUTE = "lighting"
KEEP = 2
"""Prompts of a search."""


K = 16
WAYS = {"fixed": (K, False), "raced": (K, True), "quarter": (K // 4, False)}
"""For each way its images of a candidate, and whether candidates race."""


def searched(asked: argparse.Namespace, way: str, heads: dict[str, Any]) -> PromptsRun:
    """Returns a run that has only searches."""
    images, raced = WAYS[way]
    about = {"quick": False, "prompts": 3, "attributes": ATTRIBUTE, "tokens": 14, "no_words": True}
    models = {"language_model": "world:prompter", "reader": "world:reader", "encoder": "world:clip"}
    whole = config(LINKS, {"base": asked.generator}, FULL[2], argparse.Namespace(**vars(asked), **about, **models))
    search = {"weights": [WEIGHT], "images": images, "most_tokens": 14, "keep": KEEP, "raced": raced}
    whole |= {"methods": ["bgps"], "search": search, "associations": None, "modifiers": None}
    whole |= {"heads": heads, "evaluation": {"prompts": KEEP * asked.searches, "images": 4}}
    return c2b_ray.search_prompts(whole, f"{asked.out}/{way}", "here", print)


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
    runs = {"raced": searched(asked, "raced", {"prompts": 80, "images": 3})}
    runs |= {way: searched(asked, way, {"files": f"{runs['raced'].path}/heads"}) for way in ("fixed", "quarter")}
    shown = Shown(catalog.image_generator(asked.generator), judge.load(zoo.WEIGHTS / "judge"), asked.images, asked.seed)
    images = {way: sum(run.read("searches")["images_used"].to_pylist()) for way, run in runs.items()}
    found = {way: frequencies(run, shown) for way, run in runs.items()}
    print("| way | value | searches | images of fixed K's | frequency | fixed K | difference (standard error) |")
    print("|---" * 7 + "|")
    for way in ("raced", "quarter"):
        share, both = images[way] / images["fixed"], [key for key in found[way] if key in found["fixed"]]
        for value in (None, *dict.fromkeys(key[0] for key in both)):
            keys = [key for key in both if value in (None, key[0])]
            gaps = [found[way][key] - found["fixed"][key] for key in keys]
            error = stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else float("nan")
            ours, theirs = (fmean(found[one][key] for key in keys) for one in (way, "fixed"))
            gap = f"{fmean(gaps):+.3f} ({error:.3f})"
            print(f"| {way} | {value or 'all'} | {len(keys)} | {share:.3f} | {ours:.3f} | {theirs:.3f} | {gap} |")


if __name__ == "__main__":
    main()
