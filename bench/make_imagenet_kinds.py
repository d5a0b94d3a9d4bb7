"""Writes c2b_ray/config/imagenet_kinds.tsv from a WordNet 3.0 dict folder: what is above ImageNet-1k's classes.

    python bench/make_imagenet_kinds.py /usr/share/wordnet

Each line is a synset that lies above at least one class, at any distance: synset, its names, the positions of the
classes below it. A name of several such synsets stays with the one that WordNet gives as its most common sense, or is
left out where that one is above no class.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path

from c2b_ray.config.classifiers import commonest, read_hierarchy, read_wordnet
from c2b_ray.names import normalise

TARGET = Path(__file__).parents[1] / "c2b_ray" / "config" / "imagenet_kinds.tsv"
NOTICE = TARGET.with_name("imagenet_parents.tsv")
HEADER = """# WordNet 3.0's synsets above ImageNet-1k's classes. A line: synset, its names, positions of classes below.
# Made by bench/make_imagenet_kinds.py; tabs between. The notice of WordNet, from which these lines are extracted:
"""


def main(folder: str) -> None:
    synsets, first = read_wordnet(folder), commonest(folder)
    below: dict[str, set[int]] = defaultdict(set)
    for position, entry in enumerate(read_hierarchy("imagenet").entries):
        above = list(synsets[entry.names[-1]].parents)
        while above:
            number = above.pop()
            if position not in below[number]:
                below[number].add(position)
                above += synsets[number].parents
    owners = Counter(normalise(name) for number in below for name in synsets[number].names)
    lines = []
    for number in sorted(below):
        kept = [name for name in synsets[number].names if owners[normalise(name)] == 1 or first.get(name) == number]
        lines.append(f"{number}\t{', '.join(kept)}\t{' '.join(map(str, sorted(below[number])))}\n")
    notice = NOTICE.read_text(encoding="utf-8").splitlines(keepends=True)
    licence = [line for line in notice[3:] if line.startswith("#")]
    TARGET.write_text(HEADER + "".join([*licence, *lines]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
