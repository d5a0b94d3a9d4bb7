"""Decides which columns of a labelled table are attributes, with which values, and when two spellings are one value.

Values are compared as names are everywhere (`normalise`): `FOG` is `fog`. Spellings that differ in more than case and
spaces and still normalise to the same (`traffic_light`, `traffic light`) are refused: it is unknown whether they are
two values. It knows columns of text; not images, cells or files.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.names import folded, normalise
from c2b_ray.storage.labelled import has_several, labels_in

TARGET = "target_class"
MOST_NUMBERS = 10
"""A column of more distinct whole numbers than this is a measurement or an id; one of fewer may be a scale or code."""

FEWEST_ROWS = 5
"""A column with fewer rows of a value than this, on average, says which images belong together, or is an id: as an
attribute it is hundreds of tests that none of its images could pass, and that hide what the other columns show."""

TABLE = "images.table"
ADD_ATTRIBUTES = "name those that are in `attributes`, or write `properties: true` under `images`"
READ_IT = "`read: {model: a captioner or encoder}` under `images` reads an attribute off each image"
FEW_VALUES = "give the table a column of a few values that recur, such as young and old in place of ages"

FEWEST_CLUSTERS = 3
_OF_CLUSTERS = re.compile(
    r"(^|[_\W])(camera|cam|patient|subject|person|participant|animal|video|clip|movie|sequence|session|uploader|user|author"
    r"|photographer|album|device|scanner|hospital|folder|source|slide|specimen)s?(_?(id|no|nr|number|name))?$",
    re.IGNORECASE,
)

Texts = NDArray[np.object_]
DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?$|\d{1,2}[/.]\d{1,2}[/.]\d{4}$|\d{1,2}:\d{2}(:\d{2})?$")
WHOLE = re.compile(r"[-+]?\d+$")
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")
_FILE = re.compile(r"[^\s].*\.(jpe?g|png|webp|gif|bmp|tiff?|ppm|txt|json|xml|csv|npy)$", re.IGNORECASE)


@dataclass(frozen=True)
class ComparedColumn:
    """A column's values in the form in which they are compared, as numbers.

    `forms`: by number, None for no value. `numbers`: int8 to int32, one per row. As Python strings they take eight
    times the memory, and ten times as long to compare. `label_sets`: by number, the names that a value holds, where
    an image may have several labels (`storage.labelled`), and some have not just one; None where each value is one.
    """

    forms: tuple[str | None, ...]
    numbers: NDArray[np.signedinteger[Any]]
    label_sets: tuple[frozenset[str], ...] | None = None

    @staticmethod
    def of(labels: pa.Table, name: str) -> ComparedColumn:
        column = column_of(labels, name)
        encoded = labels[column].combine_chunks().dictionary_encode()
        values = encoded.dictionary.to_pylist()
        forms = [None if value is None else normalise(str(value)) for value in values]
        numbers = encoded.indices.cast(indices_of(len(forms) + 1)).fill_null(len(forms)).to_numpy(zero_copy_only=False)
        sets = None
        if has_several(labels.schema.field(column)) and not all(len(labels_in(value)) == 1 for value in values):
            sets = (*(frozenset(map(normalise, labels_in(value))) for value in values), frozenset[str]())
        return ComparedColumn((*forms, None), numbers, sets)

    def equal(self, name: str) -> NDArray[np.bool_]:
        """Returns which rows have the value `name`, in any spelling, or hold it among others."""
        form = normalise(name)
        same = (
            [value == form for value in self.forms]
            if self.label_sets is None
            else [form in forms_held for forms_held in self.label_sets]
        )
        rows: NDArray[np.bool_] = np.array(same, bool)[self.numbers]
        return rows

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Tells which rows have no value."""
        rows: NDArray[np.bool_] = np.array([value is None for value in self.forms], bool)[self.numbers]
        return rows


def indices_of(values: int) -> pa.DataType:
    """Returns the smallest integer type that can number `values` values."""
    return next(kind for kind in (pa.int8(), pa.int16(), pa.int32()) if values <= 2 ** (kind.bit_width - 1))


def compared(labels: pa.Table, name: str) -> Texts:
    """Returns a column's values in the form in which they are compared; None where there is none."""
    column = ComparedColumn.of(labels, name)
    values: Texts = np.array(column.forms, dtype=object)[column.numbers]
    return values


def column_of(labels: pa.Table, name: str) -> str:
    """Returns a column's name in the table. Raises ConfigError where there is no such column."""
    names = [column for column in labels.column_names if column != TARGET]
    if name in labels.column_names:
        return name
    matches = [column for column in names if normalise(column) == normalise(name)]
    if len(matches) != 1:
        raise ConfigError(
            f"attributes.{name}", f"the labelled table has no such column; {nearest(name, names)}; {READ_IT}"
        )
    return str(matches[0])


def class_names_in(labels: pa.Table) -> list[str]:
    """Returns the names of all classes in the table, each spelling once."""
    values = [value for value in labels[TARGET].unique().to_pylist() if value is not None]
    if not has_several(labels.schema.field(TARGET)):
        return values
    return list(dict.fromkeys(name for value in values for name in labels_in(value)))


def one_class_each(labels: pa.Table) -> bool:
    """Returns whether every row whose classes are known has exactly one, as where columns of 0 and 1 say which."""
    return all(len(labels_in(value)) == 1 for value in labels[TARGET].unique().drop_null().to_pylist())


def check_classes(labels: pa.Table, classes: Sequence[str], field: str = TABLE, named: str = "classes") -> None:
    """Raises ConfigError for a class that no row has, and for two spellings that may or may not be one. `field`,
    `named`: the config's fields that name the table, and the classes."""
    one_form(classes, named, named)
    targets = class_names_in(labels)
    forms = {normalise(value) for value in targets}
    for name in classes:
        if normalise(name) not in forms:
            problem = f"no row of the labelled table has target_class {name!r}"
            raise ConfigError(named, f"{problem}; {nearest(name, forms)}")
    wanted = {normalise(name) for name in classes}
    one_form([value for value in targets if normalise(value) in wanted], field, f"column {TARGET!r}")


def chosen(
    labels: pa.Table, attributes: Mapping[str, Sequence[str]] | None, field: str = TABLE, needed: bool = True
) -> dict[str, list[str]]:
    """Returns attribute → values: those named, or every column that can be one, with all its values.

    `field`: the config's field that names the table; only an audit's config, whose field it is by default, can name
    attributes. Raises ConfigError where a named column or value is not in the table, or where no column can be an
    attribute although one is `needed`.
    """
    if attributes:
        return {name: _named_values(labels, name, values) for name, values in attributes.items()}
    reasons = left_out(labels)
    names = [name for name in labels.column_names if name != TARGET and name not in reasons]
    result = {name: sorted(_spellings(labels, name, field)) for name in names}
    if not result and needed:
        details = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
        suffix = f": {details}" if details else ""
        remedy = ADD_ATTRIBUTES if field == TABLE else FEW_VALUES
        raise ConfigError(field, f"no column beside image and target_class can be an attribute{suffix}; {remedy}")
    return result


def without_cluster(labels: pa.Table, cluster: str | None, attributes: Iterable[str] = ()) -> pa.Table:
    """Returns the labels without the column of clusters, which is no attribute. Raises ConfigError where the config
    names it as one too."""
    if cluster is None:
        return labels
    for name in attributes:
        if normalise(name) == normalise(cluster):
            raise ConfigError(
                "images.cluster",
                f"{cluster!r} is one of the `attributes` too, and each of its values would be one cluster; remove one",
            )
    return labels.drop_columns([cluster]) if cluster in labels.column_names else labels


def may_be_clusters(labels: pa.Table) -> dict[str, str]:
    """Returns the columns that may say which images belong together, each with the reason in words: its name, and
    at least `FEWEST_CLUSTERS` values that recur."""
    reasons = {}
    for name in labels.column_names:
        if name == TARGET or not _OF_CLUSTERS.search(name):
            continue
        values, rows = len(labels[name].drop_null().unique()), len(labels[name]) - labels[name].null_count
        if values >= FEWEST_CLUSTERS and rows >= 2 * values:
            reasons[name] = (
                f"column {name} ({values:,} values, {rows / values:.0f} images each) may say which images belong "
                f"together. Images of one {name} are then not independent, and intervals that take them so are "
                "too narrow"
            )
    return reasons


def left_out(labels: pa.Table) -> dict[str, str]:
    """Returns columns that are no attributes unless the config names them → the reason."""
    reasons = {name: no_attribute(labels[name]) for name in labels.column_names if name != TARGET}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def blanks(labels: pa.Table, classes: Sequence[str], attributes: Iterable[str]) -> dict[str, int]:
    """Counts rows without a label, which belong to no cell: without a class, and among those of the classes without a
    value of each attribute. Columns without a missing value are left out."""
    targets = ComparedColumn.of(labels, TARGET)
    of_classes = np.logical_or.reduce([targets.equal(name) for name in classes])
    counts = {TARGET: int(targets.missing.sum())}
    counts |= {name: int((of_classes & ComparedColumn.of(labels, name).missing).sum()) for name in attributes}
    return {name: count for name, count in counts.items() if count}


def not_compared(labels: pa.Table, classes: Sequence[str], attributes: Iterable[str]) -> list[str]:
    """Returns in words in which classes an attribute shows one value only, so that nothing is compared there. An
    attribute that is the class under another name, or goes with it, shows one value in each."""
    rows_of_class, class_of = _rows_of_classes(ComparedColumn.of(labels, TARGET), classes)
    sentences = []
    for attribute in attributes:
        column = ComparedColumn.of(labels, attribute)
        values, usable = column.numbers[rows_of_class], ~column.missing[rows_of_class]
        pairs = np.unique(class_of[usable] * len(column.forms) + values[usable])
        values_of_class: dict[str, set[str]] = {}
        for number, value in zip(*np.divmod(pairs, len(column.forms)), strict=True):
            values_of_class.setdefault(classes[number], set()).add(str(column.forms[value]))
        single = {name: min(values) for name, values in values_of_class.items() if len(values) == 1}
        if len(single) == len(classes) > 1 and all(normalise(name) == value for name, value in single.items()):
            sentences.append(f"column {attribute} is the class itself, so nothing is compared by it")
        elif single:
            name = next(iter(single))
            extent = f"in {len(single):,} of {len(classes):,} classes" if len(classes) > 1 else "in the class"
            example = f"such as {single[name]!r} of {name}"
            sentences.append(f"column {attribute} has one value only {extent}, {example}, so nothing is compared there")
    return sentences


def _rows_of_classes(
    targets: ComparedColumn, classes: Sequence[str]
) -> tuple[NDArray[np.signedinteger[Any]], NDArray[np.int64]]:
    """Returns the rows of the classes, and the number of the class of each; a row of several classes comes once for
    each."""
    forms = {normalise(name): number for number, name in enumerate(classes)}
    if targets.label_sets is None:
        class_of = np.array([forms.get(form or "", -1) for form in targets.forms], np.int64)[targets.numbers]
        rows = np.flatnonzero(class_of >= 0)
        return rows, class_of[rows]
    of_class = [np.flatnonzero(targets.equal(name)) for name in classes]
    sizes = [len(rows) for rows in of_class]
    return np.concatenate([np.zeros(0, np.int64), *of_class]), np.repeat(np.arange(len(classes)), sizes)


def compared_somewhere(
    labels: pa.Table, classes: Sequence[str], reasons: Container[str], attributes: Iterable[str] | None = None
) -> bool:
    """Tells whether any class shows two values of any column, but for those with `reasons` not to be attributes.
    `attributes`: the columns that count; None: all."""
    targets = ComparedColumn.of(labels, TARGET)
    names = labels.column_names if attributes is None else [column_of(labels, name) for name in attributes]
    columns = [
        ComparedColumn.of(labels, name) for name in names if name != TARGET and (attributes or name not in reasons)
    ]
    for name in classes:
        in_class = targets.equal(name)
        for column in columns:
            values = {column.forms[number] for number in np.unique(column.numbers[in_class])}
            if len(values - {None}) > 1:
                return True
    return False


def no_attribute(column: pa.ChunkedArray) -> str | None:
    """Returns why a column is not used as an attribute unless it is named; None where it is used."""
    values = [str(value) for value in column.unique().to_pylist() if value is not None]
    rows = len(column) - column.null_count
    if len({folded(value) for value in values}) < 2:
        return "fewer than two values"
    if all(map(WHOLE.match, values)):
        return f"{len(values):,} different numbers" if len(values) > MOST_NUMBERS else None
    if all(map(NUMBER.match, values)):
        return "numbers"
    if all(map(DATE.match, values)):
        return "dates"
    if all(map(_FILE.match, values)):
        return "file names"
    if len(values) > MOST_NUMBERS and len(values) > rows / FEWEST_ROWS:
        return f"{len(values):,} values in {rows:,} rows"
    return None


def _named_values(labels: pa.Table, name: str, values: Sequence[str]) -> list[str]:
    one_form(values, f"attributes.{name}", f"attribute {name!r}")
    by_form = {normalise(value): value for value in _spellings(labels, name)}
    for value in values:
        if normalise(value) not in by_form:
            raise ConfigError(
                f"attributes.{name}", f"no row of the labelled table has {value!r}; {nearest(value, by_form.values())}"
            )
    return list(values)


def _spellings(labels: pa.Table, name: str, field: str = TABLE) -> list[str]:
    """Returns the most frequent spelling of each value of a column."""
    column = column_of(labels, name)
    if no_attribute(labels[column]) is None:
        one_form(_by_frequency(labels[column]), field, f"column {column!r}")
    return list(spellings(labels[column]).values())


def spellings(column: pa.ChunkedArray) -> dict[str, str]:
    """Returns every value as names are compared → its most frequent spelling, whatever the order of rows."""
    result: dict[str, str] = {}
    for value in _by_frequency(column):
        result.setdefault(normalise(value), value)
    return result


def _by_frequency(column: pa.ChunkedArray) -> list[str]:
    counts = pc.value_counts(column.drop_null()).to_pylist()
    return [value for _, value in sorted((-row["counts"], str(row["values"])) for row in counts)]


def one_form(names: Iterable[str], field: str, source: str) -> None:
    """Raises ConfigError for two names that may or may not be one."""
    by_form: dict[str, str] = {}
    for name in names:
        earlier = by_form.setdefault(normalise(name), name)
        if folded(earlier) != folded(name):
            raise ConfigError(
                field, f"{source} has both {earlier!r} and {name!r}, which are compared as one name; write one of them"
            )


# Checks whether a caption names what it must: its class, and the value of its attribute.


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SMALL = _set("a an the in on at by of with is are it its and or to that this from very being as for into next other")
_ABSENT = _set("no none not without nothing nobody alone lone solitary single own itself lacking free")
_ENDINGS = ("iest", "ness", "ing", "ies", "ish", "ous", "est", "ed", "es", "en", "er", "ly", "y", "s")
_JOINED = "light|lit|time|fall|storm|shine|ing|like|side|scape|coloured|colored|ness"

_SAME = (
    "night nighttime midnight moon moonlit moonlight dark",
    "day daytime daylight sunlight noon midday",
    "sunset dusk sundown twilight evening",
    "sunrise dawn daybreak",
    "rain downpour drizzle wet shower",
    "snow blizzard",
    "fog mist haze",
    "clear cloudless fine dry sunny",
    "sun sunny sunlit",
    "street road town city urban",
    "beach sea sand shore coast seaside",
    "forest wood woods tree trees woodland",
    "mountain mountains peak alpine hill",
    "small tiny little miniature distant distance",
    "large big huge giant close-up closeup filling fills",
    "striped stripe stripes stripy",
    "dotted dot dots spotted polka",
    "plain uniform unpatterned solid",
    "person man woman people human somebody someone",
    "indoor indoors inside interior",
    "outdoor outdoors outside",
    "dark dim dimly unlit shadow",
    "bright brightly lit sunlit",
    "grey gray",
    "purple violet",
    "blurry blurred blur",
    "old aged ancient elderly",
)


def names_class(text: str, target_class: str) -> bool:
    """Returns whether the text holds the class's name as whole words, in singular or plural."""
    return _holds(normalise(text), normalise(target_class))


def names_value(text: str, attribute: str, value: str, others: Iterable[str] = (), same: Iterable[str] = ()) -> bool:
    """Returns whether the text names the value of the attribute.

    `others`: the attribute's other values; words that the value shares with them do not count. `same`: other names of
    the value, one of which suffices.
    """
    normalised = normalise(text)
    return any(_says(normalised, normalise(attribute), normalise(name), others) for name in (value, *same))


def _says(text: str, attribute: str, value: str, others: Iterable[str]) -> bool:
    if not re.search(r"\w", value):
        return True  # nothing can be looked for
    stems = _stems(text)
    if value in ("yes", "true", "present", "no", "false", "none", "absent", "nothing", "nobody"):
        denied = bool(stems & _stems(" ".join(_ABSENT))) or "un" in {word[:2] for word in text.split()}
        return denied if value not in ("yes", "true", "present") else bool(stems & _stems(attribute)) and not denied
    if _holds(text, value):
        return True
    content = _content(value)
    common = {_stem(word) for other in others for word in _content(normalise(other))}
    distinctive = [word for word in content if _stem(word) not in common and word not in attribute.split()]
    return all(_meant(word, stems, text) for word in distinctive or content or [value])


def _content(text: str) -> list[str]:
    return [word for word in re.findall(r"\w+", text) if word not in _SMALL]


def _meant(word: str, stems: frozenset[str] | set[str], text: str) -> bool:
    if word in _ABSENT:
        return bool(stems & _stems(" ".join(_ABSENT)))
    equivalents = {_stem(word)} | _ALIKE.get(_stem(word), frozenset())
    if equivalents & stems:
        return True
    return any(re.search(rf"(?<!\w){re.escape(form)}(?:{_JOINED})(?!\w)", text) for form in (word, _stem(word)))


def _holds(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?:e?s)?(?!\w)", text) is not None


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in re.findall(r"\w+", text)}


def _stem(word: str) -> str:
    """Removes the ending, a doubled consonant, a last e: foggy → fog, stripes and striped → strip."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith(("ss", "us")):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word[-1] in "ei" else word


def _alike() -> dict[str, frozenset[str]]:
    result: dict[str, frozenset[str]] = {}
    for line in _SAME:
        group = frozenset(map(_stem, line.split()))
        for stem in group:
            result[stem] = result.get(stem, frozenset()) | group
    return result


_ALIKE = _alike()
