"""The classes that a classifier took images for, seen from one target class.

It knows which rows of the predictions count as right; `classify` makes the predictions. Names are numbers of a
vocabulary, so that the answers to millions of images are arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.steps.cells import CellImages, classes_of_labelled, images_of_cells
from c2b_ray.steps.classify import BELOW
from c2b_ray.steps.draw import ImageIds, Ints, Mask, codes, counted, vocabulary
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.tables import FAILURES

UNDECIDED = "no single answer"
"""The answer where it is a tie or no class has any probability; it counts as wrong."""

Taken = Mapping[str, str | None]
"""Image id → the target class where the answer is right, else what the image was taken for; None: no answer."""

NO_ANSWER, UNKNOWN = -1, -2
"""The number of no name: there is no answer, or no row of the predictions has this name."""


def named_class(predicted_class: str | None) -> str:
    """Returns the class of a row of the predictions; "" where it has none, or gives each label on its own."""
    return "" if predicted_class in (None, BELOW) else str(predicted_class)


def gives_each_label(predictions: pa.Table) -> bool:
    """Returns whether a classifier of these predictions gives each label on its own."""
    return bool(pc.any(pc.equal(predictions["predicted_class"], BELOW), min_count=0).as_py())


class ClassifierAnswers:
    """The answers of one classifier of `predictions`, a table of `tables.PREDICTIONS`."""

    def __init__(self, predictions: pa.Table, classifier: str) -> None:
        of_classifier = pc.equal(predictions["classifier"], classifier)

        def column(name: str) -> pa.ChunkedArray:
            return predictions[name].filter(of_classifier)

        label, predicted, answered = column("label"), column("predicted_class"), column("answered")
        flat_answers = pc.list_flatten(answered)
        self._images = column("image_id")
        self._probabilities = column("probabilities") if "probabilities" in predictions.column_names else None
        self._words = vocabulary(label, predicted, flat_answers, pa.array([UNDECIDED]))
        self._number = {name: i for i, name in enumerate(self._words.to_pylist())}
        self._listed = codes(flat_answers, self._words)
        # Each ends with a row for images without an answer, so that index -1 gives a failed answer.
        self._label = np.append(codes(label, self._words), NO_ANSWER)
        self._predicted = np.append(codes(predicted, self._words), NO_ANSWER)
        self._undecided: Mask = np.append(column("undecided").is_valid().to_numpy(), False)
        self._failed: Mask = np.append(column("error").is_valid().to_numpy(), True)
        # The number of classes that the answer is right for; -1: `predicted_class` alone.
        self._lengths: Ints = np.append(pc.fill_null(pc.list_value_length(answered), -1).to_numpy(), -1)

    @cached_property
    def _starts(self) -> Ints:
        lengths = np.maximum(self._lengths, 0).astype(np.int64)
        return np.cumsum(lengths) - lengths

    def number(self, name: str) -> int:
        """Returns the number of a name; UNKNOWN where no answer has it."""
        return self._number.get(name, UNKNOWN)

    def name(self, number: int) -> str:
        """Returns the name of a number in `taken`. The number must not be NO_ANSWER."""
        if number >= len(self._words):
            # A label that is spelled as the target, but does not stand for it, is no right answer.
            return f"{self._words[number - len(self._words)].as_py()} (another label)"
        return str(self._words[number].as_py())

    def rows_of(self, ids: ImageIds) -> Ints:
        """Returns the row of the answer to each image; -1 where the classifier has no row for it."""
        numbers = ids.numbers(self._images)
        rows = np.full(len(ids), -1, np.int64)
        answered_rows = np.flatnonzero(numbers >= 0)
        rows[numbers[answered_rows]] = answered_rows
        return rows

    def taken(self, rows: Ints, target: Ints) -> Ints:
        """Returns what each row's image was taken for, where the target class has the number `target`.

        That is `target` where the answer is right, otherwise the number of another name, or NO_ANSWER.
        """
        label, predicted = self._label[rows], self._predicted[rows]
        names = np.where(label == target, label + len(self._words), label)
        # By top5, several labels are likeliest, and this class has none of the five.
        names[(label == NO_ANSWER) & (self._lengths[rows] > 0)] = self.number(UNDECIDED)
        is_other = (predicted != NO_ANSWER) & (predicted != target)
        names[is_other] = predicted[is_other]
        right = self._right(rows, target)
        names[right] = target[right]
        names[self._undecided[rows]] = self.number(UNDECIDED)
        names[self._failed[rows]] = NO_ANSWER
        return names

    def _right(self, rows: Ints, target: Ints) -> Mask:
        lengths = self._lengths[rows]
        right: Mask = (lengths < 0) & (self._predicted[rows] == target)
        for position in range(int(lengths.max(initial=0))):
            rows_with_answer = np.flatnonzero(lengths > position)
            right[rows_with_answer] |= (
                self._listed[self._starts[rows[rows_with_answer]] + position] == target[rows_with_answer]
            )
        return right

    def is_undecided(self, rows: Ints) -> Mask:
        """Returns for each row whether it has no single answer."""
        undecided: Mask = self._undecided[rows]
        return undecided

    def probability(self, rows: Ints, position: int) -> NDArray[np.float64]:
        """Returns the probability of one of the audit's classes, by its position among them, for each row; NaN where it
        is not known."""
        if self._probabilities is None:
            return np.full(len(rows), np.nan)
        column = pc.list_element(self._probabilities.filter(self._probabilities.is_valid()), position)
        values = np.full(len(self._images) + 1, np.nan)  # the last: of images without an answer
        values[:-1][self._probabilities.is_valid().to_numpy()] = column.to_numpy()
        result: NDArray[np.float64] = values[rows]
        return result

    def to(self, cells: CellImages) -> CellAnswers:
        """Returns the answers to the images of every cell."""
        rows = self.rows_of(cells.ids)[cells.image]
        target = np.array([self.number(name.target_class) for name in cells.names], np.int64)[cells.cell]
        taken_for = self.taken(rows, target)
        return CellAnswers(cells, self, taken_for, taken_for == target, self.is_undecided(rows))

    def of(self, target_class: str) -> Taken:
        """Returns what each image was taken for, where `target_class` is the target."""
        rows = np.arange(len(self._images))
        numbers = self.taken(rows, np.full(len(rows), self.number(target_class)))
        names = {i: self.name(i) for i in set(numbers.tolist()) if i != NO_ANSWER}
        return dict(zip(self._images.to_pylist(), (names.get(i) for i in numbers.tolist()), strict=True))

    def answered(self) -> frozenset[str]:
        """Returns the images with an answer, right or wrong."""
        return frozenset(self._images.filter(pa.array(~self._failed[:-1])).to_pylist())


def answers_of(predictions: pa.Table, classifier: str) -> ClassifierAnswers:
    return ClassifierAnswers(predictions, classifier)


@dataclass(frozen=True)
class CellAnswers:
    """One classifier's answers to the images of `cells`; arrays have a value for each of its rows.

    `taken`: the number, in `answers`, of the class that the image was taken for. `right`, `undecided`: whether that is
    the target class, and whether there was no single answer.
    """

    cells: CellImages
    answers: ClassifierAnswers
    taken: Ints
    right: Mask
    undecided: Mask

    @cached_property
    def answered(self) -> Mask:
        is_answered: Mask = self.taken != NO_ANSWER
        return is_answered

    def count(self, rows: Mask) -> Ints:
        """Returns how many of these rows each cell has."""
        return np.bincount(self.cells.cell[rows], minlength=len(self.cells.names))

    def by_caption(self, captions: Ints | None = None) -> list[list[tuple[int, ...]]]:
        """Returns for each cell (right, answered) of each of its captions that has an answered image.

        They are in the order of `captions`, as in `counts_by_caption`.
        """
        return counts_by_caption(self.cells, (self.right, self.answered), captions)

    def names(self, rows: Ints) -> Counter[str]:
        """Counts the names that the images of these rows were taken for, right or wrong; images without an answer are
        left out."""
        numbers, counts = counted(self.taken[rows][self.answered[rows]])
        by_name: Counter[str] = Counter()
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            by_name[self.answers.name(number)] += count
        return by_name

    def wrong_names(self) -> list[dict[str, int]]:
        """Returns for each cell the names that its wrongly answered images were taken for, and how many of them."""
        wrong = self.answered & ~self.right
        width = int(self.taken.max(initial=0)) + 1
        by_cell: list[dict[str, int]] = [{} for _ in self.cells.names]
        keys, counts = counted(self.cells.cell[wrong] * width + self.taken[wrong])
        cells, numbers = np.divmod(keys, width)
        names = {number: self.answers.name(number) for number in set(numbers.tolist())}
        for cell, number, count in zip(cells.tolist(), numbers.tolist(), counts.tolist(), strict=True):
            by_cell[cell][names[number]] = by_cell[cell].get(names[number], 0) + count
        return by_cell


def counts_by_caption(
    cells: CellImages, kinds: Sequence[Mask], captions: Ints | None = None
) -> list[list[tuple[int, ...]]]:
    """Returns for each cell, and each of its captions that has a row of the last of `kinds`, how many of its rows are
    of each kind.

    `kinds`: for each kind, whether a row of `cells` is of it. `captions`: rows of the captions' table, in the order in
    which they are wanted; by default the table's.
    """
    size = int(cells.caption.max(initial=-1)) + 1
    counts = np.stack([np.bincount(cells.caption[rows], minlength=size) for rows in kinds], axis=1)
    cell = np.zeros(size, np.int64)
    cell[cells.caption] = cells.cell
    captions_shown = np.arange(size) if captions is None else captions[captions < size]
    captions_shown = captions_shown[counts[captions_shown, -1] > 0]
    by_cell: list[list[tuple[int, ...]]] = [[] for _ in cells.names]
    for number, of_caption in zip(cell[captions_shown].tolist(), counts[captions_shown].tolist(), strict=True):
        by_cell[number].append(tuple(of_caption))
    return by_cell


def by_column(by_caption: Sequence[Sequence[tuple[int, ...]]], kinds: int = 2) -> Ints:
    """Returns the counts of `counts_by_caption` as one array of (kinds, cells, most captions of a cell); 0 where a cell
    has fewer captions."""
    width = max(map(len, by_caption), default=0)
    counts = np.zeros((kinds, len(by_caption), width), np.int64)
    for row, of_cell in enumerate(by_caption):
        for column, of_caption in enumerate(of_cell):
            counts[:, row, column] = of_caption
    return counts


# Lists the images that a classifier got wrong, each with what it shows and what it was taken for.


def failures(captions: pa.Table, draws: pa.Table, images: pa.Table, predictions: pa.Table) -> pa.Table:
    """Returns a table of `tables.FAILURES`: a row per classifier, cell and image with a wrong answer.

    `images`: a table with image_id, key, content and fingerprint. Near-duplicates of an image count once in a cell, as
    in its scores; an image of several cells has a row in each. Images without an answer are no failures.
    """
    cells_drawn = images_of_cells(captions, draws)
    cells = cells_drawn.without_copies(Distinct(images, classes_of_labelled(captions, draws)).pictures(cells_drawn.ids))
    keys = images["key"].take(_rows_of(images, cells))
    tables = [_of_classifier(cells, keys, predictions, name) for name in predictions["classifier"].unique().to_pylist()]
    return pa.concat_tables([FAILURES.empty_table(), *tables])


def _of_classifier(cells: CellImages, keys: pa.ChunkedArray, predictions: pa.Table, classifier: str) -> pa.Table:
    """Returns the failures of one classifier. `keys`: the name of each image of `cells.ids` in its source."""
    answers = answers_of(predictions, classifier)
    cell_answers = answers.to(cells)
    wrong = np.flatnonzero(cell_answers.answered & ~cell_answers.right)
    by_name = wrong[cells.ids.alphabetical(cells.image[wrong])]
    wrong = by_name[np.argsort(cells.cell[by_name], kind="stable")]
    names = [cells.names[number] for number in cells.cell[wrong].tolist()]
    answer = {number: answers.name(number) for number in set(cell_answers.taken[wrong].tolist())}
    image = pa.array(cells.image[wrong])
    of_classifier = predictions.filter(pc.equal(predictions["classifier"], classifier)).select(
        ["label", "label_probability"]
    )
    of_image = of_classifier.take(pa.array(answers.rows_of(cells.ids)[cells.image[wrong]]))
    columns = {
        "key": keys.take(image),
        "truth": [name.target_class for name in names],
        "answer": [answer[number] for number in cell_answers.taken[wrong].tolist()],
        "cell": [f"{name.attribute}/{name.bias_class}" for name in names],
        "attribute": [name.attribute for name in names],
        "bias_class": [name.bias_class for name in names],
        "classifier": [classifier] * len(wrong),
        "label": of_image["label"],
        "label_probability": of_image["label_probability"],
        "image_id": cells.ids.ids.take(image).cast(pa.string()),
    }
    return pa.table(columns, schema=FAILURES)


def _rows_of(images: pa.Table, cells: CellImages) -> pa.Array:
    """Returns the row of each image of `cells.ids`; null for one that is not listed."""
    rows = np.full(len(cells.ids), -1, np.int64)
    numbers = cells.ids.numbers(images["image_id"])
    rows[numbers[numbers >= 0]] = np.flatnonzero(numbers >= 0)
    return pa.array(rows, mask=rows < 0)
