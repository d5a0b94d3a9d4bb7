"""Attributes that are found on one half of labelled images and tested on the other: words of captions (B2T), clusters
of embeddings (Domino).

The halves follow from a hash of each file's bytes, or of its cluster, so that copies lie in one half, and before any
answer is known. Images of the finding half have no value of what was found in it, so that nothing is tested on the
answers that chose it. It joins the config with the stages of `hypotheses.observing`, and with the classifiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.classification import classifying
from c2b_ray.audits.c2b.hypotheses.derived import Derived, OfClasses, coded
from c2b_ray.audits.c2b.hypotheses.observing import Look, Looked, observe
from c2b_ray.audits.c2b.hypotheses.slices import slices_of
from c2b_ray.audits.c2b.hypotheses.words import Word, telling_words, typical_words
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, note_models, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import VERIFY, AuditedClassifier, OutputDirectories, look_and_classify, of_revision
from c2b_ray.engine.stage import StageConfig
from c2b_ray.steps.answers import ClassifierAnswers
from c2b_ray.steps.draw import ImageIds, image_ids
from c2b_ray.steps.observe import describe, embed
from c2b_ray.tables import IMAGE_CAPTIONS, IMAGE_VECTORS, content_id

DESCRIBE = StageConfig(IMAGE_CAPTIONS, stage=VERIFY.stage, rows_per_file=1024)
EMBED = StageConfig(IMAGE_VECTORS, stage="embed", rows_per_file=1024)
_ANSWERS = ["image_id", "label", "predicted_class", "answered", "undecided", "error"]
YES, NO = "yes", "no"

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Halves:
    """The rows that were looked at, ascending, and which of them belong to the `finding` half; the others are tested.

    `wrong`: by classifier, where its answer is known (`answered`); both are meaningful in the finding half alone.
    `captions`, `vectors`: of the rows; None where the config asks for none.
    """

    rows: NDArray[np.int64]
    finding: Mask
    wrong: dict[str, Mask]
    answered: dict[str, Mask]
    captions: list[str] | None
    vectors: NDArray[np.float32] | None


def found_attributes(
    config: AuditConfig,
    run: C2BRun,
    models: Backend,
    classifiers: Sequence[AuditedClassifier],
    looked: Looked,
    clusters: pa.Array | None,
    steps: Steps,
) -> tuple[list[Derived], dict[str, str]]:
    """Returns the attributes that are found in captions and embeddings of one half of the images, with values of the
    other; and of those kinds that give none: name → the reason. `clusters`: of all rows of the table, where the config
    names them. The classifiers answer about the finding half."""
    halves = _halves(config, run, models, classifiers, looked, clusters, steps)
    reasons: dict[str, str] = {}
    has_several = len(classifiers) > 1
    words = {} if halves.captions is None else {name: _words(halves, name, looked.of) for name in halves.wrong}
    attributes = _attributes_of(words, halves, looked.of)
    for name in halves.wrong:
        of_name = f" of {name}" if has_several else ""
        if name in words and not any(words[name].values()):
            reasons[f"word of a caption{of_name}"] = "no word goes with wrong answers in one half of the images"
        if halves.vectors is not None:
            attribute = f"slice{of_name}"
            slices = _slices(config, halves, name, attribute, looked.of)
            if slices is None:
                reasons[attribute] = "no class has enough images in each half for two clusters"
            else:
                attributes.append(slices)
    return attributes, reasons


def _halves(
    config: AuditConfig,
    run: C2BRun,
    models: Backend,
    classifiers: Sequence[AuditedClassifier],
    looked: Looked,
    clusters: pa.Array | None,
    steps: Steps,
) -> Halves:
    """Has the models describe and embed all images, and the classifiers answer about one half."""
    described = embedded = None
    if (spec := config.images.words) is not None:
        description = models.describe("captioner", spec)
        note_models(run, {"describer": model_row(spec, description)})
        warn_of_assumptions(steps, spec, description)
        questions = {target: [description.revision] for target in config.classes}
        role = partial(of_revision, models.captioner(spec), description.revision, spec)
        with steps.step("describe images") as on_progress:
            look = Look("descriptions", questions, describe, role, DESCRIBE)
            described = observe(run, models.runner, looked, look, on_progress)
    if (spec := config.images.slices) is not None:
        description = models.describe("encoder", spec)
        note_models(run, {"slicer": model_row(spec, description)})
        warn_of_assumptions(steps, spec, description)
        questions = {target: [description.revision] for target in config.classes}
        encoder = partial(of_revision, models.encoder(spec), description.revision, spec)
        with steps.step("embed images") as on_progress:
            look = Look("vectors", questions, embed, encoder, EMBED)
            embedded = observe(run, models.runner, looked, look, on_progress)
    rows, contents, captions, vectors = _joined(described, embedded)
    names = parted_by(clusters, rows, contents)
    finding = np.array([in_finding_half(name, config.seed) for name in names], bool)
    to = OutputDirectories(run.location("images"), run.location("predictions"), config.keep_images)
    with steps.step(classifying(config)) as on_progress:
        half = rows[finding].astype(np.int32)
        look_and_classify(models.runner, (half, looked.revision), looked.load, classifiers, to, on_progress)
    wrong, answered = {}, {}
    predictions = run.predictions_of(_ANSWERS)
    for name in config.classifiers:
        wrong[name], answered[name] = _answers(predictions, name, looked, rows)
    return Halves(rows, finding, wrong, answered, captions, vectors)


def in_finding_half(name: str, seed: int) -> bool:
    """Tells whether images of this content, or of this cluster, belong to the half on which attributes are found."""
    return int(content_id("half", name, seed)[:8], 16) % 2 == 0


def _joined(
    described: pa.Table | None, embedded: pa.Table | None
) -> tuple[NDArray[np.int64], list[str], list[str] | None, NDArray[np.float32] | None]:
    """Returns the rows that every model said something of, their contents, captions and vectors."""
    tables = [model_table for model_table in (described, embedded) if model_table is not None]
    rows = tables[0]["row"].to_numpy()
    for table in tables[1:]:
        rows = np.intersect1d(rows, table["row"].to_numpy())
    tables = [model_table.filter(pc.is_in(model_table["row"], pa.array(rows))) for model_table in tables]
    captions = vectors = None
    for table in tables:
        if "caption" in table.column_names:
            captions = table["caption"].to_pylist()
        else:
            flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            vectors = np.asarray(flat, np.float32).reshape(len(rows), -1)
    return rows, tables[0]["content"].to_pylist(), captions, vectors


def parted_by(clusters: pa.Array | None, rows: NDArray[np.int64], contents: Sequence[str]) -> list[str]:
    """Returns what decides on the half of each row: its cluster, or the content of an image that belongs to none."""
    if clusters is None:
        return list(contents)
    of_rows = clusters.take(pa.array(rows)).to_pylist()
    return [content if name is None else f"cluster {name}" for name, content in zip(of_rows, contents, strict=True)]


def _answers(predictions: pa.Table, classifier: str, looked: Looked, rows: NDArray[np.int64]) -> tuple[Mask, Mask]:
    """Returns which rows a classifier answered wrongly, and which it answered."""
    answers = ClassifierAnswers(predictions, classifier)
    answer_rows = answers.rows_of(ImageIds(image_ids(rows, looked.revision)))
    numbers = np.array([answers.number(name) for name in looked.of.classes], np.int64)
    target = numbers[looked.of.places[rows]]
    answers_taken = answers.taken(answer_rows, target)
    is_answered = (answer_rows >= 0) & (answers_taken >= 0)
    return is_answered & (answers_taken != target), is_answered


def _words(halves: Halves, classifier: str, image_classes: OfClasses) -> dict[int, list[Word]]:
    """Returns the words that were found in each class, by its place."""
    assert halves.captions is not None
    words_of_class = {}
    for position, name in enumerate(image_classes.classes):
        in_class = np.flatnonzero(image_classes.places[halves.rows] == position)
        finding = halves.finding[in_class] & halves.answered[classifier][in_class]
        texts = [halves.captions[i] for i in in_class.tolist()]
        words_of_class[position] = telling_words(texts, name, finding, halves.wrong[classifier][in_class])
    return words_of_class


def _attributes_of(
    words: Mapping[str, Mapping[int, Sequence[Word]]], halves: Halves, image_classes: OfClasses
) -> list[Derived]:
    """Returns an attribute for each word, with values in all classes in which it was found, of any classifier."""
    codes_of_word: dict[str, NDArray[np.int64]] = {}
    for by_class in words.values():
        for position, of_class in by_class.items():
            in_class = np.flatnonzero(image_classes.places[halves.rows] == position)
            for word in of_class:
                _mark(
                    codes_of_word.setdefault(word.text, np.full(len(image_classes.places), -1, np.int64)),
                    word,
                    halves,
                    in_class,
                )
    return [
        Derived(
            f"caption says {text}", "word", f"whether a caption of the image says “{text}”", coded(codes, [YES, NO])
        )
        for text, codes in codes_of_word.items()
    ]


def _mark(column: NDArray[np.int64], word: Word, halves: Halves, members: NDArray[np.int64]) -> None:
    """Gives the images of the tested half their value."""
    tested = ~halves.finding[members]
    column[halves.rows[members[tested]]] = np.where(word.has[tested], 0, 1)


def _slices(
    config: AuditConfig, halves: Halves, classifier: str, attribute: str, image_classes: OfClasses
) -> Derived | None:
    """Returns the attribute of clusters; None where no class has two."""
    assert halves.vectors is not None
    slice_numbers, names = np.full(len(image_classes.places), -1, np.int64), dict[str, int]()
    for position, name in enumerate(image_classes.classes):
        in_class = np.flatnonzero(
            (image_classes.places[halves.rows] == position) & (halves.answered[classifier] | ~halves.finding)
        )
        finding, wrong = halves.finding[in_class], halves.wrong[classifier][in_class]
        slices = slices_of(halves.vectors[in_class], finding, wrong, name, config.seed)
        texts = None if halves.captions is None else [halves.captions[i] for i in in_class.tolist()]
        for number in np.unique(slices[slices >= 0]).tolist():
            inside = finding & (slices == number)
            typical = [] if texts is None else typical_words(texts, name, inside, finding)
            value = f"{name} {number + 1}" + (f": {', '.join(typical)}" if typical else "")
            tested = ~finding & (slices == number)
            slice_numbers[halves.rows[in_class[tested]]] = names.setdefault(value, len(names))
    if not (slice_numbers >= 0).any():
        return None
    measure = f"the cluster of the image's embedding by {config.images.slices}"
    return Derived(attribute, "slice", measure, coded(slice_numbers, list(names)))
