"""Attributes of images as numbers, and the views of a dataset in which bias is measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from c2b_ray.metrics import Ints
from c2b_ray.names import folded

GLOBAL, ALL = "global", "all"


@dataclass(frozen=True)
class Attribute:
    """`codes` (images,): the number of each image's value in `values`, or -1 where it has none."""

    name: str
    values: tuple[str, ...]
    codes: Ints

    @staticmethod
    def of(name: str, column: Sequence[str | None]) -> Attribute:
        """Spellings that differ in case alone are one value, called by the most frequent of them."""
        counts = Counter(value for value in column if value is not None)
        spelling: dict[str, str] = {}
        for value, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            spelling.setdefault(folded(value), value)
        values = tuple(sorted(spelling.values()))
        numbers = {folded(value): number for number, value in enumerate(values)}
        codes = [-1 if value is None else numbers[folded(value)] for value in column]
        return Attribute(name, values, np.array(codes, np.int64))

    def within(self, members: Ints) -> Ints:
        """Returns the codes of these images."""
        return self.codes[members]

    def problem(self, members: Ints) -> str | None:
        """Returns why no bias can be measured among these images; None where it can."""
        counts = np.bincount(self.codes[members][self.codes[members] >= 0], minlength=len(self.values))
        if len(self.values) < 2:
            what = f"only {self.values[0]!r}" if self.values else "none"
            return f"{self.name} has {what} as a value: a bias needs two"
        absent = [value for value, count in zip(self.values, counts, strict=True) if count == 0]
        if absent:
            return f"no image here has the {self.name} {absent[0]!r}: its rate is unknown, so the bias is"
        return None


@dataclass(frozen=True)
class View:
    """Some images of a dataset: all, or those of a group that models' clusters share. `members`: ascending."""

    view: str
    group: str
    members: Ints

    @staticmethod
    def everything(images: int) -> View:
        return View(GLOBAL, ALL, np.arange(images))

    @property
    def label(self) -> str:
        return GLOBAL if self.view == GLOBAL else f"group {self.group}"
