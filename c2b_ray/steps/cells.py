"""captions × draws → cells: which images belong to which value of which attribute, and which caption each came by.

A cell is a (target class, attribute, bias class). It knows ids alone: no answers, no pictures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.intersect import is_pair

Group = tuple[str, str]
"""Target class and attribute."""
Images = Mapping[str, set[str]]
"""Bias class → the images of its cell."""
Cells = Mapping[Group, Images]


@dataclass(frozen=True)
class Origins:
    """Which caption each image of a cell came by: the first, in the captions' order, of those that drew it.

    Labelled images came by no caption: `known` is False, and every cell is one sample.
    """

    caption: Mapping[tuple[str, str, str], Mapping[str, int]]
    known: bool

    def of(self, group: Group, bias_class: str, images: set[str]) -> list[tuple[int, set[str]]]:
        """The images of a cell by caption, in the captions' order; captions without an image among them left out."""
        of_image = self.caption.get((*group, bias_class), {})
        by_caption: dict[int, set[str]] = defaultdict(set)
        for image in images:
            by_caption[of_image[image]].add(image)
        return sorted(by_caption.items())


def images_of_cells(captions: pa.Table, draws: pa.Table) -> dict[Group, dict[str, set[str]]]:
    """Of every (target class, attribute), the images that each bias class's captions drew; intersections left out."""
    cells: dict[Group, dict[str, set[str]]] = defaultdict(dict)
    of_caption = {}
    columns = ("caption_id", "proposal_id", "target_class", "attribute", "bias_class")
    for caption_id, proposal, *group, bias_class in zip(*(captions[c].to_pylist() for c in columns), strict=True):
        if not is_pair(proposal):
            of_caption[caption_id] = cells[group[0], group[1]].setdefault(bias_class, set())
    for caption_id, image in zip(draws["caption_id"].to_pylist(), draws["image_id"].to_pylist(), strict=True):
        if caption_id in of_caption:
            of_caption[caption_id].add(image)
    return cells


def origins(captions: pa.Table, draws: pa.Table) -> Origins:
    """The captions that drew the images of every cell."""
    columns = ("caption_id", "target_class", "attribute", "bias_class")
    order, cell_of = {}, {}
    for number, (caption_id, *cell) in enumerate(zip(*(captions[c].to_pylist() for c in columns), strict=True)):
        order[caption_id], cell_of[caption_id] = number, (cell[0], cell[1], cell[2])
    first: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for caption_id, image in zip(draws["caption_id"].to_pylist(), draws["image_id"].to_pylist(), strict=True):
        if caption_id in cell_of:
            of_image = first[cell_of[caption_id]]
            of_image[image] = min(order[caption_id], of_image.get(image, order[caption_id]))
    return Origins(first, not is_labelled(draws))


def is_labelled(draws: pa.Table) -> bool:
    """Whether the images are rows of a labelled table: no caption drew them, and what they show is known."""
    return draws.num_rows > 0 and set(draws["source"].unique().to_pylist()) == {"labelled"}


def outside(images: Images, distinct: Distinct | None) -> dict[str, int]:
    """How many images of each value are, themselves or as copies, images of another value of the attribute as well."""
    pictures = {
        value: [distinct.picture(image) if distinct else image for image in of_value]
        for value, of_value in images.items()
    }
    held = Counter(picture for of_value in pictures.values() for picture in set(of_value))
    return {value: sum(held[picture] > 1 for picture in of_value) for value, of_value in pictures.items()}
