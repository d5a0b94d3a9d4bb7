"""Reads labelled latents and known hyperplanes from tables: checks them, and makes each attribute two-valued.

Attributes with more than two numbers are split at their median (Li & Xu 2021, App. A.7). It knows tables, and neither
where they are stored nor who labelled them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError
from c2b_ray.metrics.hyperplanes import Hyperplane
from c2b_ray.roles import Floats

GENERATOR, LATENT = "generator", "latent"
UNKNOWN_ANGLE = 0.1
"""The uncertainty in radians of a hyperplane that states none: that of about a thousand labelled latents."""


@dataclass(frozen=True)
class Labelled:
    """Latents of one generator, float32 (n, d); attribute → values: None, NaN or a blank text where an image has
    none."""

    latents: Floats
    attributes: Mapping[str, Sequence[Any]]

    def two_valued(self, attribute: str) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Returns the rows that have a value, and whether it is the attribute's second, or above its median.

        Raises ConfigError for an attribute of one value, or of more than two texts.
        """
        values = self.attributes[attribute]
        rows = np.array([row for row, value in enumerate(values) if _is_label(value)], np.intp)
        present = [values[row] for row in rows]
        distinct = sorted(set(present))
        field = f"latents.{attribute}"
        if len(distinct) < 2:
            raise ConfigError(field, f"has one value, {distinct[0]!r}" if distinct else "has no value in any row")
        if len(distinct) == 2:
            return rows, np.array([value == distinct[1] for value in present])
        if isinstance(distinct[0], str):
            raise ConfigError(field, f"has {len(distinct)} values; give a column of two values for each of them")
        numbers = np.array(present, np.float64)
        above = numbers > np.median(numbers)
        return rows, above if above.any() else numbers >= np.median(numbers)


def labelled_latents(
    table: pa.Table, names: Mapping[str, Sequence[str]], dimensions: Mapping[str, int]
) -> dict[str, Labelled]:
    """Returns generator → its rows. `names`: generator → its possible names in the column. Raises ConfigError, which
    names column or row."""
    if LATENT not in table.column_names:
        raise ConfigError("latents", f"has no column {LATENT!r}; it has {', '.join(table.column_names)}")
    result = {}
    for generator, rows in _of_each(table, names, "latents").items():
        vectors = rows[LATENT].to_pylist()
        for row, vector in enumerate(vectors):
            if vector is None or len(vector) != dimensions[generator] or not np.isfinite(vector).all():
                raise ConfigError(
                    "latents",
                    f"row {row} of {generator}: expected {dimensions[generator]} finite numbers in {LATENT!r}",
                )
        others = [name for name in table.column_names if name not in (GENERATOR, LATENT) and _is_attribute(table, name)]
        latents = np.array(vectors, np.float32).reshape(len(vectors), dimensions[generator])
        result[generator] = _each_once(Labelled(latents, {name: rows[name].to_pylist() for name in others}))
    return result


def _is_attribute(table: pa.Table, column: str) -> bool:
    """Returns whether a column can hold labels: other columns, such as lists or dates, are the table's own affair."""
    kind = table.schema.field(column).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_string,
        pa.types.is_large_string,
    )
    return any(test(kind) for test in tests)


def _each_once(labelled: Labelled) -> Labelled:
    """Merges the rows of one latent, in the order of the first ones: copies are no further evidence, and one that
    trains a hyperplane must not judge it. Rows that contradict each other leave the latent without that label."""
    _, first, number = np.unique(labelled.latents, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(labelled.latents):
        return labelled
    order = np.argsort(first, kind="stable")
    attributes = {}
    for name, values in labelled.attributes.items():
        said: list[list[Any]] = [[] for _ in first]
        for group, value in zip(number.reshape(-1).tolist(), values, strict=True):
            if _is_label(value) and value not in said[group]:
                said[group].append(value)
        attributes[name] = [said[group][0] if len(said[group]) == 1 else None for group in order.tolist()]
    return Labelled(labelled.latents[first[order]], attributes)


def known_hyperplanes(
    table: pa.Table, names: Mapping[str, Sequence[str]], dimensions: Mapping[str, int]
) -> dict[tuple[str, str], Hyperplane]:
    """Returns (generator, attribute) → hyperplane with a unit normal. Accuracies that the table lacks are NaN."""
    for column in ("attribute", "normal"):
        if column not in table.column_names:
            raise ConfigError("hyperplanes", f"has no column {column!r}; it has {', '.join(table.column_names)}")
    result = {}
    for generator, rows in _of_each(table, names, "hyperplanes").items():
        for row in rows.to_pylist():
            normal = np.array(row["normal"] or [], np.float64)
            length = float(np.linalg.norm(normal))
            if normal.shape != (dimensions[generator],) or not np.isfinite(length) or length == 0:
                raise ConfigError(
                    "hyperplanes",
                    f"{row['attribute']!r} of {generator}: expected {dimensions[generator]} numbers as its normal",
                )
            result[generator, str(row["attribute"])] = _read_hyperplane(row, normal, length)
    return result


def _read_hyperplane(row: Mapping[str, Any], normal: NDArray[np.float64], length: float) -> Hyperplane:
    def number(name: str, absent: float) -> float:
        value = row.get(name)
        return absent if value is None else float(value)

    count = int(row.get("count") or 0)
    nan = float("nan")
    angle = 1.25 * np.sqrt((len(normal) - 1) / count) if count else UNKNOWN_ANGLE
    return Hyperplane(
        normal / length,
        number("offset", 0.0) / length,
        number("accuracy", nan),
        number("accuracy_low", nan),
        number("accuracy_high", nan),
        number("angle", float(angle)),
        count,
    )


def _is_label(value: Any) -> bool:
    return value is not None and value == value and not (isinstance(value, str) and not value.strip())


def _of_each(table: pa.Table, names: Mapping[str, Sequence[str]], field: str) -> dict[str, pa.Table]:
    """Returns generator → its rows. A table without a column of generators belongs to the only one."""
    if GENERATOR not in table.column_names:
        if len(names) > 1:
            raise ConfigError(field, f"has no column {GENERATOR!r}, and there are {len(names)} generators")
        return {next(iter(names)): table}
    called = {name: generator for generator, all_names in names.items() for name in all_names}
    column = [called.get(str(value)) for value in table[GENERATOR].to_pylist()]
    result = {}
    for generator in names:
        rows = [row for row, value in enumerate(column) if value == generator]
        if rows:
            result[generator] = table.take(rows)
    return result
