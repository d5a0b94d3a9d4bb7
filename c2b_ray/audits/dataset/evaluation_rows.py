"""The rows of an evaluation: classifiers and their answers, the nearest images of a reference, and what stages read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.engine.stage import Rows
from c2b_ray.errors import C2BError, ConfigError, about_model
from c2b_ray.names import folded, normalise
from c2b_ray.roles import Classifier, Description, Floats
from c2b_ray.steps import encoded
from c2b_ray.steps.classify import NO_ANSWER, Classification, LabelMap, LoadedClassifier, classification
from c2b_ray.steps.retrieve import unit
from c2b_ray.storage.failure_dataset import FailureDataset
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import CHECKED, FEATURES, NEIGHBOURS, CheckedRow

# Ranks images' true labels in each classifier's answers. Images are decoded once for all classifiers.


def answer_id(image_id: str, classifier: str, revision: str) -> str:
    return content_id("check", image_id, classifier, revision)


def check(rows: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    """Returns a table of `tables.dataset.CHECKED`.

    `rows`: `image_id`, `bytes`, `error`, `label`, `caption_number`, `built_failed` and `answer_id`, for each image the
    list of the wanted answers. `key`: what tables of predictions may call the images, besides their ids; may be absent.
    """
    ids, ids_wanted = rows["image_id"].to_pylist(), [set(row) for row in rows["answer_id"].to_pylist()]
    fields = rows.select(["image_id", "caption_number", "label", "built_failed"]).to_pylist()
    errors, keys = rows["error"].to_pylist(), rows["key" if "key" in rows.column_names else "image_id"].to_pylist()
    once = encoded.DecodedOnce(encoded.files_of(rows))
    answers: list[CheckedRow] = []
    for loaded in classifiers:
        question = loaded.classification
        names = [answer_id(image, question.classifier, question.revision) for image in ids]
        rows_to_answer = [row for row, name in enumerate(names) if name in ids_wanted[row]]
        if not rows_to_answer:
            continue
        with about_model(question.classifier):
            logits, undecoded = _asked(once, rows_to_answer, (ids, keys), loaded.classifier)
        groups = dict(zip(question.classes, question.labels_of_class, strict=True))
        for i, row in enumerate(rows_to_answer):
            predicted, rank, error = None, None, errors[row] or undecoded[i]
            if error is None:
                predicted, rank, error = _answer(logits[i], groups[fields[row]["label"]], loaded.classifier.labels)
            answers.append(
                {
                    "answer_id": names[row],
                    "image_id": ids[row],
                    "classifier": question.classifier,
                    "revision": question.revision,
                    "caption_number": fields[row]["caption_number"],
                    "label": fields[row]["label"],
                    "predicted": predicted,
                    "rank": rank,
                    "built_failed": fields[row]["built_failed"],
                    "error": error,
                }
            )
    return pa.Table.from_pylist(answers, CHECKED)


def _asked(
    files: encoded.DecodedOnce, rows: Sequence[int], names: tuple[Sequence[str], Sequence[str]], classifier: Classifier
) -> tuple[Floats, list[str | None]]:
    """Returns the logits of these files and why one cannot be decoded. A file that is not known by the first of its
    names, as in a table of predictions, is asked for by the second."""
    first, second = names
    logits, errors = files.logits(rows, [first[row] for row in rows], classifier)
    unknown = np.flatnonzero(np.isnan(logits).all(axis=1)).tolist()
    retried = [i for i in unknown if errors[i] is None and second[rows[i]] != first[rows[i]]]
    if retried:
        logits = np.array(logits)
        logits[retried], _ = files.logits([rows[i] for i in retried], [second[rows[i]] for i in retried], classifier)
    return logits, errors


def _answer(
    row: NDArray[np.float32], group: Sequence[int], labels: Sequence[str]
) -> tuple[str | None, int | None, str | None]:
    """Returns the likeliest label (None for a tie), the rank of the label's outputs, and the error where there is no
    answer."""
    values = row.astype(np.float64)
    if not values.max(initial=-np.inf) < np.inf or values.max(initial=-np.inf) == -np.inf:
        return None, None, NO_ANSWER
    best = np.flatnonzero(values == values.max())
    return labels[int(best[0])] if len(best) == 1 else None, rank(values, group), None


def rank(values: NDArray[np.float64], group: Sequence[int]) -> int:
    """Returns the rank of a label's likeliest output among all other outputs, from 1; equally likely ones come before
    it."""
    of_label = values[list(group)].max()
    other_outputs = np.delete(values, list(group))
    return 1 + int((other_outputs >= of_label).sum())


# Finds the reference images nearest to each failure, among all and among those of its label, exactly and part by
# part.


@dataclass
class _Best:
    """The k most similar candidates of each query so far, most similar first; row −1 where there are fewer."""

    similarities: NDArray[np.float32]
    rows: NDArray[np.int64]

    @staticmethod
    def none(queries: int, k: int) -> _Best:
        return _Best(np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1, np.int64))

    def meet(self, similarities: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        """`similarities`: (queries, candidates), −inf for pairs that are not to be compared; `rows`: (candidates,)."""
        values = np.concatenate([self.similarities, similarities], axis=1)
        candidates = np.concatenate([self.rows, np.broadcast_to(rows, similarities.shape)], axis=1)
        k = self.rows.shape[1]
        order = np.lexsort((candidates, -values), axis=1)[:, :k]
        self.similarities = np.take_along_axis(values, order, axis=1)
        self.rows = np.take_along_axis(candidates, order, axis=1)
        self.rows[self.similarities == -np.inf] = -1


def nearest(failures: pa.Table, parts: Iterable[pa.Table], k: int = 10) -> pa.Table:
    """Returns a table of `tables.dataset.NEIGHBOURS`.

    `failures` and `parts`: tables of `tables.dataset.FEATURES` without errors. Where the reference has no labels there
    are no neighbours of the same label. Among equals the earlier row comes first.
    """
    queries = unit(failures)
    labels = np.array(failures["label"].to_pylist(), object)
    of_all_labels, of_same_label = _Best.none(len(queries), k), _Best.none(len(queries), k)
    names: dict[int, tuple[str, str | None]] = {}
    for part in parts:
        numbers = part["row"].to_numpy()
        labels_here = np.array(part["label"].to_pylist(), object)
        similarities = (queries @ unit(part).T).astype(np.float32)
        of_all_labels.meet(similarities, numbers)
        of_same_label.meet(np.where(labels[:, None] == labels_here[None], similarities, np.float32(-np.inf)), numbers)
        kept_rows = set(of_all_labels.rows.ravel().tolist()) | set(of_same_label.rows.ravel().tolist())
        keys_and_labels = zip(numbers.tolist(), part["key"].to_pylist(), labels_here.tolist(), strict=True)
        names |= {row: (key, label) for row, key, label in keys_and_labels if row in kept_rows}
        names = {row: name for row, name in names.items() if row in kept_rows}
    rows = [*_rows(failures, of_all_labels, names, "all"), *_rows(failures, of_same_label, names, "same_label")]
    return pa.Table.from_pylist(rows, NEIGHBOURS)


def agreement(neighbours: pa.Table, comparable: Callable[[str | None], str | None]) -> dict[str, float]:
    """Returns the share of failures most of whose nearest images have the predicted label, and the share for the true
    label.

    `comparable`: returns what labels and answers are compared by: an answer is a name of the classifier's, `tabby cat`,
    where the label may be `cat`.
    """
    votes: dict[str, list[tuple[bool, bool]]] = {}
    for row in neighbours.to_pylist():
        if row["among"] == "all":
            neighbour, taken_for, label = (comparable(row[name]) for name in ("neighbour_label", "predicted", "label"))
            vote = (neighbour is not None and neighbour == taken_for, neighbour is not None and neighbour == label)
            votes.setdefault(row["image_id"], []).append(vote)
    shares = np.array([np.mean(of_image, axis=0) > 0.5 for of_image in votes.values()]).reshape(-1, 2)
    predicted, true = shares.mean(axis=0).tolist() if len(shares) else (float("nan"), float("nan"))
    return {"failures": float(len(shares)), "mostly_predicted": predicted, "mostly_true": true}


def _rows(
    failures: pa.Table, best: _Best, names: dict[int, tuple[str, str | None]], among: str
) -> Iterable[dict[str, object]]:
    columns: Sequence[list[object]] = [failures[name].to_pylist() for name in ("key", "label", "predicted")]
    for query, (image, label, predicted) in enumerate(zip(*columns, strict=True)):
        for rank, (row, similarity) in enumerate(zip(best.rows[query], best.similarities[query], strict=True), 1):
            if row >= 0:
                key, label_of_image = names[int(row)]
                yield {
                    "image_id": image,
                    "label": label,
                    "predicted": predicted,
                    "among": among,
                    "rank": rank,
                    "key": key,
                    "row": int(row),
                    "neighbour_label": label_of_image,
                    "similarity": float(similarity),
                }


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


def evaluated_classifiers(
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
