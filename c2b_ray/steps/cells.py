"""Intersections: cells of two attributes at once, and how their captions are distinguished from those of one attribute.

A pair's captions and draws are in the same tables as the others, with the kind INTERSECTION; its scores are in a
separate table, written by `audits.c2b.scoring.pairs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.steps.draw import ImageIds, Ints, Mask, codes, counted, numbered, repeated
from c2b_ray.tables.path import ProposalRow

FIELD = "intersections"
ATTRIBUTE, INTERSECTION = "attribute", "intersection"
"""Kinds of captions (`tables.CAPTIONS`)."""
TIMES = "×"
"""Between the ids of two proposals, and between the names of two attributes."""


@dataclass(frozen=True)
class Pair:
    """Two attributes of one class: rows of `tables.PROPOSALS`."""

    a: ProposalRow
    b: ProposalRow

    @property
    def proposal_id(self) -> str:
        return f"{self.a['proposal_id']}{TIMES}{self.b['proposal_id']}"

    @property
    def target_class(self) -> str:
        return str(self.a["target_class"])

    @property
    def attribute(self) -> str:
        return f"{self.a['attribute']} {TIMES} {self.b['attribute']}"

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.a["bias_classes"]), len(self.b["bias_classes"])

    def as_proposal(self) -> dict[str, str]:
        """Returns the columns of a caption that refer to its proposal."""
        names = ("proposal_id", "target_class", "attribute")
        return {"kind": INTERSECTION, **{name: getattr(self, name) for name in names}}

    def cells(self) -> Iterator[tuple[str, str]]:
        """Yields (value of a, value of b), row by row."""
        for x in self.a["bias_classes"]:
            for y in self.b["bias_classes"]:
                yield x, y


def of_kind(captions: pa.Table, kind: str) -> pa.Table:
    """Returns the captions of single attributes, or of intersections."""
    return captions.filter(pc.equal(captions["kind"], kind))


def bias_class(x: str, y: str) -> str:
    return f"{x}, {y}"


def pairs(proposals: pa.Table, intersections: Sequence[tuple[str, str]]) -> list[Pair]:
    """Returns the pairs of every class that has both attributes, under their names or names that were merged into them.

    Raises ConfigError, which names an attribute that no class has, or a pair of which no class has both.
    """
    rows_by_class: dict[str, dict[str, ProposalRow]] = defaultdict(dict)
    for row in proposals.to_pylist():
        for name in (*row["merged_from"], row["attribute"]):
            rows_by_class[row["target_class"]][normalise(name)] = row
    attribute_names = {name for rows in rows_by_class.values() for name in rows}
    result = []
    for a, b in intersections:
        for name in (a, b):
            if normalise(name) not in attribute_names:
                raise ConfigError(
                    FIELD, f"no class has an attribute {name!r} to pair; {nearest(name, attribute_names)}"
                )
        matching = [
            Pair(rows[normalise(a)], rows[normalise(b)])
            for rows in rows_by_class.values()
            if normalise(a) in rows and normalise(b) in rows
        ]
        if not matching or any(pair.a is pair.b for pair in matching):
            problem = "are one attribute: they were merged" if matching else "are not both attributes of any one class"
            raise ConfigError(FIELD, f"{a!r} and {b!r} {problem}")
        result += matching
    return result


def of_run(proposals: pa.Table, captions: pa.Table) -> list[Pair]:
    """Returns the pairs that have captions, in the order of the captions."""
    of_pairs = of_kind(captions, INTERSECTION)
    if not of_pairs.num_rows:
        return []
    rows_by_class: dict[str, list[ProposalRow]] = defaultdict(list)
    for row in proposals.filter(pc.is_in(proposals["target_class"], of_pairs["target_class"].unique())).to_pylist():
        rows_by_class[row["target_class"]].append(row)
    all_pairs = (Pair(a, b) for rows in rows_by_class.values() for a, b in permutations(rows, 2))
    by_id = {pair.proposal_id: pair for pair in all_pairs}
    return [by_id[proposal] for proposal in of_pairs["proposal_id"].unique().to_pylist()]


# Joins captions and draws into cells: which images belong to which value of which attribute, and which caption drew
# each.


class GroupName(NamedTuple):
    target_class: str
    attribute: str


CellKey = tuple[str, str]
"""Proposal id and bias class: a cell by what its captions were made from."""


class CellName(NamedTuple):
    target_class: str
    attribute: str
    bias_class: str


@dataclass(frozen=True)
class CellGroup:
    """The cells of one attribute of one class: `values` are its bias classes, `cells` the numbers of their cells."""

    name: GroupName
    values: tuple[str, ...]
    cells: slice

    @property
    def target_class(self) -> str:
        return self.name.target_class

    @property
    def attribute(self) -> str:
        return self.name.attribute


@dataclass(frozen=True)
class CellImages:
    """The images of every cell: a row for each image of each cell, ordered by cell, then by image.

    `names`: of the cells, in the order of the captions; cells of one (class, attribute) are adjacent, also those
    without images. `ids`: of all images that were drawn. `cell`, `image`: the numbers of each row. `caption`: the first
    row of `captions` that drew the image for the cell.
    """

    names: tuple[CellName, ...]
    ids: ImageIds
    cell: Ints
    image: Ints
    caption: Ints

    @cached_property
    def starts(self) -> Ints:
        """The first row of each cell, and at the end the number of rows."""
        starts: Ints = np.searchsorted(self.cell, np.arange(len(self.names) + 1))
        return starts

    @cached_property
    def sizes(self) -> Ints:
        """The number of images of each cell."""
        return np.diff(self.starts)

    @cached_property
    def groups(self) -> tuple[CellGroup, ...]:
        members: dict[GroupName, list[int]] = {}
        for number, name in enumerate(self.names):
            members.setdefault(GroupName(*name[:2]), []).append(number)
        return tuple(
            CellGroup(group, tuple(self.names[i].bias_class for i in cells), slice(cells[0], cells[-1] + 1))
            for group, cells in members.items()
        )

    @cached_property
    def group_named(self) -> dict[GroupName, CellGroup]:
        return {group.name: group for group in self.groups}

    @cached_property
    def groups_of_class(self) -> dict[str, tuple[CellGroup, ...]]:
        members: dict[str, list[CellGroup]] = {}
        for group in self.groups:
            members.setdefault(group.target_class, []).append(group)
        return {target: tuple(groups) for target, groups in members.items()}

    @cached_property
    def number(self) -> dict[CellName, int]:
        """The number of each cell by its name."""
        return {name: i for i, name in enumerate(self.names)}

    def cells_of(self, captions: pa.Table) -> Ints:
        """Returns the cell of each caption; -1 where it belongs to none of these."""
        columns = (captions[name].to_pylist() for name in CellName._fields)
        return np.array([self.number.get(CellName(*name), -1) for name in zip(*columns, strict=True)], np.int64)

    def rows(self, cells: slice) -> slice:
        """Returns the rows of adjacent cells."""
        return slice(int(self.starts[cells.start]), int(self.starts[cells.stop]))

    def of_cell(self, number: int) -> Ints:
        """Returns the images of one cell, in ascending order."""
        return self.image[self.starts[number] : self.starts[number + 1]]

    def rows_of_class(self, target: str) -> Ints:
        """Returns the first row of each image of a class."""
        all_rows = np.arange(len(self.cell))
        parts = [all_rows[self.rows(group.cells)] for group in self.groups_of_class.get(target, ())]
        rows = np.concatenate([*parts, np.zeros(0, np.int64)])
        order = np.argsort(self.image[rows], kind="stable")
        images = self.image[rows][order]
        first_rows: Ints = rows[order][np.r_[True, images[1:] != images[:-1]][: len(images)]]
        return first_rows

    def where(self, kept: Ints | Mask) -> CellImages:
        """Returns the same cells with only these rows."""
        return replace(self, cell=self.cell[kept], image=self.image[kept], caption=self.caption[kept])

    def without_copies(self, pictures: Ints | None) -> CellImages:
        """Keeps one image of each picture in a cell: the first by its id.

        `pictures`: the picture of each image; None: all images are different pictures.
        """
        if pictures is None or not len(self.image):
            return self
        keys = self.cell * (int(pictures.max()) + 1) + pictures[self.image]
        copies = np.flatnonzero(repeated(keys))
        copies = copies[self.ids.alphabetical(self.image[copies])]
        copies = copies[np.argsort(keys[copies], kind="stable")]
        is_repeat = keys[copies[1:]] == keys[copies[:-1]]
        keep = np.ones(len(self.image), bool)
        keep[copies[1:][is_repeat]] = False
        return self.where(keep)

    def shared(self, pictures: Ints | None) -> Ints:
        """Returns how many images of each cell other values of its attribute hold too, themselves or as copies.

        Each cell must hold a picture once, as after `without_copies`.
        """
        of_image = np.arange(len(self.ids)) if pictures is None else pictures
        group = np.zeros(len(self.names), np.int64)
        for number, members in enumerate(self.groups):
            group[members.cells] = number
        keys = group[self.cell] * (int(of_image.max(initial=0)) + 1) + of_image[self.image]
        return np.bincount(self.cell[repeated(keys)], minlength=len(self.names))


def images_of_cells(captions: pa.Table, draws: pa.Table) -> CellImages:
    """Returns the cells of single attributes."""
    return joined(captions, draws, ATTRIBUTE)


def images_of_pairs(captions: pa.Table, draws: pa.Table) -> CellImages:
    """Returns the cells of two attributes at once."""
    return joined(captions, draws, INTERSECTION)


def joined(captions: pa.Table, draws: pa.Table, kind: str) -> CellImages:
    """Joins the captions of this kind with the draws."""
    names, of_caption = cells_of_captions(captions, kind)
    position = _turns(of_caption)
    caption = captions_of_draws(captions, draws)
    ids, image = ImageIds.numbered(draws["image_id"])
    drawn_rows = np.flatnonzero(caption >= 0)
    drawn_rows = drawn_rows[of_caption[caption[drawn_rows]] >= 0]
    caption, image = caption[drawn_rows], image[drawn_rows].astype(np.int64)
    # One number holds cell, image and the caption's turn in its cell, so that one sort puts the first caption first.
    n_positions, images = int(position.max(initial=0)) + 1, len(ids)
    keys = np.sort((of_caption[caption] * images + image) * n_positions + position[caption])
    of_image = keys // n_positions
    first = np.r_[True, of_image[1:] != of_image[:-1]][: len(keys)]
    keys, of_image = keys[first], of_image[first]
    cell, image = np.divmod(of_image, max(images, 1))
    rows = np.flatnonzero(of_caption >= 0)
    row_of_turn = np.zeros((len(names), n_positions), np.int64)
    row_of_turn[of_caption[rows], position[rows]] = rows
    return CellImages(names, ids, cell, image, row_of_turn[cell, keys % n_positions])


def similarities(cells: CellImages, captions: pa.Table, draws: pa.Table) -> NDArray[np.float64]:
    """Returns for each row of the cells the largest similarity of its image to a caption of its cell that drew it; NaN
    where none is known."""
    of_caption = np.append(cells.cells_of(captions), -1)  # for draws of no caption
    cell, image = of_caption[captions_of_draws(captions, draws)], cells.ids.numbers(draws["image_id"])
    has_similarity = draws["similarity"].is_valid().to_numpy()
    cosines = pc.fill_null(draws["similarity"], 0.0).to_numpy().astype(np.float64)
    result, size = np.full(len(cells.cell), -np.inf), max(len(cells.ids), 1)
    keys, key_of_draw = cells.cell * size + cells.image, cell * size + image
    positions = np.minimum(np.searchsorted(keys, key_of_draw), max(len(keys) - 1, 0))
    rows = np.flatnonzero(has_similarity & (cell >= 0) & (image >= 0))
    rows = rows[keys[positions[rows]] == key_of_draw[rows]] if len(keys) else rows[:0]
    np.maximum.at(result, positions[rows], cosines[rows])
    return np.where(np.isinf(result), np.nan, result)


def cells_of_captions(captions: pa.Table, kind: str) -> tuple[tuple[CellName, ...], Ints]:
    """Returns the cells in the order of their captions, those of one attribute adjacent, and the cell of each caption,
    -1 where the caption is of another kind.

    Raises ValueError where a caption has no kind: it would belong to no cell, and nothing would be scored in silence.
    """
    if captions["kind"].null_count:
        raise ValueError(f"captions without a kind: {captions['kind'].null_count} of {captions.num_rows}")
    columns = (captions[name].to_pylist() for name in ("kind", "target_class", "attribute", "bias_class"))
    rows = [CellName(*cell) if kind_of_row == kind else None for kind_of_row, *cell in zip(*columns, strict=True)]
    order = {group: i for i, group in enumerate(dict.fromkeys(name[:2] for name in rows if name is not None))}
    names = sorted(dict.fromkeys(name for name in rows if name is not None), key=lambda name: order[name[:2]])
    number = {name: i for i, name in enumerate(names)}
    return tuple(names), np.array([-1 if name is None else number[name] for name in rows], np.int64)


def _turns(of_caption: Ints) -> Ints:
    """Returns the position of each caption among those of its cell."""
    last_position: dict[int, int] = {}
    turns = np.zeros(len(of_caption), np.int64)
    for row, cell in enumerate(of_caption.tolist()):
        turns[row] = last_position[cell] = last_position.get(cell, -1) + 1
    return turns


def captions_of_draws(captions: pa.Table, draws: pa.Table) -> Ints:
    """Returns the row of `captions` that each draw belongs to; -1 for none of them."""
    return codes(draws["caption_id"], captions["caption_id"].cast(pa.large_string()).combine_chunks())


def counts_by_source(captions: pa.Table, draws: pa.Table) -> dict[CellKey, dict[str, int]]:
    """Returns how many draws each cell, pairs' cells included, has from each source."""
    caption = captions_of_draws(captions, draws)
    names, source = numbered(draws["source"])
    keys, counts = counted((caption * len(names) + source)[caption >= 0])
    cells = list(zip(captions["proposal_id"].to_pylist(), captions["bias_class"].to_pylist(), strict=True))
    by_cell: dict[CellKey, dict[str, int]] = {}
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        row, number = divmod(key, len(names))
        of_cell = by_cell.setdefault(cells[row], {})
        of_cell[names[number].as_py()] = of_cell.get(names[number].as_py(), 0) + count
    return by_cell


def is_labelled(draws: pa.Table) -> bool:
    """Returns whether the images are rows of a labelled table: no caption drew them, and their content is known."""
    return draws.num_rows > 0 and set(draws["source"].unique().to_pylist()) == {"labelled"}


def classes_of_labelled(captions: pa.Table, draws: pa.Table) -> tuple[ImageIds, Ints] | None:
    """Returns the labelled images that were drawn, and a number for the class of each, or for the set of its classes;
    None for images that captions drew, whose classes are not known."""
    if not is_labelled(draws):
        return None
    ids, image, classes = _image_classes(captions, draws)
    of_image = np.full(len(ids), -1, np.int64)
    if len(image) == len(np.unique(image)):
        of_image[image] = classes
        return ids, of_image
    sets: dict[tuple[int, ...], int] = {}
    ends = np.flatnonzero(np.r_[image[1:] != image[:-1], True]) + 1
    for start, end in zip(np.r_[0, ends[:-1]].tolist(), ends.tolist(), strict=True):
        of_image[image[start]] = sets.setdefault(tuple(classes[start:end].tolist()), len(sets))
    return ids, of_image


def shows_several(captions: pa.Table, draws: pa.Table) -> bool:
    """Returns whether any labelled image was drawn for several classes: it shows them all."""
    if not is_labelled(draws):
        return False
    _, image, _ = _image_classes(captions, draws)
    return len(image) > len(np.unique(image))


def _image_classes(captions: pa.Table, draws: pa.Table) -> tuple[ImageIds, Ints, Ints]:
    """Returns the images that were drawn, and the pairs of an image's number and a class's for which it was, each once
    and in order."""
    ids, image = ImageIds.numbered(draws["image_id"])
    names, of_caption = numbered(captions["target_class"])
    width = max(len(names), 1)
    caption = captions_of_draws(captions, draws)
    pairs = np.unique((image * width + of_caption[caption])[caption >= 0])
    image, classes = np.divmod(pairs, width)
    return ids, image, classes
