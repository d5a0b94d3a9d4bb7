"""Compares planted and measured frequencies of the world's generators, for each word of hidden associations.

    python bench/prompts_world.py [--quick] [--links FILE] [SPEC …]

It prints a row per link, the largest deviation of each decoy, and that of the control: `| word | value | planted |
measured | n |`. The wordings of the prompts and the seeds (100,000 and above) are new to the generators; neither
training nor the model card's numbers used them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from c2b_ray.models import catalog
from c2b_ray.world.associations import Associations
from c2b_ray.world.links_file import read_links
from c2b_ray.world.training import judge
from c2b_ray.world.training.hidden_quality import NO_WORD, Frequency, frequencies, named_share, summary
from c2b_ray.world.zoo import WEIGHTS

SEED = 100_000
SPECS = ("world:hidden", "world:hidden-control", "world:hidden-lora", "world:linked")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="*", default=SPECS, help="generators; default: the world's")
    parser.add_argument("--links", help="the YAML file of the links that they were trained on")
    parser.add_argument("--quick", action="store_true", help="30 pictures per word instead of 200")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    hidden = Associations(*read_links(chosen.links)) if chosen.links else Associations()
    eyes = judge.load(WEIGHTS / "judge")
    for spec in chosen.specs:
        planted = hidden.without_effect() if spec.startswith("world:hidden-control") else hidden
        generator = catalog.image_generator(spec)
        rows = frequencies(generator, eyes, planted, 30 if chosen.quick else 200, SEED)
        named = named_share(generator, eyes, planted, 10 if chosen.quick else 40, SEED)
        show(spec, rows, named)


def show(spec: str, rows: Sequence[Frequency], named: float) -> None:
    print(f"\n## {spec}\n\n| word | value | planted | measured (95 %) | n |\n|---|---|---|---|---|")
    for row in rows:
        if row.linked:
            print(_row(row))
    words = dict.fromkeys(row.word for row in rows if not any(other.linked for other in rows if other.word == row.word))
    for word in words:
        print(_row(max((row for row in rows if row.word == word), key=lambda row: abs(row.measured - row.planted))))
    about = summary(rows)
    print(f"\nlinks: mean error {about['mean_error']}, largest {about['largest_error']}; ", end="")
    print(f"where nothing is planted: mean gap {about['mean_unplanted_gap']}; named values shown: {named:.3f}")


def _row(row: Frequency) -> str:
    word = "no word" if row.word == NO_WORD else row.word
    interval = f"{row.measured:.2f} ({row.low:.2f} to {row.high:.2f})"
    return f"| {word} | {row.attribute} {row.value} | {row.planted:.2f} | {interval} | {row.n} |"


if __name__ == "__main__":
    main()
