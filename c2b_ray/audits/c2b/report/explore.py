"""What a reader can explore of an audit: its images, each once for its class, with every classifier's answers.

Reads tables of a run, the pictures of a sample of its images, and their embeddings where the run's index has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.scoring.metric import LabelScores
from c2b_ray.config.audit import AuditConfig
from c2b_ray.errors import InputError, StorageError
from c2b_ray.models import catalog
from c2b_ray.report import words
from c2b_ray.report.explore import MOST_ROWS, Answered, Explore, Images, Measured, explore, sample
from c2b_ray.report.redact import clean
from c2b_ray.steps.answers import NO_ANSWER, answers_of, gives_each_label
from c2b_ray.steps.cells import CellImages, images_of_cells
from c2b_ray.steps.draw import Ints

Pictures = Callable[[Sequence[str]], tuple[Mapping[str, bytes], int]]
Embed = Callable[[Sequence[str]], NDArray[np.float64] | None]


def explored(
    config: AuditConfig,
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    keys: pa.Table,
    names: Mapping[str, str],
    pictures: Pictures,
    embed: Embed,
    labels: Sequence[LabelScores] = (),
) -> Explore:
    """Returns the block. `keys`: columns image_id and key; `names`: of the classifiers; `pictures`: JPEGs by id of as
    many of these images, from the first, as find room, and how many these are; `embed`: their embeddings; `labels`:
    what classifiers that give each label on its own score for it."""
    cells = images_of_cells(captions, draws)
    rows, images = answered_images(cells, predictions, names, config.right, config.classes)
    sampled = sample(images)
    jpegs, number = pictures(cells.ids.names(cells.image[rows[sampled]]).to_pylist())
    sampled = np.sort(sampled[:number])
    ids = cells.ids.names(cells.image[rows[sampled]]).to_pylist()
    of_sample = keys.filter(pc.is_in(keys["image_id"], pa.array(ids, pa.string())))
    key_of = dict(zip(of_sample["image_id"].to_pylist(), of_sample["key"].to_pylist(), strict=True))
    attributes = _values(cells, rows[sampled], images.truth[sampled])
    return explore(
        images,
        sampled,
        [clean(key_of.get(image_id) or "") for image_id in ids],
        [
            ", ".join(
                f"{name}: {values_of_attribute[i]}"
                for name, values_of_attribute in attributes.items()
                if values_of_attribute[i]
            )
            for i in range(len(ids))
        ],
        attributes,
        [jpegs.get(image_id) for image_id in ids],
        embed(ids) if ids else None,
        tables_of_labels(labels, names) if images.each else None,
    )


def tables_of_labels(labels: Sequence[LabelScores], names: Mapping[str, str]) -> tuple[Measured, ...]:
    """Returns a table of each classifier, lowest F1 first: each label against all images that do not show it."""
    tables = []
    for classifier in dict.fromkeys(one.classifier for one in labels):
        scores = sorted(
            (one for one in labels if one.classifier == classifier), key=lambda one: np.nan_to_num(one.f1, nan=2)
        )
        rows = [
            (
                clean(one.label),
                f"{words.count(one.positive)} of {words.count(one.positive + one.negative)}",
                words.percent(one.precision),
                words.percent(one.recall),
                words.percent(one.f1),
                "" if np.isnan(one.auroc) else words.decimal(round(one.auroc, 3)),
            )
            for one in scores[:MOST_ROWS]
        ]
        tables.append(Measured(names[classifier], rows, max(len(scores) - MOST_ROWS, 0), last="AUROC"))
    return tuple(tables)


def answered_images(
    cells: CellImages, predictions: pa.Table, names: Mapping[str, str], right: str, order: Sequence[str]
) -> tuple[Ints, Images]:
    """Returns for each image of each class the row of `cells` that it is, and the images with their answers. `order`:
    the audit's classes, as probabilities are ordered."""
    classes = tuple(dict.fromkeys(name.target_class for name in cells.names))
    of_class = [cells.rows_of_class(target) for target in classes]
    rows = np.concatenate([*of_class, np.zeros(0, np.int64)])
    truth = np.repeat(np.arange(len(classes)), [len(rows_of_class) for rows_of_class in of_class])
    number = {name: i for i, name in enumerate(classes)}
    answered, each = [], gives_each_label(predictions)
    # By `among_classes` the answer is the likeliest of the classes; otherwise the likeliest of all labels.
    column = "class_probability" if right == "among_classes" else "label_probability"
    for classifier in dict.fromkeys(predictions["classifier"].unique().to_pylist()):
        if classifier not in names:
            continue
        answers = answers_of(predictions, classifier)
        answers_taken = answers.to(cells).taken[rows]
        distinct, back = np.unique(answers_taken, return_inverse=True)
        numbers = [
            -1 if label == NO_ANSWER else number.setdefault(answers.name(label), len(number))
            for label in distinct.tolist()
        ]
        probabilities = predictions.filter(pc.equal(predictions["classifier"], classifier))[column]
        confidence = np.append(
            pc.cast(probabilities, pa.float64()).to_numpy(zero_copy_only=False).astype(np.float64), np.nan
        )
        answer_rows = answers.rows_of(cells.ids)[cells.image[rows]]
        confidence = confidence[answer_rows]
        if each:  # the probability of the label itself
            for rows_of_class, name in enumerate(classes):
                here = truth == rows_of_class
                confidence[here] = answers.probability(answer_rows[here], order.index(name))
        codes = np.array(numbers, np.int64)[back] if numbers else np.zeros(0, np.int64)
        answered.append(Answered(names[classifier], codes, confidence))
    scored = right != "top5" and not each
    return rows, Images(classes, tuple(number), truth, tuple(answered), scored, each)


def _values(cells: CellImages, rows: Ints, truth: Ints) -> dict[str, list[str]]:
    """Returns the value of each attribute that each image has as an image of its class; "" where it has none. An image
    that captions of two values drew has the first."""
    values: dict[str, list[str]] = {}
    places_of_image: dict[tuple[int, int], list[int]] = {}
    classes = list(dict.fromkeys(name.target_class for name in cells.names))
    for position, (row, target) in enumerate(zip(rows.tolist(), truth.tolist(), strict=True)):
        places_of_image.setdefault((int(cells.image[row]), target), []).append(position)
    cell_rows = np.flatnonzero(np.isin(cells.image, cells.image[rows]))
    number = {name: i for i, name in enumerate(classes)}
    for row in cell_rows.tolist():
        name = cells.names[int(cells.cell[row])]
        for position in places_of_image.get((int(cells.image[row]), number[name.target_class]), ()):
            column = values.setdefault(name.attribute, [""] * len(rows))
            column[position] = column[position] or name.bias_class
    return values


def embeddings_of_index(config: AuditConfig, images: pa.Table) -> Embed:
    """Returns a function that returns the embeddings of images from the run's index. It returns None where the run has
    no index on this machine, where that is gone, or where an image is not in it. `images`: columns image_id and row. An
    index on an object store is not downloaded for a map."""
    path = config.images.index

    def embed(ids: Sequence[str]) -> NDArray[np.float64] | None:
        if not isinstance(path, str) or "://" in path:
            return None
        from c2b_ray.models.index.faiss_index import FaissIndex  # with faiss, which most pages do without

        image_rows = images.filter(pc.is_in(images["image_id"], pa.array(ids, pa.string())))
        row_of = dict(zip(image_rows["image_id"].to_pylist(), image_rows["row"].to_pylist(), strict=True))
        rows = [row_of.get(image_id) for image_id in ids]
        if any(row is None for row in rows):
            return None
        try:
            index = catalog.index(path)
        except (InputError, StorageError):  # gone since
            return None
        if not isinstance(index, FaissIndex) or max(row for row in rows if row is not None) >= index.count:
            return None
        return index.embeddings([row for row in rows if row is not None]).astype(np.float64)

    return embed
