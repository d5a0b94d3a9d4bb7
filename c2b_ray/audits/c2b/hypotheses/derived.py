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
from c2b_ray.stats.clustering import LEAST_SHARE, assigned, quantile_edges
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
class ImageClasses:
    """The audit's classes, and which of them each row belongs to: `places`, (rows,), −1 for none.

    Where an image may have several classes or none, all images are one group, with an empty name: what is cut is then
    cut alike for all classes.
    """

    classes: tuple[str, ...]
    places: Places

    @staticmethod
    def of(labels: pa.Table, classes: Sequence[str]) -> ImageClasses:
        targets = ComparedColumn.of(labels, TARGET)
        if targets.label_sets is not None:
            return ImageClasses(("",), np.where(targets.missing, -1, 0))
        forms = {normalise(name): position for position, name in enumerate(classes)}
        of_forms = np.array([-1 if form is None else forms.get(form, -1) for form in targets.forms], np.int64)
        return ImageClasses(tuple(classes), of_forms[targets.numbers])

    @property
    def rows(self) -> Places:
        """Returns the numbers of the rows of any class, ascending."""
        return np.flatnonzero(self.places >= 0)


def cut_within_classes(
    attribute: str,
    origin: Origin,
    measure: str,
    numbers: ArrayLike,
    image_classes: ImageClasses,
    words: Sequence[str] = LOW_TO_HIGH,
) -> Derived | str:
    """Returns the attribute of numbers, (rows,), NaN where there is none, cut within each class; or why there is none.

    `words`: for low, middle and high numbers. A class whose images are too alike for an edge (`quantile_edges`) has no
    values; with one edge alone, it has the first and the last word.
    """
    x = np.asarray(numbers, np.float64)
    codes = np.full(len(x), -1, np.int64)
    ranges: dict[str, dict[str, str]] = {}
    for position, name in enumerate(image_classes.classes):
        in_class = np.flatnonzero(image_classes.places == position)
        edges = quantile_edges(x[in_class], SHARES).tolist()
        if edges:
            chosen_words = list(range(len(words))) if len(edges) == len(SHARES) else [0, len(words) - 1]
            codes[in_class] = np.array([*chosen_words, -1])[assigned(x[in_class], edges)]
            ranges[name] = dict(zip((words[i] for i in chosen_words), ranges_of(edges), strict=True))
    if not ranges:
        return _too_alike(x[image_classes.rows])
    return Derived(attribute, origin, measure, coded(codes, words), ranges)


def cut_at(attribute: str, origin: Origin, measure: str, numbers: ArrayLike, edges: Sequence[float]) -> Derived:
    """Returns the attribute of numbers cut at the same edges in all classes; each value is its range in words."""
    words = ranges_of(edges)
    return Derived(attribute, origin, measure, coded(assigned(numbers, edges), words), {"": {w: w for w in words}})


def named_values(
    attribute: str,
    origin: Origin,
    measure: str,
    values: pa.Array,
    image_classes: ImageClasses,
    ranges: Mapping[str, str] | None = None,
) -> Derived | str:
    """Returns the attribute of values that are names, without those of less than `LEAST_SHARE` of a class; or why there
    is none. `ranges`: value → its range in words, where it has one."""
    distinct = values.cast(pa.string()).dictionary_encode()
    names = distinct.dictionary.to_pylist()
    codes = distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    kept_codes = np.full(len(codes), -1, np.int64)
    for position in range(len(image_classes.classes)):
        in_class = np.flatnonzero(image_classes.places == position)
        counts = np.bincount(codes[in_class][codes[in_class] >= 0], minlength=len(names))
        common = counts >= max(1.0, LEAST_SHARE * len(in_class))
        if common.sum() >= 2:
            kept_codes[in_class] = np.where(
                (codes[in_class] >= 0) & np.append(common, False)[codes[in_class]], codes[in_class], -1
            )
    if not (kept_codes >= 0).any():
        return "no class has two values with a twentieth of its images each"
    return Derived(attribute, origin, measure, coded(kept_codes, names), {"": dict(ranges)} if ranges else {})


def coded(places: Places, names: Sequence[str]) -> pa.DictionaryArray:
    """Returns the name at each place, null for −1: one byte or two a row, where texts would take ten times as much."""
    numbers = places.astype(np.int8 if len(names) < 128 else np.int16 if len(names) < 32_768 else np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=places < 0), pa.array(list(names), pa.string()))


def derived_properties(
    properties: pa.Table, image_properties: Sequence[ImageProperty], image_classes: ImageClasses
) -> tuple[list[Derived], dict[str, str]]:
    """Returns the attributes of measured images, and of those that are none: name → the reason.

    `properties`: of `tables.PROPERTIES`, with `row` and the wanted columns. Images without a row there have no value.
    """
    rows = properties["row"].to_numpy()
    attributes, reasons = [], {}
    for image_property in image_properties:
        if image_property.values:
            numbers = np.full(len(image_classes.places), np.nan)
            numbers[rows] = properties[image_property.column].to_numpy()
            result = cut_within_classes(
                image_property.name, "property", image_property.measure, numbers, image_classes, image_property.values
            )
        else:
            names = np.full(len(image_classes.places), -1, np.int64)
            distinct = properties[image_property.column].combine_chunks().dictionary_encode()
            names[rows] = distinct.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            values = coded(names, distinct.dictionary.to_pylist())
            result = named_values(image_property.name, "property", image_property.measure, values, image_classes)
        if isinstance(result, Derived):
            attributes.append(result)
        else:
            reasons[image_property.name] = result
    return attributes, reasons


def with_derived(labels: pa.Table, derived: Sequence[Derived]) -> pa.Table:
    """Returns the labels with the columns of derived attributes, each in place of a column of its name."""
    for attribute in derived:
        if attribute.attribute in labels.column_names:
            labels = labels.set_column(
                labels.column_names.index(attribute.attribute), attribute.attribute, attribute.column
            )
        else:
            labels = labels.append_column(attribute.attribute, attribute.column)
    return labels


def with_origins(proposals: pa.Table, derived: Sequence[Derived]) -> pa.Table:
    """Returns the proposals, `source` of the derived attributes being where they come from."""
    origins = {derived_attribute.attribute: derived_attribute.origin for derived_attribute in derived}
    sources = [
        origins.get(attribute, source)
        for attribute, source in zip(proposals["attribute"].to_pylist(), proposals["source"].to_pylist(), strict=True)
    ]
    index = proposals.schema.get_field_index("source")
    return proposals.set_column(index, proposals.schema.field(index), pa.array(sources, pa.string()))


def ranges_of(edges: Sequence[float]) -> list[str]:
    """Returns the ranges between edges in words, from low to high; each edge belongs to the range above it."""
    texts = [f"{edge:.12g}" for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(texts)]
    return [f"below {texts[0]}", *between, f"{texts[-1]} or more"]


def _too_alike(numbers: NDArray[np.float64]) -> str:
    measured = numbers[~np.isnan(numbers)]
    if not len(measured):
        return "no image has it"
    value, count = max(zip(*np.unique(measured, return_counts=True), strict=True), key=lambda pair: pair[1])
    return f"the images of each class are too alike in it ({count / len(measured):.0%} have {value:.4g})"


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
    labels: pa.Table, image_classes: ImageClasses, cut: Mapping[str, CutBy] | None
) -> tuple[pa.Table, list[Derived], dict[str, str]]:
    """Returns the labels with attributes in place of the columns that are cut, these attributes, and of columns that
    give none: name → the reason.

    `cut`: column → `quantiles`, `hour`, `month`, `year` or edges; None: every column of numbers or dates that is no
    attribute as it is, but for those that number the rows or that a model gave. Raises ConfigError for
    a column that is not there, or that does not hold what is to be cut.
    """
    attributes: list[Derived] = []
    reasons: dict[str, str] = {}
    by_default = {name: by for name, by in _all_of(labels).items() if not _OF_ANSWERS.search(name)}
    for name, by in (by_default if cut is None else _checked(labels, cut)).items():
        derived_values = (
            _of_numbers(labels, name, by, image_classes) if by == QUANTILES or not isinstance(by, str) else None
        )
        if derived_values is None:
            derived_values = _of_dates(labels, name, by, image_classes)
        if not derived_values:
            reasons[name] = "its numbers or dates do not vary enough within any class"
            continue
        for attribute, result in derived_values.items():
            if isinstance(result, str):
                reasons[attribute] = result
            else:
                attributes.append(result)
        labels = labels.drop_columns([name])
    for derived_attribute in attributes:
        labels = labels.append_column(derived_attribute.attribute, derived_attribute.column)
    return labels, attributes, reasons


def can_be_cut(labels: pa.Table) -> dict[str, str]:
    """Returns the columns that are no attributes as they are and could be cut → how: `quantiles`, or the first part of
    its dates that varies."""
    cuts = {name: by or next(iter(_varying(labels[name])), None) for name, by in _all_of(labels).items()}
    return {name: by for name, by in cuts.items() if by is not None}


def _varying(column: pa.ChunkedArray) -> list[str]:
    """Returns the parts of a column of dates that vary."""
    moments = _moments(column)
    values = [] if moments is None else moments.of_values
    return [part for part in _PARTS if len({getattr(moment, part) for moment in values} - {None}) > 1]


def _all_of(labels: pa.Table) -> dict[str, str]:
    cuts = {}
    for name in labels.column_names:
        if name == TARGET or no_attribute(labels[name]) is None:
            continue
        if (numbers := _numbers(labels[name])) is not None:
            if not _numbers_rows(name, labels[name], numbers):
                cuts[name] = QUANTILES
        elif _moments(labels[name]) is not None:
            cuts[name] = ""  # all parts that vary
    return cuts


def _checked(labels: pa.Table, cut: Mapping[str, CutBy]) -> dict[str, CutBy]:
    """Returns the columns as the table names them. Raises ConfigError as `cut_columns` says."""
    names = [name for name in labels.column_names if name != TARGET]
    result: dict[str, CutBy] = {}
    for column, cut_by in cut.items():
        matches = [name for name in names if normalise(name) == normalise(column)]
        if len(matches) != 1:
            raise ConfigError(
                f"images.cut.{column}", f"the labelled table has no such column; {nearest(column, names)}"
            )
        dates = isinstance(cut_by, str) and cut_by != QUANTILES
        if (_moments if dates else _numbers)(labels[matches[0]]) is None:
            unreadable = next(
                (v for v in labels[matches[0]].unique().to_pylist() if v and not _readable(v, dates)), None
            )
            kind = "dates, such as 2026-05-03 or 2026-05-03 14:30" if dates else "numbers"
            raise ConfigError(
                f"images.cut.{column}", f"expected {kind}, and the column has {unreadable!r}; leave it out"
            )
        result[matches[0]] = cut_by
    return result


def _readable(text: str, dates: bool) -> bool:
    return (_moment(text, None) is not None) if dates else bool(NUMBER.match(text))


def _of_numbers(
    labels: pa.Table, name: str, cut_by: CutBy, image_classes: ImageClasses
) -> dict[str, Derived | str] | None:
    numbers = _numbers(labels[name])
    if numbers is None:
        return None
    measure = f"column {name}"
    if isinstance(cut_by, str):
        return {name: cut_within_classes(name, "number", measure, numbers, image_classes)}
    return {name: cut_at(name, "number", measure, numbers, cut_by)}


def _of_dates(labels: pa.Table, name: str, cut_by: CutBy, image_classes: ImageClasses) -> dict[str, Derived | str]:
    moments = _moments(labels[name])
    assert moments is not None
    result: dict[str, Derived | str] = {}
    for part, derive in _PARTS.items():
        values = np.array([np.nan if (v := getattr(moment, part)) is None else v for moment in moments.of_values])
        numbers = np.append(values, np.nan)[moments.places]
        if cut_by in ("", part) and len(np.unique(numbers[~np.isnan(numbers)])) > 1:
            attribute = derive(f"{part} of {name}", f"{part} of column {name}", numbers, image_classes)
            if isinstance(attribute, Derived) or cut_by == part:
                result[f"{part} of {name}"] = attribute
    return result


def _hours(attribute: str, measure: str, numbers: NDArray[np.float64], image_classes: ImageClasses) -> Derived | str:
    return named_values(attribute, "date", measure, _named(numbers // 6, tuple(HOURS)), image_classes, HOURS)


def _months(attribute: str, measure: str, numbers: NDArray[np.float64], image_classes: ImageClasses) -> Derived | str:
    return named_values(attribute, "date", measure, _named(numbers % 12 // 3, MONTHS), image_classes)


def _years(attribute: str, measure: str, numbers: NDArray[np.float64], image_classes: ImageClasses) -> Derived | str:
    years = np.unique(numbers[~np.isnan(numbers)])
    if len(years) > MOST_YEARS:
        return cut_within_classes(attribute, "date", measure, numbers, image_classes, ("early", "medium", "late"))
    positions = np.where(np.isnan(numbers), np.nan, np.searchsorted(years, numbers))
    return named_values(attribute, "date", measure, _named(positions, [f"{year:.0f}" for year in years]), image_classes)


_PARTS: Mapping[str, Callable[[str, str, NDArray[np.float64], ImageClasses], Derived | str]] = {
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
    codes = distinct.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    values = np.array([*map(float, texts), np.nan])
    return np.asarray(np.where(np.isfinite(values), values, np.nan)[codes])


def _numbers_rows(name: str, column: pa.ChunkedArray, numbers: NDArray[np.float64]) -> bool:
    """Tells whether a column of numbers names each row: all are whole, different, and consecutive or called an id."""
    present = numbers[~np.isnan(numbers)]
    are_whole = all(map(WHOLE.match, column.unique().drop_null().cast(pa.string()).to_pylist()))
    if not are_whole or len(np.unique(present)) < len(present):
        return False
    return bool(_IDENTIFIER.search(name)) or bool(present.max() - present.min() + 1 == len(present))


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
    if not moments or any(moment is None for moment in moments):
        return None
    dates = [moment for moment in moments if moment is not None]
    if all(moment.hour in (None, 0) for moment in dates):  # dates that were stored as moments: midnight is no hour
        dates = [moment._replace(hour=None) for moment in dates]
    codes = distinct.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False).astype(np.int64)
    return _Moments(dates, codes)


def _moment(text: str, day_first: bool | None) -> Moment | None:
    if match := _TIME.match(text):
        return Moment(hour=int(match[1])) if int(match[1]) < 24 else None
    if match := _OF_THREE.match(text):
        first = True if match[2] == "." else day_first
        month = None if first is None else int(match[3] if first else match[1])
        return Moment(int(match[4]), month) if month is None or 1 <= month <= 12 else None
    # Cameras write 2026:05:03.
    day = re.sub(r"^(\d{4})[-/.:](\d{1,2})[-/.:](\d{1,2})", lambda m: f"{m[1]}-{m[2]:0>2}-{m[3]:0>2}", text)
    try:
        moment = datetime.fromisoformat(day)
    except ValueError:
        return None
    return Moment(moment.year, moment.month, moment.hour if len(day) > len("2026-05-03") else None)


def _day_first(texts: Sequence[str]) -> bool | None:
    """Tells whether a column of dates such as 5/3/2026 gives the day first; None where none of its values tells."""
    matches = [match for text in texts if (match := _OF_THREE.match(text))]
    if any(int(match[1]) > 12 for match in matches):
        return True
    return False if any(int(match[3]) > 12 for match in matches) else None
