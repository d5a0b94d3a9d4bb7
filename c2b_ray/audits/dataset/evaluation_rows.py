"""The classifiers of an evaluation: the name of each, the outputs for each label, and its family.

    resnet50=timm:resnet50.a1_in1k    a short name before the spec; without one the spec is the name

It knows specs and descriptions, and loads no weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.dataset.steps.evaluation import answer_id
from c2b_ray.engine.stage import Rows
from c2b_ray.errors import C2BError, ConfigError
from c2b_ray.names import folded, normalise
from c2b_ray.roles import Description
from c2b_ray.steps.classify import Classification, LabelMap, classification
from c2b_ray.storage.failure_dataset import FailureDataset
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import CHECKED, FEATURES

CLASSIFIERS = "--classifiers"

_NAMED = re.compile(r"([\w .+@#-]{1,60})=([a-z][\w-]*:.*)", re.DOTALL)
_NEXT = re.compile(r",\s*(?=(?:[\w .+@#-]{1,60}=)?[a-z][\w-]*:)")


@dataclass(frozen=True)
class EvaluatedClassifier:
    """`family`: shared by architectures that differ only in size or seed; figures are ordered by it. `outputs`: the
    names of its outputs, as names are compared → the label that each stands for."""

    name: str
    spec: str
    family: str
    question: Classification
    outputs: Mapping[str, str]

    @staticmethod
    def of(name: str, spec: str, known: Description, question: Classification) -> EvaluatedClassifier:
        groups = zip(question.classes, question.labels_of_class, strict=True)
        outputs = {normalise(known.labels[position]): label for label, group in groups for position in group}
        return EvaluatedClassifier(name, spec, family(name), question, outputs)


def listed(text: str) -> list[str]:
    """Returns the specs of a comma-separated list; a comma inside a spec's options does not separate."""
    return [part.strip() for part in _NEXT.split(text) if part.strip()]


def named(text: str) -> tuple[str, str]:
    """Returns the name and the spec of `NAME=SPEC`; a spec without a name is both."""
    parts = _NAMED.fullmatch(text)
    return (parts[1].strip(), parts[2]) if parts else (text, text)


def contestants(
    named_specs: Sequence[tuple[str, str]],
    describe: Callable[[str, str], Description],
    labels: tuple[Sequence[str], Sequence[str]],
    label_map: LabelMap | None,
) -> list[EvaluatedClassifier]:
    """Returns the classifiers, ordered by family, then by name. Raises ConfigError for repeated names and unknown
    labels.

    `labels`: those that each classifier must have, and those of a reference, of which the common ones are used.
    """
    if not named_specs:
        raise ConfigError(CLASSIFIERS, "name at least one classifier")
    described = [(name, spec, describe("classifier", spec)) for name, spec in named_specs]
    shared_labels = [*labels[0], *_in_common(described, labels, label_map)]
    entries = [
        EvaluatedClassifier.of(
            name, spec, description, classification(spec, description, shared_labels, label_map, field=CLASSIFIERS)
        )
        for name, spec, description in described
    ]
    names_seen: set[str] = set()
    for entry in entries:
        if folded(entry.name) in names_seen:
            raise ConfigError(CLASSIFIERS, f"{entry.name!r} is there twice; put another name before one: NAME=SPEC")
        names_seen.add(folded(entry.name))
    return sorted(entries, key=lambda entry: (entry.family, entry.name))


def _in_common(
    described: Sequence[tuple[str, str, Description]],
    labels: tuple[Sequence[str], Sequence[str]],
    label_map: LabelMap | None,
) -> list[str]:
    """Returns the second labels that are not among the first and for which every classifier has separate outputs."""
    candidates = [label for label in labels[1] if label not in set(labels[0])]
    try:
        for _, spec, description in described:
            classification(spec, description, [*labels[0], *candidates], label_map)
        return candidates
    except ConfigError:  # then one by one, which takes a thousand times as long
        pass
    common: list[str] = []
    questions = [
        classification(spec, description, labels[0], label_map, field=CLASSIFIERS) for _, spec, description in described
    ]
    used_outputs = [set(sum(question.labels_of_class, ())) for question in questions]
    for label in candidates:
        try:
            groups = [
                set(classification(spec, one, [label], label_map).labels_of_class[0]) for _, spec, one in described
            ]
        except ConfigError:
            continue
        if not any(group & used for group, used in zip(groups, used_outputs, strict=True)):
            common.append(label)
            used_outputs = [used | group for group, used in zip(groups, used_outputs, strict=True)]
    return common


def family(name: str) -> str:
    """Returns the letters at the beginning of an architecture's name: resnet of timm:resnet50.a1_in1k, vit of
    vit_base_patch16."""
    scheme, colon, architecture = name.partition(":")
    name = architecture.partition("?")[0] if colon else scheme
    last = name.rstrip("/").rpartition("/")[2]
    letters = re.match(r"[^\W\d_]+", last)
    return (letters[0] if letters else last).lower()


# The images of an evaluation as rows of its stages: those of the dataset, a shard at a time, and those of a
# reference.


COLUMNS = ["image_id", "image", "label", "predicted", "caption_number", "answers", "seed"]
_AT_ONCE = 64


@dataclass(frozen=True)
class Reference:
    """Labelled images that a dataset is compared with. `spelling`: the dataset's name of a label in the form in which
    names are compared: `traffic_light` of a reference is its `traffic light`. `outputs`: the label that an output of a
    classifier stands for, by the output's name in that form."""

    table: LabelledTable
    spelling: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def at(location: str, names: Sequence[str]) -> Reference:
        """`names`: the dataset's labels."""
        try:
            return Reference(LabelledTable(location, "--reference"), {normalise(name): name for name in names})
        except ConfigError as error:
            raise ConfigError(
                "--reference",
                f"{error}; a reference is a table with the columns image and target_class, or a folder with a folder "
                "of images for each label",
            ) from error

    @property
    def revision(self) -> str:
        return self.table.revision

    @property
    def labels(self) -> list[str]:
        labels = self.table.labels["target_class"].unique().to_pylist()
        return sorted({self.named(label) for label in labels if label is not None})

    def named(self, label: str) -> str:
        """Returns the dataset's name of a label; one that the dataset lacks keeps its own."""
        return self.spelling.get(normalise(label), label)

    def meant(self, answer: str | None) -> str | None:
        """Returns the label that a classifier's answer stands for, in the form in which names are compared."""
        return None if answer is None else normalise(self.outputs.get(normalise(answer), answer))

    def ids(self, rows: Sequence[int]) -> pa.Array:
        """Returns the ids of rows. One image may stand for two labels, in two rows: each row is one."""
        return pa.array([content_id("reference", self.revision, row) for row in rows], pa.string())

    def rows(self, keep: Callable[[pa.Table], pa.Table]) -> Rows:
        count = self.table.labels.num_rows
        size = max(_AT_ONCE, count // 2000)
        blocks = [pa.table({"row": np.arange(first, min(first + size, count))}) for first in range(0, count, size)]
        return Rows(blocks, partial(_of_reference, reference=self, keep=keep), count)


def table_of(dataset: FailureDataset) -> LabelledTable | None:
    """Returns the labelled table that the dataset's images are from, where it is still as it was; else None."""
    labelled = (dataset.config.get("images") or {}).get("labelled")
    stored = next(dataset.tables([s.name for s in dataset.shards if s.rows][:1], ["generator_revision"]), None)
    if not labelled or stored is None:
        return None
    try:
        table = LabelledTable(labelled["table"], "images.labelled.table", labelled.get("columns"))
        return table if table.revision == stored["generator_revision"][0].as_py() else None
    except (C2BError, OSError):
        return None


def dataset_rows(
    dataset: FailureDataset, keep: Callable[[pa.Table], pa.Table], table: LabelledTable | None = None
) -> Rows:
    """`keep`: turns rows as above into the rows that a stage needs. `table`: that the images are from; its names of
    them are then their `key`."""
    blocks = [pa.table({"shard": [shard.name]}) for shard in dataset.shards]
    return Rows(
        blocks or [pa.table({"shard": pa.array([], pa.string())})],
        partial(_of_dataset, dataset=dataset, keep=keep, source=table),
        dataset.rows,
    )


def _of_dataset(
    block: pa.Table, dataset: FailureDataset, keep: Callable[[pa.Table], pa.Table], source: LabelledTable | None
) -> Iterator[pa.Table]:
    for table in dataset.tables(block["shard"].to_pylist(), COLUMNS):
        failed = [[answer["failed"] for answer in answers] for answers in table["answers"].to_pylist()]
        nothing = pa.nulls(table.num_rows, pa.string())
        keys = {} if source is None else {"key": source.keys.take(table["seed"].combine_chunks()).cast(pa.string())}
        yield keep(
            pa.table(
                {
                    "image_id": table["image_id"],
                    "bytes": table["image"],
                    "error": nothing,
                    "label": table["label"],
                    "predicted": table["predicted"],
                    "caption_number": table["caption_number"],
                    "built_failed": pa.array(failed, CHECKED.field("built_failed").type),
                    "row": pa.array(np.full(table.num_rows, -1), pa.int64()),
                    **keys,
                }
            )
        )


def _of_reference(block: pa.Table, reference: Reference, keep: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
    table = reference.table
    labels = table.labels["target_class"]
    for start in range(0, block.num_rows, _AT_ONCE):
        rows = block["row"].slice(start, _AT_ONCE).to_pylist()
        fetched = table.fetch(rows)
        reference_labels = labels.take(pa.array(rows)).to_pylist()
        yield keep(
            pa.table(
                {
                    "image_id": reference.ids(rows),
                    "bytes": fetched["bytes"],
                    "error": fetched["error"],
                    "label": pa.array(
                        [None if label is None else reference.named(label) for label in reference_labels], pa.string()
                    ),
                    "predicted": pa.nulls(len(rows), pa.string()),
                    "caption_number": pa.nulls(len(rows), pa.int32()),
                    "built_failed": pa.nulls(len(rows), CHECKED.field("built_failed").type),
                    "row": pa.array(rows, pa.int64()),
                    "key": fetched["key"],
                }
            )
        )


def to_check(rows: pa.Table, questions: Sequence[Classification]) -> pa.Table:
    """Adds the wanted answers of each image; rows with labels that classifiers lack are left out."""
    rows = rows.filter(pc.is_in(rows["label"], pa.array(questions[0].classes)))
    ids = [[answer_id(image, q.classifier, q.revision) for q in questions] for image in rows["image_id"].to_pylist()]
    return rows.append_column("answer_id", pa.array(ids, pa.list_(pa.string())))


def to_extract(rows: pa.Table, extractor: str) -> pa.Table:
    """Adds an id for each image's features. `extractor`: its revision."""
    names = [content_id("feature", image, extractor) for image in rows["image_id"].to_pylist()]
    columns = {
        "feature_id": pa.array(names, pa.string()),
        "key": rows["key"] if "key" in rows.column_names else rows["image_id"],
        **{name: rows[name] for name in ("row", "label", "predicted", "bytes", "error")},
    }
    assert set(FEATURES.names) - {"vector"} <= set(columns)
    return pa.table(columns)
