"""The data that a run rests on: the hyperplanes of attributes, trained or known, and the held-out latents that decide.

It composes tables, metrics and models, and knows no formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.latent.search import SEARCH, Specs, labelled_by_references
from c2b_ray.config.latent import LEAST_ACCURACY, LatentConfig, Problem
from c2b_ray.errors import ConfigError
from c2b_ray.roles import Description, Floats
from c2b_ray.stats.latent import Hyperplane, curved_scores, fit_hyperplane
from c2b_ray.storage import files
from c2b_ray.tables import seed_of
from c2b_ray.tables.latent import HYPERPLANES

# Reads labelled latents and known hyperplanes from tables: checks them, and makes each attribute two-valued.


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
        attribute_columns = [
            name for name in table.column_names if name not in (GENERATOR, LATENT) and _is_attribute(table, name)
        ]
        latents = np.array(vectors, np.float32).reshape(len(vectors), dimensions[generator])
        result[generator] = _each_once(Labelled(latents, {name: rows[name].to_pylist() for name in attribute_columns}))
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
        labels_of_latent: list[list[Any]] = [[] for _ in first]
        for group, value in zip(number.reshape(-1).tolist(), values, strict=True):
            if _is_label(value) and value not in labels_of_latent[group]:
                labels_of_latent[group].append(value)
        attributes[name] = [
            labels_of_latent[group][0] if len(labels_of_latent[group]) == 1 else None for group in order.tolist()
        ]
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
    generator_of_name = {name: generator for generator, all_names in names.items() for name in all_names}
    column = [generator_of_name.get(str(value)) for value in table[GENERATOR].to_pylist()]
    result = {}
    for generator in names:
        rows = [row for row, value in enumerate(column) if value == generator]
        if rows:
            result[generator] = table.take(rows)
    return result


_HELD_OUT = 0.4
"""The largest share of labelled latents that decide; the others train hyperplanes."""
_BY_REFERENCES = 5000
"""The number of latents that references label where no table labels the target."""
FROM_TABLE, LABELS, REFERENCES = "given", "labels", "references"


@dataclass
class AttributeHyperplanes:
    """(generator, attribute) → its hyperplane, how it was obtained, and why one is left out."""

    config: LatentConfig
    generators: Mapping[str, Description]
    labelled: Mapping[str, Labelled]
    planes: dict[tuple[str, str], Hyperplane] = field(default_factory=dict)
    trained_on: dict[tuple[str, str], str] = field(default_factory=dict)
    excluded: dict[tuple[str, str], str] = field(default_factory=dict)
    _scores: dict[tuple[str, str], NDArray[np.float64] | None] = field(default_factory=dict)
    _held_out: dict[tuple[str, str], tuple[Floats, NDArray[np.bool_]]] = field(default_factory=dict)

    def plane(self, generator: str, attribute: str) -> Hyperplane | None:
        """Returns the hyperplane; None where it is left out."""
        key = (generator, attribute)
        return None if key in self.excluded else self.planes.get(key)

    def attributes(self, generator: str) -> list[str]:
        return [name for of_generator, name in self.planes if of_generator == generator]

    def held_out(self, generator: str, attribute: str) -> tuple[Floats, NDArray[np.bool_]] | None:
        """Returns latents that no hyperplane was trained on, with the attribute's values; None where none are
        labelled."""
        labelled = self.labelled.get(generator)
        if labelled is None or attribute not in labelled.attributes:
            return None
        key = (generator, attribute)
        if key not in self._held_out:  # one copy for all problems, which travel to workers together
            rows, values = labelled.two_valued(attribute)
            mask = np.isin(rows, self._split(labelled, generator)[1])
            self._held_out[key] = labelled.latents[rows[mask]], values[mask]
        return self._held_out[key]

    def unlabelled(self, generator: str, attribute: str) -> float:
        """Returns the share of the table's latents without a label of the attribute; 0 where it has no such column."""
        labelled = self.labelled.get(generator)
        if labelled is None or attribute not in labelled.attributes:
            return 0.0
        return 1 - len(labelled.two_valued(attribute)[0]) / len(labelled.latents)

    def scores(self, generator: str, attribute: str) -> NDArray[np.float64] | None:
        """Returns scores of the latents of `held_out`, by a curved fit to all others; None where there are too few."""
        key = (generator, attribute)
        held_out = self.held_out(generator, attribute)
        if held_out is not None and key not in self._scores:
            labelled = self.labelled[generator]
            rows, values = labelled.two_valued(attribute)
            mask = np.isin(rows, self._split(labelled, generator)[0])
            self._scores[key] = curved_scores(labelled.latents[rows[mask]], values[mask], held_out[0])
        return self._scores.get(key)

    def train(self) -> None:
        """Trains a hyperplane for every labelled attribute that has none."""
        for generator, labelled in self.labelled.items():
            for attribute in labelled.attributes:
                if (generator, attribute) not in self.planes:
                    self._train(generator, attribute, labelled)

    def add(self, key: tuple[str, str], latents: Floats, values: NDArray[np.bool_], trained_on: str) -> None:
        try:
            plane = fit_hyperplane(latents, values, seed_of("hyperplane", self.config.seed, *key))
        except ValueError as error:
            self.excluded[key] = str(error)
            return
        self.planes[key], self.trained_on[key] = plane, trained_on
        self.check(key)

    def check(self, key: tuple[str, str]) -> None:
        if self.planes[key].accuracy < LEAST_ACCURACY:
            accuracy = self.planes[key].accuracy
            self.excluded[key] = f"held-out accuracy {accuracy:.3f}, below {LEAST_ACCURACY}: no hyperplane separates it"

    def table(self) -> pa.Table:
        """Returns the rows of `tables.latent.HYPERPLANES`."""
        rows = []
        for key in dict.fromkeys([*self.planes, *self.excluded]):
            fields = {"generator": key[0], "attribute": key[1], "trained_on": self.trained_on.get(key)}
            plane = vars(self.planes[key]) if key in self.planes else {}
            rows.append({**fields, **plane, "excluded": self.excluded.get(key)})
        return pa.Table.from_pylist(rows, HYPERPLANES)

    def _train(self, generator: str, attribute: str, labelled: Labelled) -> None:
        try:
            rows, values = labelled.two_valued(attribute)
        except ConfigError as error:
            if attribute in _named(self.config) and len(self.generators) == 1:
                raise  # of several generators one may never show the attribute's other value
            self.excluded[generator, attribute] = str(error)
            return
        mask = np.isin(rows, self._split(labelled, generator)[0])
        self.add((generator, attribute), labelled.latents[rows[mask]], values[mask], LABELS)

    def _split(self, labelled: Labelled, generator: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Returns the rows that train, and the rows that decide."""
        count = len(labelled.latents)
        order = np.random.default_rng(seed_of("split", self.config.seed, generator)).permutation(count)
        decide = min(self.config.evidence.latents, int(count * _HELD_OUT))
        return order[decide:], order[:decide]


def attribute_hyperplanes(config: LatentConfig, generators: Mapping[str, Description]) -> AttributeHyperplanes:
    """Returns the hyperplanes of all attributes that a table labels or lists. Raises ConfigError for tables that do not
    fit."""
    names = {name: [name, description.revision, config.generators[name]] for name, description in generators.items()}
    dimensions = {name: description.dimension for name, description in generators.items()}
    labelled: dict[str, Labelled] = {}
    if config.latents is not None:
        labelled = labelled_latents(files.read_table(config.latents), names, dimensions)
    result = AttributeHyperplanes(config, generators, labelled)
    if config.hyperplanes is not None:
        for key, plane in known_hyperplanes(files.read_table(config.hyperplanes), names, dimensions).items():
            result.planes[key], result.trained_on[key] = plane, FROM_TABLE
            result.check(key)
    result.train()
    return result


def learn_from_references(result: AttributeHyperplanes, problem: Problem, specs: Specs, models: Backend) -> None:
    """Trains the target's hyperplane from its references' answers about generated images, where no table labels the
    target."""
    key = (str(problem.generator), str(problem.target))
    if key in result.planes or key in result.excluded or not problem.references:
        return
    seed = seed_of("references", result.config.seed)
    read: Any = partial(labelled_by_references, result.config, specs, _BY_REFERENCES, seed)
    latents, values = models.runner.call(read, SEARCH)
    result.add(key, latents, values, REFERENCES)


def _named(config: LatentConfig) -> set[str]:
    """Returns the attributes that problems name."""
    names: set[str] = set()
    for problem in config.each():
        names |= {name for name in (problem.target, problem.biased) if name is not None}
        names |= set(problem.known) if isinstance(problem.known, list) else set()
    return names
