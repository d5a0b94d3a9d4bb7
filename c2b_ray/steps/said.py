"""A verifier's answers about images, as numbers: one row for each image and class that it was checked for.

It knows the rows of the verifications; `verifier` knows how far to trust them, and `verified` which images matter.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.steps.cells import CellImages, CellName
from c2b_ray.steps.image_ids import ImageIds, Ints, Mask, codes, vocabulary

NOTHING = -1
"""The number of no row, no class or no value."""


class Said:
    """The rows of `verifications`, a table of that schema, by image number and target class."""

    def __init__(self, verifications: pa.Table) -> None:
        self.ids, image = ImageIds.numbered(verifications["image_id"])
        names, values = (pc.list_flatten(verifications[name]) for name in ("attributes", "values"))
        targets, classes = verifications["target_class"], verifications["class_shown"]
        self.words = vocabulary(targets, classes, names, values)
        self._number = {word: i for i, word in enumerate(self.words.to_pylist())}
        self.target, self._class = codes(targets, self.words), np.append(codes(classes, self.words), NOTHING)
        self._names, self._values = codes(names, self.words), np.append(codes(values, self.words), NOTHING)
        self._failed: Mask = np.append(verifications["error"].is_valid().to_numpy(), True)
        self._lengths: Ints = np.append(pc.list_value_length(verifications["attributes"]).to_numpy(), 0)
        lengths = self._lengths.astype(np.int64)
        self._starts = np.cumsum(lengths) - lengths
        keys = self.target * np.int64(len(self.ids)) + image
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def number(self, word: str) -> int:
        """Returns the number of a name of a class, an attribute or a value; NOTHING where the verifier never
        gave it."""
        return self._number.get(word, NOTHING)

    def word(self, number: int) -> str:
        return str(self.words[number].as_py())

    def rows(self, target: Ints, images: Ints) -> Ints:
        """Returns the row of each image, checked for the class with the number `target`; NOTHING where it was not
        checked.

        `images`: numbers in `ids`.
        """
        if not len(self._keys):
            return np.full(len(images), NOTHING)
        keys = target * np.int64(len(self.ids)) + images
        at = np.maximum(np.searchsorted(self._keys, keys, side="right") - 1, 0)
        known = (self._keys[at] == keys) & (images >= 0) & (target >= 0)
        return np.where(known, self._order[at], NOTHING)

    def rows_of(self, cells: CellImages) -> Ints:
        """Returns the row of each image of the cells, checked for the class of its cell."""
        image = self.ids.numbers(cells.ids.ids)[cells.image]
        target = np.array([self.number(name.target_class) for name in cells.names], np.int64)[cells.cell]
        return self.rows(target, image)

    def accepts(self, rows: Ints, cell: CellName) -> Mask:
        """Returns for these rows whether the verifier saw a cell's class and value, or was not asked about them.

        An image without a verification is refused, and so is one where it gave no answer to a question.
        """
        value = self.values(cell.attribute, rows)
        has_question = self.asks(cell.attribute, rows)
        shown = self.class_shown(rows)
        of_class = (shown == NOTHING) | (shown == self.number(cell.target_class))
        of_value = ~has_question | ((value == self.number(cell.bias_class)) & (value != NOTHING))
        accepted: Mask = (rows != NOTHING) & ~self._failed[rows] & of_class & of_value
        return accepted

    def class_shown(self, rows: Ints) -> Ints:
        """Returns the number of the class that the verifier saw; NOTHING where it named none."""
        classes: Ints = self._class[rows]
        return classes

    def has_attributes(self, rows: Ints) -> Mask:
        """Returns whether the verifier was asked about any attribute."""
        return np.asarray(self._lengths[rows] > 0)

    def attributes(self, rows: Ints) -> list[str]:
        """Returns the attributes that the verifier was asked about on these rows, sorted."""
        numbers: set[int] = set()
        for position in range(int(self._lengths[rows].max(initial=0))):
            longer = rows[self._lengths[rows] > position]
            numbers |= set(np.flatnonzero(np.bincount(self._names[self._starts[longer] + position])).tolist())
        return sorted(self.word(number) for number in numbers)

    def values(self, attribute: str, rows: Ints) -> Ints:
        """Returns the number of the value that the verifier saw of an attribute; NOTHING where it named none."""
        return self._values[self._positions(attribute, rows)]

    def asks(self, attribute: str, rows: Ints) -> Mask:
        """Returns whether the verifier was asked about the attribute."""
        has_question: Mask = self._positions(attribute, rows) != NOTHING
        return has_question

    def _positions(self, attribute: str, rows: Ints) -> Ints:
        """Returns the position of each row's value of an attribute in the list of all values; NOTHING where it has
        none."""
        name, positions = self.number(attribute), np.full(len(rows), NOTHING)
        left, position = np.arange(len(rows)), 0
        while True:
            left = left[self._lengths[rows[left]] > position]
            if not len(left):
                return positions
            at = self._starts[rows[left]] + position
            here = self._names[at] == name
            positions[left[here]] = at[here]
            left, position = left[~here], position + 1
