"""Attributes that nobody annotated: numbers of each image, cut into values before any answer is looked at.

A number is cut within each class: `low` is the lowest fifth of the class's images, `high` the highest, `medium` the
rest. φ compares images of one class, so each class needs images on both sides of an edge, and edges common to all
classes leave a class of night pictures without a bright one (`docs/decisions/031-where-measurements-are-cut.md` has
the simulation that chose the shares). Values that have names, such as hues, are taken as they are.

It knows columns and classes; neither images nor files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from c2b_ray.metrics.cuts import LEAST_SHARE, assigned, quantile_edges
from c2b_ray.names import normalise
from c2b_ray.steps.image_properties import ImageProperty
from c2b_ray.steps.labels import TARGET, Compared

Origin = Literal["property", "number", "date"]
"""Where a derived attribute comes from: an image, or a column of numbers or of dates."""

SHARES = (0.2, 0.8)
"""The shares of a class's images below each edge."""
LOW_TO_HIGH = ("low", "medium", "high")

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Derived:
    """An attribute that was derived, and its `column` of values: a dictionary of texts, null where there is none.

    `measure`: what was measured, for sentences. `ranges`: class → value → its range in words, such as "below 61"; the
    class is an empty text where the ranges are those of all classes.
    """

    attribute: str
    origin: Origin
    measure: str
    column: pa.DictionaryArray
    ranges: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Returns the entry in a run's manifest."""
        ranges = {name: dict(of_class) for name, of_class in self.ranges.items()}
        return {"attribute": self.attribute, "origin": self.origin, "measure": self.measure, "ranges": ranges}


@dataclass(frozen=True)
class OfClasses:
    """The audit's classes, and which of them each row belongs to: `places`, (rows,), −1 for none."""

    classes: tuple[str, ...]
    places: Places

    @staticmethod
    def of(labels: pa.Table, classes: Sequence[str]) -> OfClasses:
        targets = Compared.of(labels, TARGET)
        forms = {normalise(name): place for place, name in enumerate(classes)}
        of_forms = np.array([-1 if form is None else forms.get(form, -1) for form in targets.forms], np.int64)
        return OfClasses(tuple(classes), of_forms[targets.numbers])

    @property
    def rows(self) -> Places:
        """Returns the numbers of the rows of any class, ascending."""
        return np.flatnonzero(self.places >= 0)


def cut_within_classes(
    attribute: str, origin: Origin, measure: str, numbers: ArrayLike, of: OfClasses, words: Sequence[str] = LOW_TO_HIGH
) -> Derived | str:
    """Returns the attribute of numbers, (rows,), NaN where there is none, cut within each class; or why there is none.

    `words`: for low, middle and high numbers. A class whose images are too alike for an edge (`quantile_edges`) has no
    values; with one edge alone, it has the first and the last word.
    """
    x = np.asarray(numbers, np.float64)
    places = np.full(len(x), -1, np.int64)
    ranges: dict[str, dict[str, str]] = {}
    for place, name in enumerate(of.classes):
        here = np.flatnonzero(of.places == place)
        edges = quantile_edges(x[here], SHARES).tolist()
        if edges:
            chosen = list(range(len(words))) if len(edges) == len(SHARES) else [0, len(words) - 1]
            places[here] = np.array([*chosen, -1])[assigned(x[here], edges)]
            ranges[name] = dict(zip((words[at] for at in chosen), ranges_of(edges), strict=True))
    if not ranges:
        return _too_alike(x[of.rows])
    return Derived(attribute, origin, measure, coded(places, words), ranges)


def cut_at(attribute: str, origin: Origin, measure: str, numbers: ArrayLike, edges: Sequence[float]) -> Derived:
    """Returns the attribute of numbers cut at the same edges in all classes; each value is its range in words."""
    words = ranges_of(edges)
    return Derived(attribute, origin, measure, coded(assigned(numbers, edges), words), {"": {w: w for w in words}})


def named_values(
    attribute: str,
    origin: Origin,
    measure: str,
    values: pa.Array,
    of: OfClasses,
    ranges: Mapping[str, str] | None = None,
) -> Derived | str:
    """Returns the attribute of values that are names, without those of less than `LEAST_SHARE` of a class; or why there
    is none. `ranges`: value → its range in words, where it has one."""
    distinct = values.cast(pa.string()).dictionary_encode()
    names = distinct.dictionary.to_pylist()
    at = distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    kept = np.full(len(at), -1, np.int64)
    for place in range(len(of.classes)):
        here = np.flatnonzero(of.places == place)
        counts = np.bincount(at[here][at[here] >= 0], minlength=len(names))
        common = counts >= max(1.0, LEAST_SHARE * len(here))
        if common.sum() >= 2:
            kept[here] = np.where((at[here] >= 0) & np.append(common, False)[at[here]], at[here], -1)
    if not (kept >= 0).any():
        return "no class has two values with a twentieth of its images each"
    return Derived(attribute, origin, measure, coded(kept, names), {"": dict(ranges)} if ranges else {})


def coded(places: Places, names: Sequence[str]) -> pa.DictionaryArray:
    """Returns the name at each place, null for −1: one byte or two a row, where texts would take ten times as much."""
    numbers = places.astype(np.int8 if len(names) < 128 else np.int16 if len(names) < 32_768 else np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=places < 0), pa.array(list(names), pa.string()))


def derived_properties(
    properties: pa.Table, wanted: Sequence[ImageProperty], of: OfClasses
) -> tuple[list[Derived], dict[str, str]]:
    """Returns the attributes of measured images, and of those that are none: name → the reason.

    `properties`: of `schemas.PROPERTIES`, with `row` and the wanted columns. Images without a row there have no value.
    """
    rows = properties["row"].to_numpy()
    attributes, reasons = [], {}
    for one in wanted:
        if one.values:
            numbers = np.full(len(of.places), np.nan)
            numbers[rows] = properties[one.column].to_numpy()
            found = cut_within_classes(one.name, "property", one.measure, numbers, of, one.values)
        else:
            names = np.full(len(of.places), -1, np.int64)
            distinct = properties[one.column].combine_chunks().dictionary_encode()
            names[rows] = distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            values = coded(names, distinct.dictionary.to_pylist())
            found = named_values(one.name, "property", one.measure, values, of)
        if isinstance(found, Derived):
            attributes.append(found)
        else:
            reasons[one.name] = found
    return attributes, reasons


def with_derived(labels: pa.Table, derived: Sequence[Derived]) -> pa.Table:
    """Returns the labels with the columns of derived attributes, each in place of a column of its name."""
    for one in derived:
        if one.attribute in labels.column_names:
            labels = labels.set_column(labels.column_names.index(one.attribute), one.attribute, one.column)
        else:
            labels = labels.append_column(one.attribute, one.column)
    return labels


def with_origins(proposals: pa.Table, derived: Sequence[Derived]) -> pa.Table:
    """Returns the proposals, `source` of the derived attributes being where they come from."""
    origins = {one.attribute: one.origin for one in derived}
    sources = [
        origins.get(attribute, source)
        for attribute, source in zip(proposals["attribute"].to_pylist(), proposals["source"].to_pylist(), strict=True)
    ]
    at = proposals.schema.get_field_index("source")
    return proposals.set_column(at, proposals.schema.field(at), pa.array(sources, pa.string()))


def ranges_of(edges: Sequence[float]) -> list[str]:
    """Returns the ranges between edges in words, from low to high; each edge belongs to the range above it."""
    shown = [f"{edge:.12g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(shown)]
    return [f"below {shown[0]}", *between, f"{shown[-1]} or more"]


def _too_alike(numbers: NDArray[np.float64]) -> str:
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return "no image has it"
    value, count = max(zip(*np.unique(known, return_counts=True), strict=True), key=lambda pair: pair[1])
    return f"the images of each class are too alike in it ({count / len(known):.0%} have {value:.4g})"
