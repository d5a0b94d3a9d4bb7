"""Looks at images of the calibration that show another class as if an index had returned them: hard negatives.

How often a verifier takes another thing for a bus depends on how much the thing looks like one, and an index returns
those that do. So the calibration's images of other classes are searched by the run's captions, and those that are as
near to a caption as its pool are verified with the questions of the run. It decides which images these are; `verify`
has the questions, and `false_accepts` what the answers mean for a cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.names import normalise
from c2b_ray.roles import Captioner, Floats, TextImageEncoder
from c2b_ray.steps import encoded
from c2b_ray.steps.draw import ImageSource, Rows, image_id
from c2b_ray.steps.verify import Checks, verify
from c2b_ray.tables import DRAWS, NEGATIVES, VERIFICATIONS, content_id, seed_of

MOST = 5000
"""The most images of a calibration table that are compared with the captions of a class. They cost an embedding each,
and those near to a caption a verification."""

SOURCE = "calibration"
"""The source of such images, in draws."""

TO_COMPARE = pa.schema([("negative_id", pa.string()), ("row", pa.int64()), ("target_class", pa.string())])


@dataclass(frozen=True)
class CaptionReach:
    """The captions of a run by target class, as (id, text), and the least similarity of each caption's pool."""

    captions: Mapping[str, Sequence[tuple[str, str]]]
    least: Mapping[str, float]

    @classmethod
    def of(cls, captions: pa.Table, nearest: pa.Table) -> CaptionReach:
        """`nearest`: of `tables.DRAWS`, the pool of each caption. Captions without a pool are left out."""
        pools = nearest.group_by("caption_id").aggregate([("similarity", "min")])
        least = dict(zip(pools["caption_id"].to_pylist(), pools["similarity_min"].to_pylist(), strict=True))
        by_class: dict[str, list[tuple[str, str]]] = {}
        for row in captions.to_pylist():
            if row["caption_id"] in least:
                by_class.setdefault(row["target_class"], []).append((row["caption_id"], row["text"]))
        return cls(by_class, least)


@dataclass(frozen=True)
class NegativeChecker:
    """What looks at the images: the verifier, the index's encoder, and the source of the images."""

    captioner: Captioner
    encoder: TextImageEncoder
    source: ImageSource
    reach: CaptionReach

    @cached_property
    def texts(self) -> dict[str, Floats]:
        """The embeddings of each class's captions, (captions, dimension)."""
        return {
            target: self.encoder.encode_texts([text for _, text in captions])
            for target, captions in self.reach.captions.items()
        }


def to_compare(labels: pa.Table, revision: str, made_by: str, reach: CaptionReach, seed: int) -> pa.Table:
    """Returns the images of a calibration table that are compared with each class's captions: a table of `TO_COMPARE`,
    with the rows of one image together.

    `labels`: `target_class` of each image, null where it is not known. `made_by`: what the answers depend on besides
    image and captions: encoder, index and the verifier's questions. For each class at most `MOST` images that show
    another class, chosen by `seed`.
    """
    classes_shown = np.array(
        [None if v is None else normalise(str(v)) for v in labels["target_class"].to_pylist()], object
    )
    jobs: list[tuple[int, str]] = []
    for target in reach.captions:
        other_rows = np.flatnonzero((classes_shown != normalise(target)) & (classes_shown != None))  # noqa: E711 (elementwise)
        order = np.random.default_rng(seed_of("negatives", target, seed)).permutation(other_rows)
        jobs += [(row, target) for row in order[:MOST].tolist()]
    jobs.sort()
    digest_of_class = {
        target: content_id("captions", made_by, *(f"{name} {reach.least[name]!r}" for name, _ in captions))
        for target, captions in reach.captions.items()
    }
    rows = [
        {
            "negative_id": content_id("negative", revision, row, target, digest_of_class[target]),
            "row": row,
            "target_class": target,
        }
        for row, target in jobs
    ]
    return pa.Table.from_pylist(rows, TO_COMPARE)


def compare(batch: pa.Table, checker: NegativeChecker, checks: Checks) -> pa.Table:
    """Compares a batch of `to_compare` with its classes' captions and verifies those images that are near to one:
    returns a table of `tables.NEGATIVES`, a row per row.

    `captions` of a row are those whose pools would hold the image; where there is none, it was not verified.
    """
    rows: Rows = np.unique(batch["row"].to_numpy())
    files = checker.source.fetch(rows.tolist())
    if "error" not in files.column_names:
        files = files.append_column("error", pa.nulls(files.num_rows, pa.string()))
    vectors, errors = encoded.embedded(files, checker.encoder)
    position = np.searchsorted(rows, batch["row"].to_numpy())
    targets = batch["target_class"].to_pylist()
    near_captions = [
        _near(vectors[file_position], target, checker)
        for file_position, target in zip(position.tolist(), targets, strict=True)
    ]
    near_rows = np.flatnonzero([bool(captions) for captions, _ in near_captions])
    ids = [image_id(checker.source.revision, row) for row in batch["row"].to_pylist()]
    answers = _verified(
        files.take(pa.array(position[near_rows])), [(ids[i], targets[i]) for i in near_rows], checker, checks
    )
    nothing: dict[str, object] = {
        "class_shown": None,
        "attributes": [],
        "values": [],
        "certainties": [],
        "class_certainty": None,
    }
    result = []
    for i, (negative, file_position) in enumerate(
        zip(batch["negative_id"].to_pylist(), position.tolist(), strict=True)
    ):
        captions, similarities = near_captions[i]
        row = {
            "negative_id": negative,
            "image_id": ids[i],
            "target_class": targets[i],
            "error": errors[file_position],
            **nothing,
        }
        row |= {"revision": checks.revision, "captions": captions, "similarities": similarities}
        row["verification_id"] = checks.verification_id(ids[i], targets[i])
        result.append(row | answers.get((ids[i], targets[i]), {}))
    return pa.Table.from_pylist(result, NEGATIVES)


def _near(vector: list[float] | None, target: str, checker: NegativeChecker) -> tuple[list[str], list[float]]:
    """Returns the captions of a class whose pools would hold the image, and its similarity to each."""
    if vector is None:
        return [], []
    names = [name for name, _ in checker.reach.captions[target]]
    similarities = checker.texts[target] @ np.asarray(vector, np.float32)
    near_numbers = np.flatnonzero(similarities >= np.array([checker.reach.least[name] for name in names]))
    return [names[i] for i in near_numbers], similarities[near_numbers].tolist()


def _verified(
    files: pa.Table, images: Sequence[tuple[str, str]], checker: NegativeChecker, checks: Checks
) -> dict[tuple[str, str], dict[str, object]]:
    """Returns the verifier's answers about files, by image id and target class."""
    if not images:
        return {}
    columns = {"image_id": [image for image, _ in images], "target_class": [target for _, target in images]}
    table = pa.table({**columns, "bytes": files["bytes"], "error": files["error"]})
    answers = verify(table, checker.captioner, checks).to_pylist()
    return {(row["image_id"], row["target_class"]): row for row in answers}


def as_draws(negatives: pa.Table) -> pa.Table:
    """Returns `tables.NEGATIVES` as draws (`tables.DRAWS`): a row for each caption whose pool would hold an image."""
    owner = pc.list_parent_indices(negatives["captions"])
    return pa.table(
        {
            "caption_id": pc.list_flatten(negatives["captions"]),
            "image_id": negatives["image_id"].take(owner),
            "rank": pa.array(np.zeros(len(owner)), pa.int32()),
            "similarity": pc.list_flatten(negatives["similarities"]),
            "source": pa.repeat(SOURCE, len(owner)),
        }
    ).cast(DRAWS)


def as_verifications(negatives: pa.Table) -> pa.Table:
    """Returns the verified ones of `tables.NEGATIVES` as `tables.VERIFICATIONS`."""
    is_verified = pc.greater(pc.list_value_length(negatives["captions"]), 0)
    return negatives.filter(is_verified).select(VERIFICATIONS.names).cast(VERIFICATIONS)
