"""What a classifier took each image for, seen from one target class.

It knows which rows of the predictions count as right; how they came about is `predict`'s.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

UNDECIDED = "no single answer"
"""What an image was taken for whose answer is a tie, or has no probability on any class: a wrong answer."""

Taken = Mapping[str, str | None]
"""Image id → the target class where the answer is right, else what the image was taken for; None: no answer."""


class Answers:
    """The answers of one classifier of `predictions`, a table of `schemas.PREDICTIONS`."""

    def __init__(self, predictions: pa.Table, classifier: str) -> None:
        own = predictions.filter(pc.equal(predictions["classifier"], classifier))
        columns = ("image_id", "label", "predicted_class", "answered", "undecided", "error")
        self._rows = list(zip(*(own[name].to_pylist() for name in columns), strict=True))
        self._of: dict[str, Taken] = {}
        # Asked of every group of cells, by sets of images.
        self._answered = frozenset(image for image, *_, error in self._rows if error is None)
        self._undecided = frozenset(image for image, *_, undecided, _ in self._rows if undecided is not None)

    def of(self, target_class: str) -> Taken:
        """What each image was taken for, where images of `target_class` are looked at."""
        if target_class not in self._of:
            self._of[target_class] = {row[0]: _taken(target_class, *row[1:]) for row in self._rows}
        return self._of[target_class]

    def answered(self) -> frozenset[str]:
        """The images with an answer, right or wrong."""
        return self._answered

    def undecided(self) -> frozenset[str]:
        """The images whose answer is no single one."""
        return self._undecided


def answers_of(predictions: pa.Table, classifier: str) -> Answers:
    return Answers(predictions, classifier)


def _taken(
    target: str,
    label: str | None,
    named: str | None,
    answered: list[str] | None,
    undecided: str | None,
    error: str | None,
) -> str | None:
    if error is not None:
        return None
    if undecided is not None:
        return UNDECIDED
    if target in (answered if answered is not None else [named]):
        return target
    if named is not None and named != target:
        return named
    if label is None and answered:  # by top5, several labels are likeliest, and this class has none of the five
        return UNDECIDED
    # A label that is spelled as the target, but does not stand for it, is no right answer.
    return f"{label} (another label)" if label == target else label
