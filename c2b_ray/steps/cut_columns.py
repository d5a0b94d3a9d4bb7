"""Columns of numbers and dates of a labelled table, cut into values as measurements are (`derived`).

    numbers   the lowest fifth of each class, the middle, the highest fifth; or between the edges that the file gives
    dates     hour of the day in four parts, months in four parts, and years, each where it varies

It knows columns of text, and no images.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import normalise
from c2b_ray.steps.derived import Derived, OfClasses, coded, cut_at, cut_within_classes, named_values
from c2b_ray.steps.labels import NUMBER, TARGET, WHOLE, no_attribute

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
