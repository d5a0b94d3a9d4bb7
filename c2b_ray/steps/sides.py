"""Compares two classifiers on the images that both saw: which images count, and what each got right.

It knows which images belong to which cell; an image counts if both sides drew it and both classifiers answered it. It
knows nothing of runs, files or formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from c2b_ray.steps.answers import CellAnswers, answers_of, counts_by_caption
from c2b_ray.steps.cells import CellImages, CellName, Group, images_of_cells
from c2b_ray.steps.clusters_of_images import Clusters, ClusterSums, cluster_sums
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.image_ids import Ints, Mask
from c2b_ray.steps.said import Said


@dataclass(frozen=True)
class Side:
    """One of the two sides of a comparison: tables of `schemas.CAPTIONS`, `DRAWS` and `PREDICTIONS`, the classifier,
    and which images are near-duplicates of others.

    `said`: a verifier's answers about the images; None without a verifier. `doubts`: why the side's score of a cell is
    in doubt. `clusters`: of the images; None where they are independent. A's count.
    """

    captions: pa.Table
    draws: pa.Table
    predictions: pa.Table
    classifier: str
    distinct: Distinct | None = None
    said: Said | None = None
    doubts: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    clusters: Clusters | None = None


@dataclass(frozen=True)
class PairCount:
    """The images of one cell.

    `n`: those that count, of which both sides got `both` right, and only one side `only_a` and `only_b`. Not counted in
    n: images that only one side drew, that the verifier refused, that repeat another, and that a classifier did not
    answer. `by_caption`: (only_a, only_b, n) of each caption that has such images; labelled images count as one
    caption's.
    """

    n: int = 0
    both: int = 0
    unshared: int = 0
    refused: int = 0
    unanswered: int = 0
    repeats: int = 0
    only_a: int = 0
    only_b: int = 0
    by_caption: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Disagreement:
    """Images of a cell that only one side got right, each with the other side's answer, in the ids' order."""

    only_a: tuple[tuple[str, str], ...] = ()
    only_b: tuple[tuple[str, str], ...] = ()


class SharedImages:
    """The images that both sides drew for the same cell. Cells and numbers of images are A's."""

    def __init__(self, a: Side, b: Side) -> None:
        self.a, self.b = a, b
        self._drawn_a, self._drawn_b = (images_of_cells(side.captions, side.draws) for side in (a, b))
        self._common = self._drawn_a.where(self._drawn_by_both())
        self._shown = self._common if a.said is None else self._common.where(_accepted(self._common, a.said))
        pictures = None if a.distinct is None else a.distinct.pictures(self._drawn_a.ids)
        self._counted = self._shown.without_copies(pictures)
        self._of_a, self._of_b = (answers_of(side.predictions, side.classifier).to(self._counted) for side in (a, b))

    def _drawn_by_both(self) -> Mask:
        one, other = self._drawn_a, self._drawn_b
        cell = np.array([one.number.get(name, -1) for name in other.names], np.int64)[other.cell]
        image = one.ids.numbers(other.ids.ids)[other.image]
        known = (cell >= 0) & (image >= 0)
        keys = cell[known] * len(one.ids) + image[known]
        return np.isin(one.cell * len(one.ids) + one.image, keys)

    @cached_property
    def _answered(self) -> Mask:
        return self._of_a.answered & self._of_b.answered

    @cached_property
    def counts(self) -> dict[Group, dict[str, PairCount]]:
        """Returns the counts of every cell of either side, A's order first."""
        a, b = self._of_a, self._of_b
        by_a, by_b = a.right & ~b.right & self._answered, b.right & ~a.right & self._answered
        n, both, only_a, only_b = map(a.count, (self._answered, a.right & b.right & self._answered, by_a, by_b))
        by_caption = counts_by_caption(self._counted, (by_a, by_b, self._answered))
        common, shown, kept = self._common.sizes, self._shown.sizes, self._counted.sizes
        columns = {
            "n": n, "both": both, "unshared": self._unshared(), "refused": common - shown, "unanswered": kept - n,
            "repeats": shown - kept, "only_a": only_a, "only_b": only_b,
        }  # fmt: skip
        of_b = zip(self._drawn_b.names, self._drawn_b.sizes.tolist(), strict=True)
        counts: dict[CellName, PairCount] = {
            name: PairCount(
                **{column: int(values[number]) for column, values in columns.items()},
                by_caption=tuple(by_caption[number]),
            )
            for number, name in enumerate(self._drawn_a.names)
        }
        counts |= {name: PairCount(unshared=size) for name, size in of_b if name not in counts}
        by_group: dict[Group, dict[str, PairCount]] = {}
        for name, count in counts.items():
            by_group.setdefault(Group(*name[:2]), {})[name.bias_class] = count
        return by_group

    @cached_property
    def gains(self) -> dict[CellName, ClusterSums] | None:
        """Returns for each of A's cells, by cluster, the images that count, and how many more of them B got right than
        A; None where images are independent."""
        if self.a.clusters is None:
            return None
        of_row = self.a.clusters.of(self._counted)
        gain = self._of_b.right.astype(np.int64) - self._of_a.right
        return {
            name: cluster_sums(self._counted, slice(number, number + 1), of_row, gain, self._answered)
            for number, name in enumerate(self._counted.names)
        }

    def _unshared(self) -> Ints:
        """Returns for each of A's cells the number of images that only one side drew."""
        sizes = dict(zip(self._drawn_b.names, self._drawn_b.sizes.tolist(), strict=True))
        of_b = np.array([sizes.get(name, 0) for name in self._drawn_a.names], np.int64)
        return self._drawn_a.sizes + of_b - 2 * self._common.sizes

    def disagreements(self, cells: Sequence[tuple[str, str, str]]) -> dict[CellName, Disagreement]:
        """Returns for each of these cells the images that only one side got right, as many as in `counts`."""
        return {
            name: Disagreement(self._only(name, self._of_a, self._of_b), self._only(name, self._of_b, self._of_a))
            for name in (CellName(*cell) for cell in cells)
        }

    def _only(self, name: CellName, right: CellAnswers, wrong: CellAnswers) -> tuple[tuple[str, str], ...]:
        """Returns the images of a cell that one side got right and the other wrong, with the wrong answer."""
        number = self._counted.number.get(name)
        if number is None:
            return ()
        rows = np.arange(*self._counted.starts[number : number + 2])
        rows = rows[right.right[rows] & wrong.answered[rows] & ~wrong.right[rows]]
        rows = rows[self._counted.ids.alphabetical(self._counted.image[rows])]
        images = self._counted.ids.names(self._counted.image[rows]).to_pylist()
        return tuple(zip(images, map(wrong.answers.name, wrong.taken[rows].tolist()), strict=True))


def _accepted(cells: CellImages, said: Said) -> Mask:
    """Returns whether the verifier saw class and value in each image."""
    accepted = np.zeros(len(cells.cell), bool)
    rows = said.rows_of(cells)
    for number, name in enumerate(cells.names):
        of_cell = slice(*cells.starts[number : number + 2].tolist())
        accepted[of_cell] = said.accepts(rows[of_cell], name)
    return accepted
