"""Reads a finished dataset of failures: its manifest, and its rows a few at a time.

It knows the directory that `c2b dataset build` writes and the schema of its rows, not their use. At most the columns of
one shard are in memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.storage import files, resolve
from c2b_ray.storage.s3 import patiently
from c2b_ray.storage.sealed import SealedParquet
from c2b_ray.storage.tables import RowGroups
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import DATASET_ROWS, with_keys

ROWS_AT_ONCE = 64
_JUDGE = "classifier "  # the prefix of its name among the models of dataset.json
OF_ANSWER = {"classifier": "classifier", "classifier_revision": "revision"} | {
    name: name for name in ("predicted", "top3", "probabilities")
}
"""Columns with one classifier's answer → their fields in `answers`."""


@dataclass(frozen=True)
class Shard:
    name: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class FailureDataset:
    """A finished dataset. `config`: of the build. `shards`: in the order of captions and draws. `manifest`: as written.
    `names`: of the classifiers in rows, in the config's order.

    `classifier`: if it is not None, only rows that this classifier failed count, and their answer is this classifier's.
    """

    location: str
    config: dict[str, Any]
    manifest: dict[str, Any]
    shards: tuple[Shard, ...]
    names: tuple[str, ...] = ()
    classifier: str | None = None

    @property
    def rows(self) -> int:
        """The number of rows of all classifiers together."""
        return sum(shard.rows for shard in self.shards)

    @property
    def id(self) -> str:
        """An id that changes with any byte of any shard, and with the classifier."""
        return content_id([shard.sha256 for shard in self.shards], self.classifier)

    @property
    def specs(self) -> dict[str, str]:
        """The spec of each classifier of the build, paths included, by its name in rows."""
        classifiers = self.config.get("classifier") or []
        pairs = (
            classifiers.items()
            if isinstance(classifiers, dict)
            else [(s, s) for s in ([classifiers] if isinstance(classifiers, str) else classifiers)]
        )
        specs = {str(name): str(spec) for name, spec in pairs}
        return dict(zip(self.names, specs.values(), strict=True)) if len(self.names) == len(specs) else specs

    def name_of(self, classifier: str) -> str:
        """Returns the name in rows of a classifier, for its name or its spec; other texts are returned unchanged."""
        return next((name for name, spec in self.specs.items() if spec == classifier), classifier)

    @property
    def label_map(self) -> dict[str, list[int | str]] | str | None:
        """The label map of the build: label → outputs, or the path of a JSON file; None if there was none."""
        value = self.config.get("label_map")
        return value if isinstance(value, dict | str) else None

    def tables(self, shards: Sequence[str], columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yields the rows of these shards in order, at most `ROWS_AT_ONCE` per table."""
        names = list(DATASET_ROWS.names if columns is None else columns)
        columns_read = list(dict.fromkeys([*names, "answers", "rule"])) if self.classifier else names
        for shard in shards:
            for group in self._groups(shard, columns_read):
                group = with_keys(group)
                failed_rows = group if self.classifier is None else of_classifier(group, self.classifier)
                for start in range(0, failed_rows.num_rows, ROWS_AT_ONCE):
                    yield failed_rows.slice(start, ROWS_AT_ONCE).select(names)

    def row_groups(self) -> RowGroups:
        """Returns the row groups of all classifiers together, in the order of the shards."""
        return RowGroups.of([f"{self.location.rstrip('/')}/shards/{shard.name}" for shard in self.shards])

    def label_counts(self) -> Counter[str]:
        """Counts the rows of each label."""
        counts: Counter[str] = Counter()
        for shard in self.shards:
            for table in self.tables([shard.name], ["label"]):
                counts.update(table["label"].to_pylist())
        return counts

    def _groups(self, shard: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        location = f"{self.location.rstrip('/')}/shards/{shard}"
        filesystem, path = resolve(location)
        try:
            with (
                files.reading(location, "shard"),
                patiently(location, lambda: filesystem.open_input_file(path), reached=True) as stream,
            ):
                sealed = patiently(location, lambda: SealedParquet(stream), reached=True)
                for group in range(sealed.metadata.num_row_groups):
                    yield patiently(location, partial(sealed.read_groups, [group], columns), reached=True)
        except pa.ArrowException as error:
            raise SourceError(
                f"{location}: the shard is damaged ({error}); c2b dataset verify lists damaged files, and running "
                "the build again rewrites them",
                location=location,
            ) from error


def open_dataset(location: str, classifier: str | None = None) -> FailureDataset:
    """Opens a finished dataset. Raises SourceError if there is none; ConfigError for an unknown classifier."""
    location = str(location)
    document = _json(location, "dataset.json")
    if not files.exists(f"{location}/manifest.json"):
        raise SourceError(
            f"{location}: its build has not ended: there is no manifest.json; run the same c2b dataset build again; "
            "it resumes",
            location=location,
        )
    manifest = _json(location, "manifest.json")
    try:
        shards = tuple(Shard(**{name: row[name] for name in Shard.__annotations__}) for row in manifest["shards"])
    except (KeyError, TypeError) as error:
        raise SourceError(f"{location}/manifest.json: is not a manifest of a dataset ({error!r})") from error
    models = document.get("models") or {}
    names = tuple(str(name).removeprefix(_JUDGE) for name in models if str(name).startswith(_JUDGE))
    dataset = FailureDataset(location, document.get("config", {}), manifest, shards, names)
    return dataset if classifier is None else _narrowed(dataset, classifier)


def without_rows(dataset: FailureDataset) -> SourceError:
    """Returns the error for a dataset without rows. That nothing failed is a result, and no damage."""
    if dataset.rows:
        problem = f"has no rows that {dataset.classifier} failed, of {dataset.rows:,}"
    else:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in dataset.manifest.get("drops", {}).items())
        problem = f"has no rows: of {dataset.manifest.get('draws', 0):,} draws none was kept ({reasons})"
    return SourceError(f"{dataset.location}: {problem}", location=dataset.location)


def classifiers_of(dataset: FailureDataset) -> list[str]:
    """Returns the classifiers that the dataset was built with, in the config's order."""
    if dataset.names:
        return list(dataset.names)
    for shard in dataset.shards:
        for table in dataset.tables([shard.name], ["answers"]):
            if table.num_rows:
                return [answer["classifier"] for answer in table["answers"][0].as_py()]
    return []


def of_classifier(rows: pa.Table, classifier: str) -> pa.Table:
    """Returns the rows that a classifier failed, with its answer in place of the first classifier's."""
    answer_of_row = [
        next((answer for answer in answers if answer["classifier"] == classifier and answer["failed"]), None)
        for answers in rows["answers"].to_pylist()
    ]
    has_answer = pa.array([answer is not None for answer in answer_of_row], pa.bool_())
    rows, given_answers = rows.filter(has_answer), [answer for answer in answer_of_row if answer is not None]
    for name, field in OF_ANSWER.items():
        if name in rows.column_names:
            values = pa.array([answer[field] for answer in given_answers], rows.schema.field(name).type)
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)
    if "kept_because" in rows.column_names:
        because = [
            f"{rule}: taken for {answer['predicted'] or 'several labels alike'} by {classifier}"
            for rule, answer in zip(rows["rule"].to_pylist(), given_answers, strict=True)
        ]
        position = rows.schema.get_field_index("kept_because")
        rows = rows.set_column(position, rows.schema.field(position), pa.array(because, pa.string()))
    return rows


def _narrowed(dataset: FailureDataset, classifier: str) -> FailureDataset:
    classifiers, classifier = classifiers_of(dataset), dataset.name_of(classifier)
    if classifier not in classifiers:
        raise ConfigError(
            "classifier", f"{dataset.location} has no answers of {classifier!r}; {nearest(classifier, classifiers)}"
        )
    return replace(dataset, classifier=classifier)


def _json(location: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(files.read_bytes(f"{location}/{name}"))
    except ValueError as error:
        raise SourceError(
            f"{location}/{name}: is not JSON ({error}); build the dataset again", location=location
        ) from error
    except SourceError as error:
        raise SourceError(
            f"{location}: is not a dataset of failures: {error}; c2b dataset build makes one", location=location
        ) from error
    if not isinstance(value, dict):
        raise SourceError(f"{location}/{name}: expected a JSON object", location=location)
    return value
