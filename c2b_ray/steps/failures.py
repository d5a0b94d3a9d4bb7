"""Lists the images that a classifier got wrong, each with what it shows and what it was taken for.

It knows which images belong to a cell and which answers are right; it knows nothing of files.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import CellImages, classes_of_labelled, images_of_cells
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.tables import FAILURES


def failures(captions: pa.Table, draws: pa.Table, images: pa.Table, predictions: pa.Table) -> pa.Table:
    """Returns a table of `schemas.FAILURES`: a row per classifier, cell and image with a wrong answer.

    `images`: a table with image_id, key, content and fingerprint. Near-duplicates of an image count once in a cell, as
    in its scores; an image of several cells has a row in each. Images without an answer are no failures.
    """
    drawn = images_of_cells(captions, draws)
    cells = drawn.without_copies(Distinct(images, classes_of_labelled(captions, draws)).pictures(drawn.ids))
    keys = images["key"].take(_rows_of(images, cells))
    tables = [_of_classifier(cells, keys, predictions, name) for name in predictions["classifier"].unique().to_pylist()]
    return pa.concat_tables([FAILURES.empty_table(), *tables])


def _of_classifier(cells: CellImages, keys: pa.ChunkedArray, predictions: pa.Table, classifier: str) -> pa.Table:
    """Returns the failures of one classifier. `keys`: the name of each image of `cells.ids` in its source."""
    answers = answers_of(predictions, classifier)
    taken = answers.to(cells)
    wrong = np.flatnonzero(taken.answered & ~taken.right)
    by_name = wrong[cells.ids.alphabetical(cells.image[wrong])]
    wrong = by_name[np.argsort(cells.cell[by_name], kind="stable")]
    names = [cells.names[number] for number in cells.cell[wrong].tolist()]
    answer = {number: answers.name(number) for number in set(taken.taken[wrong].tolist())}
    image = pa.array(cells.image[wrong])
    of_classifier = predictions.filter(pc.equal(predictions["classifier"], classifier)).select(
        ["label", "label_probability"]
    )
    of_image = of_classifier.take(pa.array(answers.rows_of(cells.ids)[cells.image[wrong]]))
    columns = {
        "key": keys.take(image),
        "truth": [name.target_class for name in names],
        "answer": [answer[number] for number in taken.taken[wrong].tolist()],
        "cell": [f"{name.attribute}/{name.bias_class}" for name in names],
        "attribute": [name.attribute for name in names],
        "bias_class": [name.bias_class for name in names],
        "classifier": [classifier] * len(wrong),
        "label": of_image["label"],
        "label_probability": of_image["label_probability"],
        "image_id": cells.ids.ids.take(image).cast(pa.string()),
    }
    return pa.table(columns, schema=FAILURES)


def _rows_of(images: pa.Table, cells: CellImages) -> pa.Array:
    """Returns the row of each image of `cells.ids`; null for one that is not listed."""
    rows = np.full(len(cells.ids), -1, np.int64)
    numbers = cells.ids.numbers(images["image_id"])
    rows[numbers[numbers >= 0]] = np.flatnonzero(numbers >= 0)
    return pa.array(rows, mask=rows < 0)
