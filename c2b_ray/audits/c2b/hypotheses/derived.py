"""Attributes that nobody annotated: numbers of each image, cut into values before any answer is looked at.

A number is cut within each class: `low` is the lowest fifth of the class's images, `high` the highest, `medium` the
rest. φ compares images of one class, so each class needs images on both sides of an edge, and edges common to all
classes leave a class of night pictures without a bright one (`docs/decisions/031-where-measurements-are-cut.md` has
the simulation that chose the shares). Values that have names, such as hues, are taken as they are.

It knows columns and classes; neither images nor files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.stats.cuts import LEAST_SHARE, assigned, quantile_edges
from c2b_ray.steps.image_properties import ImageProperty
from c2b_ray.steps.labels import NUMBER, TARGET, WHOLE, ComparedColumn, no_attribute

Origin = Literal["property", "number", "date", "read", "word", "slice"]
"""Where a derived attribute comes from: a measured image, a column of numbers or of dates, a model that read its values
off the images, words of captions, or clusters of embeddings."""
FOUND_ON_A_HALF: tuple[Origin, ...] = ("word", "slice")
"""Images of the half on which these are found have no value of them."""

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
    """The audit's classes, and which of them each row belongs to: `places`, (rows,), −1 for none.

    Where an image may have several classes or none, all images are one group, with an empty name: what is cut is then
    cut alike for all classes.
    """

    classes: tuple[str, ...]
    places: Places

    @staticmethod
    def of(labels: pa.Table, classes: Sequence[str]) -> OfClasses:
        targets = ComparedColumn.of(labels, TARGET)
        if targets.held is not None:
            return OfClasses(("",), np.where(targets.missing, -1, 0))
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

    `properties`: of `tables.PROPERTIES`, with `row` and the wanted columns. Images without a row there have no value.
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


# Columns of numbers and dates of a labelled table, cut into values as measurements are (`derived`).


QUANTILES, HOUR, MONTH, YEAR = "quantiles", "hour", "month", "year"
CutBy = str | Sequence[float]

MOST_YEARS = 10
"""More years than this are cut as numbers are."""
HOURS = {
    "night": "0:00 to 5:59",
    "morning": "6:00 to 11:59",
    "afternoon": "12:00 to 17:59",
    "evening": "18:00 to 23:59",
}
MONTHS = ("December to February", "March to May", "June to August", "September to November")
"""Of three months each, by their names: which season they are depends on the hemisphere."""

_IDENTIFIER = re.compile(r"(^|[_\W])(id|idx|index|key|nr|no|number|row)$", re.IGNORECASE)
_OF_ANSWERS = re.compile(
    r"(^|[_\W])(pred|prediction|predicted|prob|probs|probability|confidence|conf|score|scores|logit|logits|softmax|loss"
    r"|margin|entropy|correct|rank|top1|top5)([_\W\d]|$)",
    re.IGNORECASE,
)
"""Names of numbers that a model gave. Whether it is sure says whether it is right, and is no property of an image."""
_OF_THREE = re.compile(r"(\d{1,2})([/.])(\d{1,2})[/.](\d{4})$")
_TIME = re.compile(r"(\d{1,2}):\d{2}(:\d{2})?$")


class Moment(NamedTuple):
    """A date or a time of day, as far as a text tells it."""

    year: int | None = None
    month: int | None = None
    hour: int | None = None


def cut_columns(
    labels: pa.Table, of: OfClasses, cut: Mapping[str, CutBy] | None, field: str = "images.cut"
) -> tuple[pa.Table, list[Derived], dict[str, str]]:
    """Returns the labels with attributes in place of the columns that are cut, these attributes, and of columns that
    give none: name → the reason.

    `cut`: column → `quantiles`, `hour`, `month`, `year` or edges; None: every column of numbers or dates that is no
    attribute as it is, but for those that number the rows or that a model gave. Raises ConfigError, about `field`, for
    a column that is not there, or that does not hold what is to be cut.
    """
    attributes: list[Derived] = []
    reasons: dict[str, str] = {}
    by_default = {name: by for name, by in _all_of(labels).items() if not _OF_ANSWERS.search(name)}
    for name, by in (by_default if cut is None else _checked(labels, cut, field)).items():
        found = _of_numbers(labels, name, by, of) if by == QUANTILES or not isinstance(by, str) else None
        if found is None:
            found = _of_dates(labels, name, by, of)
        if not found:
            reasons[name] = "its numbers or dates do not vary enough within any class"
            continue
        for attribute, one in found.items():
            if isinstance(one, str):
                reasons[attribute] = one
            else:
                attributes.append(one)
        labels = labels.drop_columns([name])
    for one in attributes:
        labels = labels.append_column(one.attribute, one.column)
    return labels, attributes, reasons


def can_be_cut(labels: pa.Table) -> dict[str, str]:
    """Returns the columns that are no attributes as they are and could be cut → how: `quantiles`, or the first part of
    its dates that varies."""
    found = {name: by or next(iter(_varying(labels[name])), None) for name, by in _all_of(labels).items()}
    return {name: by for name, by in found.items() if by is not None}


def _varying(column: pa.ChunkedArray) -> list[str]:
    """Returns the parts of a column of dates that vary."""
    moments = _moments(column)
    values = [] if moments is None else moments.of_values
    return [part for part in _PARTS if len({getattr(one, part) for one in values} - {None}) > 1]


def _all_of(labels: pa.Table) -> dict[str, str]:
    found = {}
    for name in labels.column_names:
        if name == TARGET or no_attribute(labels[name]) is None:
            continue
        if (numbers := _numbers(labels[name])) is not None:
            if not _numbers_rows(name, labels[name], numbers):
                found[name] = QUANTILES
        elif _moments(labels[name]) is not None:
            found[name] = ""  # all parts that vary
    return found


def _checked(labels: pa.Table, cut: Mapping[str, CutBy], field: str) -> dict[str, CutBy]:
    """Returns the columns as the table names them. Raises ConfigError as `cut_columns` says."""
    names = [name for name in labels.column_names if name != TARGET]
    result: dict[str, CutBy] = {}
    for asked, by in cut.items():
        same = [name for name in names if normalise(name) == normalise(asked)]
        if len(same) != 1:
            raise ConfigError(f"{field}.{asked}", f"the labelled table has no such column; {nearest(asked, names)}")
        dates = isinstance(by, str) and by != QUANTILES
        if (_moments if dates else _numbers)(labels[same[0]]) is None:
            held = next((v for v in labels[same[0]].unique().to_pylist() if v and not _readable(v, dates)), None)
            kind = "dates, such as 2026-05-03 or 2026-05-03 14:30" if dates else "numbers"
            raise ConfigError(f"{field}.{asked}", f"expected {kind}, and the column has {held!r}; leave it out")
        result[same[0]] = by
    return result


def _readable(text: str, dates: bool) -> bool:
    return (_moment(text, None) is not None) if dates else bool(NUMBER.match(text))


def _of_numbers(labels: pa.Table, name: str, by: CutBy, of: OfClasses) -> dict[str, Derived | str] | None:
    numbers = _numbers(labels[name])
    if numbers is None:
        return None
    measure = f"column {name}"
    if isinstance(by, str):
        return {name: cut_within_classes(name, "number", measure, numbers, of)}
    return {name: cut_at(name, "number", measure, numbers, by)}


def _of_dates(labels: pa.Table, name: str, by: CutBy, of: OfClasses) -> dict[str, Derived | str]:
    moments = _moments(labels[name])
    assert moments is not None
    found: dict[str, Derived | str] = {}
    for part, derive in _PARTS.items():
        values = np.array([np.nan if (v := getattr(one, part)) is None else v for one in moments.of_values])
        numbers = np.append(values, np.nan)[moments.places]
        if by in ("", part) and len(np.unique(numbers[~np.isnan(numbers)])) > 1:
            one = derive(f"{part} of {name}", f"{part} of column {name}", numbers, of)
            if isinstance(one, Derived) or by == part:
                found[f"{part} of {name}"] = one
    return found


def _hours(attribute: str, measure: str, numbers: NDArray[np.float64], of: OfClasses) -> Derived | str:
    return named_values(attribute, "date", measure, _named(numbers // 6, tuple(HOURS)), of, HOURS)


def _months(attribute: str, measure: str, numbers: NDArray[np.float64], of: OfClasses) -> Derived | str:
    return named_values(attribute, "date", measure, _named(numbers % 12 // 3, MONTHS), of)


def _years(attribute: str, measure: str, numbers: NDArray[np.float64], of: OfClasses) -> Derived | str:
    years = np.unique(numbers[~np.isnan(numbers)])
    if len(years) > MOST_YEARS:
        return cut_within_classes(attribute, "date", measure, numbers, of, ("early", "medium", "late"))
    at = np.where(np.isnan(numbers), np.nan, np.searchsorted(years, numbers))
    return named_values(attribute, "date", measure, _named(at, [f"{year:.0f}" for year in years]), of)


_PARTS: Mapping[str, Callable[[str, str, NDArray[np.float64], OfClasses], Derived | str]] = {
    HOUR: _hours,
    MONTH: _months,
    YEAR: _years,
}


def _named(places: NDArray[np.float64], names: Sequence[str]) -> pa.Array:
    return coded(np.where(np.isnan(places), -1, places).astype(np.int64), names)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Returns the column as numbers, NaN where there is none; None where a value is no number."""
    distinct = column.combine_chunks().cast(pa.string()).dictionary_encode()
    texts = distinct.dictionary.to_pylist()
    if not texts or not all(map(NUMBER.match, texts)):
        return None
    at = distinct.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    values = np.array([*map(float, texts), np.nan])
    return np.asarray(np.where(np.isfinite(values), values, np.nan)[at])


def _numbers_rows(name: str, column: pa.ChunkedArray, numbers: NDArray[np.float64]) -> bool:
    """Tells whether a column of numbers names each row: all are whole and different, and consecutive or called so."""
    known = numbers[~np.isnan(numbers)]
    whole = all(map(WHOLE.match, column.unique().drop_null().cast(pa.string()).to_pylist()))
    if not whole or len(np.unique(known)) < len(known):
        return False
    return bool(_IDENTIFIER.search(name)) or bool(known.max() - known.min() + 1 == len(known))


class _Moments(NamedTuple):
    """The moments of a column's distinct values, and the value of each row: its place, the last one for none."""

    of_values: list[Moment]
    places: NDArray[np.int64]


def _moments(column: pa.ChunkedArray) -> _Moments | None:
    """Returns the column as dates or times; None where a value is neither."""
    distinct = column.combine_chunks().cast(pa.string()).dictionary_encode()
    texts = distinct.dictionary.to_pylist()
    day_first = _day_first(texts)
    moments = [_moment(text, day_first) for text in texts]
    if not moments or any(one is None for one in moments):
        return None
    known = [one for one in moments if one is not None]
    if all(one.hour in (None, 0) for one in known):  # dates that were stored as moments: midnight is no hour
        known = [one._replace(hour=None) for one in known]
    at = distinct.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
    return _Moments(known, at)


def _moment(text: str, day_first: bool | None) -> Moment | None:
    if match := _TIME.match(text):
        return Moment(hour=int(match[1])) if int(match[1]) < 24 else None
    if match := _OF_THREE.match(text):
        first = True if match[2] == "." else day_first
        month = None if first is None else int(match[3] if first else match[1])
        return Moment(int(match[4]), month) if month is None or 1 <= month <= 12 else None
    day = re.sub(r"^(\d{4})[-/.:](\d{1,2})[-/.:](\d{1,2})", _padded, text)  # cameras write 2026:05:03
    try:
        moment = datetime.fromisoformat(day)
    except ValueError:
        return None
    return Moment(moment.year, moment.month, moment.hour if len(day) > len("2026-05-03") else None)


def _padded(match: re.Match[str]) -> str:
    return f"{match[1]}-{match[2]:0>2}-{match[3]:0>2}"


def _day_first(texts: Sequence[str]) -> bool | None:
    """Tells whether a column of dates such as 5/3/2026 gives the day first; None where none of its values tells."""
    matches = [match for text in texts if (match := _OF_THREE.match(text))]
    if any(int(match[1]) > 12 for match in matches):
        return True
    return False if any(int(match[3]) > 12 for match in matches) else None
