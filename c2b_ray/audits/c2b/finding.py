"""Attributes that are found on one half of labelled images and tested on the other: words of captions (B2T), clusters
of embeddings (Domino).

The halves follow from a hash of each file's bytes, or of its cluster, so that copies lie in one half, and before any
answer is known. Images of the finding half have no value of what was found in it, so that nothing is tested on the
answers that chose it. It joins the config with the stages of `deriving`, and with the classifiers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy
from numpy.typing import NDArray

from c2b_ray.audits.c2b.classification import classifying
from c2b_ray.audits.c2b.deriving import Look, Looked, observe
from c2b_ray.audits.c2b.hypotheses.derived import Derived, ImageClasses, coded
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, note_models, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import VERIFY, AuditedClassifier, OutputDirectories, look_and_classify, of_revision
from c2b_ray.engine.stage import StageConfig
from c2b_ray.names import normalise, plural
from c2b_ray.stats.clustering import LEAST_SHARE, error_mixture
from c2b_ray.stats.scores import Ints
from c2b_ray.steps.answers import ClassifierAnswers
from c2b_ray.steps.draw import ImageIds, image_ids
from c2b_ray.steps.observe import describe, embed
from c2b_ray.tables import IMAGE_CAPTIONS, IMAGE_VECTORS, content_id, seed_of

# Clusters of embeddings that a classifier gets wrong alike, in the manner of Domino (Eyuboglu et al. 2022): the
# values of an attribute.


IMAGES_OF_EACH, MOST = 20, 8
"""Images of the finding half for each cluster, and the most clusters of a class."""

Vectors = NDArray[np.float32]


def slices_of(vectors: Vectors, finding: Mask, wrong: Mask, target_class: str, seed: int) -> Ints:
    """Returns the cluster of each image of one class, int64 (images,), numbered by their share of wrong answers in the
    finding half, the largest 0; −1 for all where there are too few images, and for clusters of less than a twentieth of
    either half.

    `vectors`: (images, dimension), of length 1. `wrong` is read on the finding half alone.
    """
    none = np.full(len(vectors), -1, np.int64)
    count = min(MOST, int(finding.sum()) // IMAGES_OF_EACH)
    if count < 2:
        return none
    fitted = error_mixture(vectors[finding], wrong[finding], count, seed=seed_of("slices", target_class, seed))
    cluster_numbers = fitted.assigned(vectors)
    halves = [np.bincount(cluster_numbers[half], minlength=count) / max(1, half.sum()) for half in (finding, ~finding)]
    is_large = (halves[0] >= LEAST_SHARE) & (halves[1] >= LEAST_SHARE)
    if is_large.sum() < 2:
        return none
    rates = [
        wrong[finding & (cluster_numbers == number)].mean() if is_large[number] else -1.0 for number in range(count)
    ]
    order = np.argsort(-np.array(rates), kind="stable")
    rank = np.full(count, -1, np.int64)
    rank[order] = np.arange(count)
    return np.where(is_large[cluster_numbers], rank[cluster_numbers], -1)


# Words of captions that go with wrong answers, in the manner of B2T (Kim et al. 2024): each is an attribute of two
# values, whether the caption of an image has it.


MOST_WORDS = 8
"""The most words of a class. Further ones are often the same images under other names."""
FEWEST = 5
"""The fewest images of the finding half that have a word, and that lack it."""
LARGEST_P = 0.1
"""Words whose difference is larger by chance in more than a tenth of all cases are not worth a test."""
LEAST_TYPICAL = 0.2
"""A word names a cluster where its share among the cluster's captions is larger by this much than among the others."""
SAME = 0.8
"""Words whose images overlap so much (Jaccard) are one."""

_OF_GRAMMAR = (
    "a an the of in on at by to with and or for from as is are was were be been it its this that these those there "
    "here some one two very"
)
_OF_PICTURES = "photo photograph picture image snapshot shot view showing shows shown seen"
_STOP = frozenset(f"{_OF_GRAMMAR} {_OF_PICTURES}".split())


@dataclass(frozen=True)
class Word:
    """A word or two that go together. `has` (images,): whose captions have it; `p_value`: of no difference in wrong
    answers, on the images that it was found on."""

    text: str
    has: Mask
    p_value: float


def words_of(caption: str, target_class: str) -> set[str]:
    """Returns the words of a caption and its pairs of neighbouring words, without words of the class, of grammar, and
    those that every caption of a photograph has."""
    of_class = {word for name in (target_class, plural(target_class)) for word in normalise(name).split()} | _STOP
    result: set[str] = set()
    before = ""
    for token in re.findall(r"[\w'-]+|[^\w\s]", caption.lower()):
        word = token if re.match(r"\w", token) and token not in of_class and len(token) > 1 else ""
        if word:
            result.add(word)
            if before:
                result.add(f"{before} {word}")
        before = word
    return result


def telling_words(captions: Sequence[str], target_class: str, finding: Mask, wrong: Mask) -> list[Word]:
    """Returns the words of one class's captions that tell most of its wrong answers, the surest first.

    `finding` (images,): the half on which they are found; `wrong`: is read there alone.
    """
    holders: Mapping[str, list[int]] = _holders(captions, target_class)
    failed = wrong & finding
    images, errors = int(finding.sum()), int(failed.sum())
    candidates = []
    for text, rows in holders.items():
        n, k = int(finding[rows].sum()), int(failed[rows].sum())
        if min(n, images - n) < FEWEST:
            continue
        p_value = float(scipy.stats.fisher_exact([[k, n - k], [errors - k, images - n - errors + k]]).pvalue)
        if p_value <= LARGEST_P:
            has = np.zeros(len(captions), bool)
            has[rows] = True
            candidates.append(Word(text, has, p_value))
    result: list[Word] = []
    # Of two words on the same images, the shorter one is kept.
    for candidate in sorted(candidates, key=lambda candidate: (candidate.p_value, len(candidate.text), candidate.text)):
        if len(result) < MOST_WORDS and all(_overlap(candidate.has, other.has, finding) < SAME for other in result):
            result.append(candidate)
    return result


def typical_words(captions: Sequence[str], target_class: str, inside: Mask, among: Mask) -> list[str]:
    """Returns at most two words that are more frequent in captions of the images `inside` than of the others `among`,
    those with the largest difference of the shares first."""
    holders = _holders(captions, target_class)
    others = among & ~inside
    sizes = max(1, int(inside.sum())), max(1, int(others.sum()))
    scores = {text: inside[rows].sum() / sizes[0] - others[rows].sum() / sizes[1] for text, rows in holders.items()}
    result: list[str] = []
    for text in sorted(scores, key=lambda text: (-round(float(scores[text]), 9), -len(text), text)):
        parts = set(text.split())
        if scores[text] > LEAST_TYPICAL and not any(parts & set(other.split()) for other in result):
            result.append(text)
        if len(result) == 2:
            break
    return result


def _holders(captions: Sequence[str], target_class: str) -> Mapping[str, list[int]]:
    holders: dict[str, list[int]] = defaultdict(list)
    for row, caption in enumerate(captions):
        for word in words_of(caption, target_class):
            holders[word].append(row)
    return holders


def _overlap(first: Mask, second: Mask, among: Mask) -> float:
    union = int(((first | second) & among).sum())
    return int((first & second & among).sum()) / union if union else 0.0


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
    words = (
        {} if halves.captions is None else {name: _words(halves, name, looked.image_classes) for name in halves.wrong}
    )
    attributes = _attributes_of(words, halves, looked.image_classes)
    for name in halves.wrong:
        of_name = f" of {name}" if has_several else ""
        if name in words and not any(words[name].values()):
            reasons[f"word of a caption{of_name}"] = "no word goes with wrong answers in one half of the images"
        if halves.vectors is not None:
            attribute = f"slice{of_name}"
            slices = _slices(config, halves, name, attribute, looked.image_classes)
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
    numbers = np.array([answers.number(name) for name in looked.image_classes.classes], np.int64)
    target = numbers[looked.image_classes.places[rows]]
    answers_taken = answers.taken(answer_rows, target)
    is_answered = (answer_rows >= 0) & (answers_taken >= 0)
    return is_answered & (answers_taken != target), is_answered


def _words(halves: Halves, classifier: str, image_classes: ImageClasses) -> dict[int, list[Word]]:
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
    words: Mapping[str, Mapping[int, Sequence[Word]]], halves: Halves, image_classes: ImageClasses
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
    config: AuditConfig, halves: Halves, classifier: str, attribute: str, image_classes: ImageClasses
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
