"""Suspected label errors of a labelled audit: the images whose label, rather than the model, may be wrong.

    answers → confident disagreements → (neighbours in an encoder's space) → label_errors → scores without them

A confident disagreement of the classifier may be its own error: where it fails in fog, it fails confidently. An encoder
that never saw the labels is a witness of its own. An image is listed where most of its neighbours there are labelled as
the classifier answered, and fewer as the image is. Without an encoder nothing tells a wrong model from a wrong label,
so that images in cells where the classifier is found to be worse are not listed; the scores are without them too, and
say how much wrong labels could explain at most. It composes steps and the run;
`stats.read_values` has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.budget import call_with_run, clusters, duplicates, read_of
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.scoring.metric import Measure
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import CLASSIFY, image_rows, of_revision, selected
from c2b_ray.roles import TextImageEncoder
from c2b_ray.stats.read_values import confident_disagreements, neighbours
from c2b_ray.steps import encoded
from c2b_ray.steps.cells import captions_of_draws
from c2b_ray.steps.draw import ImageIds, Ints
from c2b_ray.steps.fetch import Load, with_reading
from c2b_ray.storage.parts import Digests, digests
from c2b_ray.tables import IMAGE_EMBEDDINGS, LABEL_ERRORS, SCORES, content_ids

NEIGHBOURS = 10
MAJORITY = 0.5
"""The share of the neighbours that must be labelled as the classifier answered."""
ERRORS, WITHOUT, EMBEDDINGS = "label_errors", "scores_without", "embeddings"
EMBED = replace(CLASSIFY, schema=IMAGE_EMBEDDINGS, stage="embed", rows_per_file=2048)


def list_label_errors(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps, source: Load | None) -> None:
    """Writes the suspected label errors of each classifier, and its scores without them. `source`: of images whose
    bytes the run does not hold."""
    assert config.label_errors is not None
    revision = None
    if config.label_errors.encoder is not None:
        revision = _embed(config.label_errors.encoder, run, models, steps, source)
    with steps.step("label errors"):
        tables = call_with_run(partial(_tables, config=config, revision=revision), run, config, models.runner)
        for name, table in tables.items():
            run.write(name, table)


def _embed(spec: str, run: C2BRun, models: Backend, steps: Steps, source: Load | None) -> str:
    """Embeds all drawn images that the run has no vector of, and returns the encoder's revision."""
    revision = models.describe("encoder", spec).revision
    run.update({"models": {"encoder": {"spec": spec, "revision": revision}}})
    images = selected(run.location("images"), partial(_drawn, run))
    rows = image_rows(images, "embedding_id", partial(_embedding_ids, revision=revision))
    step, role = with_reading(_vectors, partial(of_revision, models.encoder(spec), revision, spec), source)
    with steps.step("embed") as on_progress:
        if run.lacks(EMBEDDINGS, "embedding_id", rows.ids):
            run.begin_writing()
        out, config = run.location(EMBEDDINGS), replace(EMBED, total=images.total)
        models.runner.run(rows, step, role, out, id_column="embedding_id", config=config, on_progress=on_progress)
    return revision


def _drawn(run: C2BRun) -> Iterator[Digests]:
    for table in run.each("draws", ["image_id"]):
        yield digests(table["image_id"])


def _embedding_ids(image_ids: list[str], revision: str) -> pa.Array:
    return pa.array(content_ids("embed", image_ids, revision), pa.string())


def _vectors(images: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    vectors, errors = encoded.embedded(images, encoder)
    columns: dict[str, Any] = {
        "embedding_id": images["embedding_id"],
        "image_id": images["image_id"],
        "revision": pa.repeat(encoder.revision, images.num_rows),
        "vector": pa.array(vectors, pa.list_(pa.float32())),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns, IMAGE_EMBEDDINGS)


def _tables(run: C2BRun, config: AuditConfig, revision: str | None) -> dict[str, pa.Table]:
    captions, draws, predictions = run.captions, run.draws, run.predictions
    images = _Labelled.of(captions, draws, config.classes)
    vectors = None if revision is None else _vectors_of(run, images, revision)
    keys = run.read("images", ["image_id", "key"])
    rows: list[dict[str, Any]] = []
    scores_without = [SCORES.empty_table()]
    thresholds = Thresholds(config.tau, config.alpha)
    # Scored as the run's own scores are, so that both differ by the suspects alone.
    scored_as_before = partial(
        scored,
        distinct=duplicates(run),
        clusters=clusters(run),
        measure=Measure.of(config.metric, config.classes, config.seed),
        read=read_of(run),
    )
    for classifier in config.classifiers:
        of_classifier = predictions.filter(pc.equal(predictions["classifier"], classifier))
        suspect_rows = _suspects(images, of_classifier, vectors)
        suspects = pa.array([row["image_id"] for row in suspect_rows], pa.string())
        if vectors is None:
            # Nothing tells a weak classifier from wrong labels there. The scores are without them all the same: to
            # leave out the contradictions of the other cells alone would make every finding larger.
            known_bad = set(_in_findings(run.scores, classifier, captions, draws).to_pylist())
            suspect_rows = [row for row in suspect_rows if row["image_id"] not in known_bad]
        rows += [{"classifier": classifier, **row} for row in suspect_rows]
        other_draws = draws.filter(pc.invert(pc.is_in(draws["image_id"], suspects)))
        scores_without.append(scored_as_before(captions, other_draws, predictions, [classifier], thresholds)[0])
    errors = pa.Table.from_pylist([row | {"key": None} for row in rows], LABEL_ERRORS)
    keys_of_errors = keys["key"].take(pc.index_in(errors["image_id"], keys["image_id"].combine_chunks()))
    index = errors.schema.get_field_index("key")
    return {
        ERRORS: errors.set_column(index, errors.schema.field("key"), keys_of_errors),
        WITHOUT: pa.concat_tables(scores_without),
    }


@dataclass(frozen=True)
class _Labelled:
    """The labelled images of an audit and the number of each one's class among `classes`."""

    ids: ImageIds
    label: Ints
    classes: tuple[str, ...]

    @staticmethod
    def of(captions: pa.Table, draws: pa.Table, classes: Sequence[str]) -> _Labelled:
        ids, image = ImageIds.numbered(draws["image_id"])
        number = {name: i for i, name in enumerate(classes)}
        of_caption = np.array([number[name] for name in captions["target_class"].to_pylist()], np.int64)
        caption = captions_of_draws(captions, draws)
        label = np.full(len(ids), -1, np.int64)
        label[image[caption >= 0]] = of_caption[caption[caption >= 0]]
        return _Labelled(ids, label, tuple(classes))


def _vectors_of(run: C2BRun, images: _Labelled, revision: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Returns the vectors of the images, float32 (images, dimension); NaN where one could not be embedded."""
    table = run.read(EMBEDDINGS, ["image_id", "revision", "vector"])
    table = table.filter(pc.and_(pc.equal(table["revision"], revision), pc.is_valid(table["vector"])))
    numbers, column = images.ids.numbers(table["image_id"]), table["vector"].combine_chunks()
    stored = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float32).reshape(table.num_rows, -1)
    vectors = np.full((len(images.ids), stored.shape[1] if table.num_rows else 1), np.nan, np.float32)
    vectors[numbers[numbers >= 0]] = stored[numbers >= 0]
    return vectors


def _suspects(
    images: _Labelled,
    predictions: pa.Table,
    vectors: np.ndarray[Any, np.dtype[np.float32]] | None,
) -> list[dict[str, Any]]:
    """Returns a row for each suspected image, the answer of the largest probability first."""
    predictions = predictions.filter(pc.is_valid(predictions["probabilities"]))
    numbers = images.ids.numbers(predictions["image_id"])
    flat = predictions["probabilities"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    probabilities = np.full((len(images.ids), len(images.classes)), np.nan)
    probabilities[numbers[numbers >= 0]] = np.reshape(flat, (-1, len(images.classes)))[numbers >= 0]
    answers = confident_disagreements(images.label, probabilities)
    suspected = np.flatnonzero(answers >= 0)
    votes = None
    if vectors is not None:
        votes = neighbours(vectors, images.label, suspected, answers[suspected], NEIGHBOURS)
        agree = (votes.answer >= MAJORITY) & (votes.answer > votes.label)
        suspected, votes = suspected[agree], replace(votes, answer=votes.answer[agree], label=votes.label[agree])
    names = images.ids.ids.cast(pa.string()).to_pylist()
    rows = [
        {
            "image_id": names[image],
            "label": images.classes[images.label[image]],
            "answer": images.classes[answers[image]],
            "confidence": float(probabilities[image, answers[image]]),
            "label_probability": float(probabilities[image, images.label[image]]),
            "neighbours_answer": None if votes is None else float(votes.answer[i]),
            "neighbours_label": None if votes is None else float(votes.label[i]),
        }
        for i, image in enumerate(suspected.tolist())
    ]
    return sorted(rows, key=lambda row: (-row["confidence"], row["image_id"]))


def _in_findings(scores: pa.Table, classifier: str, captions: pa.Table, draws: pa.Table) -> pa.Array:
    """Returns the images of the cells in which the classifier is found to be worse."""
    rows = scores.filter(pc.and_(pc.equal(scores["classifier"], classifier), pc.equal(scores["verdict"], "against")))
    cells = set(zip(*(rows[name].to_pylist() for name in _CELL), strict=True))
    captions_of_cells = zip(
        captions["caption_id"].to_pylist(), *(captions[name].to_pylist() for name in _CELL), strict=True
    )
    caption_ids = pa.array([caption for caption, *cell in captions_of_cells if tuple(cell) in cells], pa.string())
    return draws.filter(pc.is_in(draws["caption_id"], caption_ids))["image_id"].unique().cast(pa.string())


_CELL = ("target_class", "attribute", "bias_class")
