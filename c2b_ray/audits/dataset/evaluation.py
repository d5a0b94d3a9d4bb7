"""Compares a dataset of failures with other classifiers and other images, for `c2b dataset evaluate`.

    dataset, reference → answers of every classifier → rates, transfer (Figs. 4, 7), error consistency (Fig. 8)
    dataset, reference → features of one network     → FID and KID (Table 2), nearest neighbours (Figs. 9 to 11)

Answers and features are stages that resume; classifiers that are added later answer without the others. The results are
counted part by part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.dataset import evaluation_rows as sources
from c2b_ray.audits.dataset.evaluation_page import FailureWithNeighbours, evaluation_page
from c2b_ray.audits.dataset.evaluation_parts import (
    EvaluationAnswers,
    ImageSetDistances,
    Pictures,
    changed_answers,
    compare,
    consistencies,
    pictures_of,
    rates,
    transfers,
)
from c2b_ray.audits.dataset.evaluation_rows import EvaluatedClassifier, check, evaluated_classifiers, named
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.config.classifiers import read_label_map
from c2b_ray.engine import images as pipeline
from c2b_ray.engine.stage import Rows, StageConfig
from c2b_ray.errors import RunError
from c2b_ray.models import features
from c2b_ray.steps.classify import LoadedClassifier
from c2b_ray.storage import files
from c2b_ray.storage.confined import located, paths
from c2b_ray.storage.failure_dataset import FailureDataset, classifiers_of, open_dataset, without_rows
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.parts import opened
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import CHECKED, FAILURE_RATES
from c2b_ray.text import finite

# The results of an evaluation as tables, as JSON and as a page.


SHOWN = 5
"""The number of failures whose neighbours the page shows."""


@dataclass(frozen=True)
class Evaluated:
    """`rates`: of `tables.dataset.FAILURE_RATES`. `consistency`: of `tables.dataset.CONSISTENCY`. `changed`: by
    classifier of the build, images that it failed then and has right now. `copies`: images of the reference that are
    copies of others."""

    dataset: FailureDataset
    entries: tuple[EvaluatedClassifier, ...]
    rates: pa.Table
    consistency: pa.Table
    changed: Mapping[str, int]
    captions: int
    compared: ImageSetDistances | None
    reference: LabelledTable | None
    copies: int = 0

    def to_json(self) -> dict[str, Any]:
        classifiers = [
            {
                "name": entry.name,
                "spec": entry.spec,
                "family": entry.family,
                "revision": entry.question.revision,
            }
            for entry in self.entries
        ]
        document: dict[str, Any] = {
            "dataset": self.dataset.location,
            "images": self.dataset.rows,
            "captions": self.captions,
            "rule": self.dataset.config.get("rule", "top1"),
            "classifiers": classifiers,
            "rates": self.rates.to_pylist(),
            "consistency": self.consistency.to_pylist(),
            "built": classifiers_of(self.dataset),
            "right_now": dict(self.changed),
            "similarity": None,
            "copies_in_reference": self.copies,
        }
        if self.compared is not None:
            similarity = {name: value for name, value in vars(self.compared).items() if name != "neighbours"}
            document["similarity"] = similarity | {"reference": self.reference.location if self.reference else None}
        return dict(finite(document))

    def write(self, out: str) -> None:
        files.write_table(f"{out}/rates.parquet", self.rates)
        files.write_table(f"{out}/consistency.parquet", self.consistency)
        if self.compared is not None:
            files.write_table(f"{out}/neighbours.parquet", self.compared.neighbours)
        results = self.to_json()
        files.write_bytes(f"{out}/results.json", json.dumps(results, ensure_ascii=False, indent=1).encode() + b"\n")
        files.write_bytes(f"{out}/index.html", evaluation_page(results, self._shown()).encode())

    def _shown(self) -> list[FailureWithNeighbours]:
        """Returns a few failures with the bytes of their nearest reference images."""
        if self.compared is None or self.reference is None or not self.compared.neighbours.num_rows:
            return []
        rows = self.compared.neighbours.to_pylist()
        kinds = {(row["label"], row["predicted"]): row["image_id"] for row in reversed(rows)}  # the first of each kind
        chosen_ids = list(dict.fromkeys([*reversed(kinds.values()), *(row["image_id"] for row in rows)]))[:SHOWN]
        images: dict[str, bytes] = {}
        for table in self.dataset.tables([shard.name for shard in self.dataset.shards], ["image_id", "image"]):
            images |= {row["image_id"]: row["image"] for row in table.to_pylist() if row["image_id"] in chosen_ids}
            if len(images) == len(chosen_ids):
                break
        neighbours = [row for row in rows if row["image_id"] in chosen_ids]
        numbers = sorted({row["row"] for row in neighbours})
        pictures = dict(zip(numbers, self.reference.fetch(numbers)["bytes"].to_pylist(), strict=True))
        return [
            FailureWithNeighbours(images[name], [row for row in neighbours if row["image_id"] == name], pictures)
            for name in chosen_ids
            if name in images
        ]


ALONE = Session()
CONFIG = "evaluate.json"


@dataclass(frozen=True)
class ReferenceImages:
    """`reference`: a labelled folder or table. `encoder`: its features compare images; by default the first
    classifier's. `neighbours`: the number of failures whose nearest reference images are searched. `label_map`: path of
    a JSON file."""

    reference: str | None = None
    encoder: str | None = None
    neighbours: int = 1000
    label_map: str | None = None


NOTHING = ReferenceImages()


def evaluate(
    dataset: str, classifiers: Sequence[str], out: str, against: ReferenceImages = NOTHING, session: Session = ALONE
) -> Evaluated:
    """Writes rates, transfer, consistency, neighbours, similarity and a page to `out`.

    `classifiers`: specs, each with an optional short name before it (`seed-2=timm:…`). Raises ConfigError for a
    classifier that lacks a label of the dataset; RunError where `out` holds an evaluation of another dataset. After an
    interruption the same call resumes.
    """
    data = open_dataset(dataset)
    steps = Steps(session.listener)
    with steps.step("read labels"):
        names = sorted(data.label_counts())
        if not names:
            raise without_rows(data)
        reference = None if against.reference is None else sources.Reference.at(against.reference, names)
        label_map_source = against.label_map or data.label_map
        mapped = read_label_map(label_map_source, []) if isinstance(label_map_source, str) else label_map_source
    _claim(out, data)
    with session.backend(lambda: data.rows) as models:
        read = {dataset: "DIR"} | ({} if against.reference is None else {against.reference: "reference"})
        models.runner.check_paths(out, read)
        with steps.step("describe the classifiers"):
            reference_labels = reference.labels if reference else []
            entries = evaluated_classifiers(
                [_named(data, text) for text in _apart(data, classifiers)],
                models.describe,
                (names, reference_labels),
                mapped,
            )
        if reference is not None:
            reference = replace(reference, outputs={k: v for entry in entries for k, v in entry.outputs.items()})
        mapping = content_id(mapped)
        stages = _Stages(models, data, reference, entries, out, steps, mapping)
        stages.answer()
        pictures = None if reference is None else stages.pictures()
        compared = None if reference is None else stages.compare(against)
    with steps.step("count"):
        folders = (f"{out}/answers/{mapping}", f"{out}/reference/{reference.revision}-{mapping}" if reference else "")
        result = _counted(folders, data, (reference, pictures), entries, compared)
        result.write(out)
    return result


@dataclass(frozen=True)
class _Stages:
    """The stages of one evaluation."""

    models: Backend
    data: FailureDataset
    reference: sources.Reference | None
    entries: Sequence[EvaluatedClassifier]
    out: str
    steps: Steps
    mapping: str  # labels → outputs; another mapping gives other answers

    def answer(self) -> None:
        """Writes the answers of all classifiers to the dataset, and to the reference."""
        keep = partial(sources.to_check, questions=[entry.question for entry in self.entries])
        with self.steps.step("classify the dataset") as on_progress:
            rows = sources.dataset_rows(self.data, keep, sources.table_of(self.data))
            self._check(rows, f"{self.out}/answers/{self.mapping}", on_progress)
        if self.reference is not None:
            with self.steps.step("classify the reference") as on_progress:
                output = f"{self.out}/reference/{self.reference.revision}-{self.mapping}"
                self._check(self.reference.rows(keep), output, on_progress)

    def pictures(self) -> Pictures:
        assert self.reference is not None
        with self.steps.step("find copies in the reference") as on_progress:
            return pictures_of(self.models, self.reference, self.out, on_progress)

    def compare(self, against: ReferenceImages) -> ImageSetDistances:
        assert self.reference is not None
        extractor = partial(features.load, against.encoder or self.entries[0].spec)
        with self.steps.step("compare with the reference") as on_progress:
            sides = (self.data, self.reference)
            return compare(self.models, sides, extractor, self.out, against.neighbours, on_progress)

    def _check(self, rows: Rows, out: str, on_progress: pipeline.OnProgress) -> None:
        total = None if rows.total is None else rows.total * len(self.entries)
        config: StageConfig = replace(pipeline.CLASSIFY, schema=CHECKED, total=total)
        role = partial(_loaded, [(self.models.classifier(entry.spec), entry) for entry in self.entries])
        runner = self.models.runner
        runner.run(rows, check, role, out, id_column="answer_id", config=config, on_progress=on_progress)


def _apart(data: FailureDataset, texts: Sequence[str]) -> list[str]:
    """Returns the texts, with lists of names of the build's classifiers split at their commas."""
    result: list[str] = []
    for text in texts:
        is_list = False
        for part in text.split(","):
            is_name = part.strip() in data.specs
            if is_list and not is_name:
                result[-1] += f",{part}"
            else:
                result.append(part.strip())
            is_list = not is_name
    return result


def _named(data: FailureDataset, text: str) -> tuple[str, str]:
    """Returns name and spec. A classifier of the build may be given by its name in rows, or by its spec, and keeps that
    name."""
    name, spec = named(text)
    if text in data.specs and not _is_there(text):
        return text, data.specs[text]
    return (name, spec) if name != spec else (data.name_of(spec), spec)


def _is_there(text: str) -> bool:
    """Returns whether a text is a spec of files that exist, relative to the working directory."""
    read = [path for _, path in paths(located(text, Path.cwd()))]
    return bool(read) and all(files.exists(path) for path in read)


def _claim(out: str, data: FailureDataset) -> None:
    """Raises RunError where `out` belongs to another dataset, or holds anything else."""
    mark = json.dumps({"dataset": data.id}).encode() + b"\n"
    entries = files.entries(out)
    if CONFIG in entries:
        if files.read_bytes(f"{out}/{CONFIG}") != mark:
            raise RunError(f"{out}: holds an evaluation of another dataset; name another directory", run=out)
    elif entries:
        raise RunError(f"{out}: holds files already; name an empty directory or a new one", run=out)
    else:
        files.write_under(f"{out}/{CONFIG}", mark)


def _loaded(factories: Sequence[tuple[Any, EvaluatedClassifier]]) -> list[LoadedClassifier]:
    return [LoadedClassifier(factory(), entry.question) for factory, entry in factories]


def _counted(
    folders: tuple[str, str],
    data: FailureDataset,
    against: tuple[sources.Reference | None, Pictures | None],
    entries: Sequence[EvaluatedClassifier],
    compared: ImageSetDistances | None,
) -> Evaluated:
    names, build_classifiers = [entry.name for entry in entries], classifiers_of(data)
    answers = _answers_of(data, len(entries), len(build_classifiers))
    for part in _parts(folders[0], entries):
        answers.add(part, names)
    table, consistency = transfers(answers, names, build_classifiers), consistencies("dataset", answers, names)
    reference, pictures = against
    if pictures is not None:
        reference_answers = _of_reference(folders[1], entries, pictures)
        reference_rates = pa.Table.from_pylist(rates("reference", reference_answers, names), FAILURE_RATES)
        table = pa.concat_tables([table, reference_rates])
        consistency = pa.concat_tables([consistency, consistencies("reference", reference_answers, names)])
    return Evaluated(
        dataset=data,
        entries=tuple(entries),
        rates=table,
        consistency=consistency,
        changed=changed_answers(answers, names, build_classifiers),
        captions=answers.captions,
        compared=compared,
        reference=None if reference is None else reference.table,
        copies=0 if pictures is None else pictures.copies,
    )


def _answers_of(data: FailureDataset, classifiers: int, build_classifiers: int) -> EvaluationAnswers:
    ids, captions, failed = [], [np.zeros(0, np.int64)], [np.zeros((0, build_classifiers), bool)]
    for shard in data.shards:
        for table in data.tables([shard.name], ["image_id", "caption_number", "answers"]):
            ids.append(table["image_id"])
            captions.append(table["caption_number"].to_numpy().astype(np.int64))
            flags = [[answer["failed"] for answer in answers] for answers in table["answers"].to_pylist()]
            failed.append(np.array(flags, bool).reshape(-1, build_classifiers))
    return EvaluationAnswers.of(ids, np.concatenate(captions), np.concatenate(failed), classifiers)


def _of_reference(location: str, entries: Sequence[EvaluatedClassifier], pictures: Pictures) -> EvaluationAnswers:
    """Returns the answers of each classifier to the images of the labels that all of them have, also where an
    earlier evaluation asked some of them about more labels; every picture is its own caption."""
    ids = [part["image_id"] for part in _parts(location, entries[:1])]
    count = sum(map(len, ids))
    answers = EvaluationAnswers.of(ids, pictures.of(ids), np.zeros((count, 0), bool), len(entries), most=count)
    names = [entry.name for entry in entries]
    for part in _parts(location, entries):
        answers.add(part, names)
    return answers


def _parts(location: str, entries: Sequence[EvaluatedClassifier]) -> Iterator[pa.Table]:
    """Yields the answers of these classifiers at their revisions about the labels that all of them have, under their
    current names."""
    parts = opened(location)
    name_of_key = {(entry.question.classifier, entry.question.revision): entry.name for entry in entries}
    for name in parts.names():
        table = parts.read(name)
        keys = list(zip(table["classifier"].to_pylist(), table["revision"].to_pylist(), strict=True))
        is_shared = pc.is_in(table["label"], pa.array(entries[0].question.classes, pa.string())).to_pylist()
        is_wanted = [key in name_of_key and of_all for key, of_all in zip(keys, is_shared, strict=True)]
        table = table.filter(pa.array(is_wanted, pa.bool_()))
        current_names = [name_of_key[key] for key, is_mine in zip(keys, is_wanted, strict=True) if is_mine]
        position = table.schema.get_field_index("classifier")
        yield table.set_column(position, "classifier", pa.array(current_names, pa.string()))
