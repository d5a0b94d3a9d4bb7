"""Rows of pictures: ids, what is read and decoded, and answers that depend on neither batches nor the classifier's way
of taking pictures."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.perturbation.images import (
    UNPERTURBED,
    Perturbing,
    perturbed,
    picture_rows,
    predict_pictures,
    reduced,
    side_for,
    with_pictures,
)
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.roles import Shape
from c2b_ray.steps.classify import Classification, LoadedClassifier
from c2b_ray.steps.decode import decode
from c2b_ray.steps.draw import png
from c2b_ray.steps.prepared import PreparedView, prepared
from c2b_ray.tables import PERTURBED_PREDICTIONS, content_of

PERTURBING = Perturbing((("blur", (1, 5)), ("jpeg", (3,)), ("noise", (2,))), 64, 7)
KINDS = [(UNPERTURBED, 0), ("blur", 1), ("blur", 5), ("jpeg", 3), ("noise", 2)]
QUESTION = Classification("dark or light", "1", ("dark", "light"), ((0,), (1,)), labels=("dark", "light"))


class Brightness:
    """Its logits tell mean brightness to many digits, so that another picture has another answer."""

    labels, revision = ("dark", "light"), "1"

    def logits(self, images, keys):
        means = [float(np.mean(image)) / 255 for image in images]
        return np.array([[1 - mean, mean] for mean in means], np.float32)


class Shaped(Brightness):
    shape = Shape((32, 32), "bilinear", None)

    def logits_of_shaped(self, images):
        return self.logits(list(images), [])


def images(count=5):
    random = np.random.default_rng(100_003)
    pictures = [random.integers(0, 255, (90 + n, 120, 3), dtype=np.uint8) for n in range(count)]
    return pictures, pa.table(
        {
            "image_id": [f"image {n}" for n in range(count)],
            "key": [f"{n}.png" for n in range(count)],
            "row": pa.array([None] * count, pa.int64()),
            "size": pa.array([None] * count, pa.int64()),
            "bytes": pa.array([png(picture) for picture in pictures], pa.binary()),
            "content": pa.array([None] * count, pa.string()),
            "pixels": pa.array([90 * 120] * count, pa.int32()),
            "error": pa.array([None] * count, pa.string()),
        }
    )


def rows_of(table, perturbing=PERTURBING):
    return pa.concat_tables(picture_rows(table, perturbing, [QUESTION]))


def test_each_image_has_a_row_for_each_picture_the_unperturbed_one_first():
    _, table = images(20)
    rows = rows_of(table)
    assert list(PERTURBING.each()) == KINDS
    assert rows["image_id"].to_pylist() == [f"image {n}" for n in range(20) for _ in KINDS]
    assert list(zip(rows["perturbation"].to_pylist(), rows["level"].to_pylist(), strict=True)) == KINDS * 20
    assert len(set(rows["picture_id"].to_pylist())) == 20 * len(KINDS)
    other = rows_of(table, Perturbing(PERTURBING.levels, 65, 7))
    assert not {*other["picture_id"].to_pylist()} & {*rows["picture_id"].to_pylist()}  # the side is part of the id


def test_pictures_are_reduced_and_then_perturbed_and_a_jpeg_is_made_at_the_pictures_own_size():
    pictures, table = images(2)
    rows = with_pictures(rows_of(table), None, PERTURBING)
    assert rows["error"].null_count == rows.num_rows
    made = {
        key: decode(data)
        for *key, data in zip(
            *(rows[n].to_pylist() for n in ("image_id", "perturbation", "level", "bytes")), strict=True
        )
        for key in [tuple(key)]
    }
    for n, picture in enumerate(pictures):
        small = reduced(picture, 64)
        assert min(small.shape[:2]) == 64
        np.testing.assert_array_equal(made[f"image {n}", UNPERTURBED, 0], small)
        np.testing.assert_array_equal(made[f"image {n}", "blur", 5], perturbed(small, "blur", 5, 0))
        np.testing.assert_array_equal(made[f"image {n}", "jpeg", 3], reduced(perturbed(picture, "jpeg", 3, 0), 64))
    noises = [made[f"image {n}", "noise", 2][:64, :80].astype(int) - reduced(pictures[n], 64)[:64, :80] for n in (0, 1)]
    assert np.abs(noises[0] - noises[1]).mean() > 10  # each image has noise of its own


def test_answers_depend_on_neither_batches_nor_order_nor_on_who_decodes():
    _, table = images()
    rows = rows_of(table)
    alone = [LoadedClassifier(Brightness(), QUESTION)]
    whole = predict_pictures(with_pictures(rows, None, PERTURBING), alone)
    assert whole.schema == PERTURBED_PREDICTIONS
    by_id = {row["prediction_id"]: row for row in whole.to_pylist()}
    mixed = rows.take(np.random.default_rng(1).permutation(rows.num_rows))
    for start in range(0, rows.num_rows, 7):
        part = predict_pictures(with_pictures(mixed.slice(start, 7), None, PERTURBING), alone)
        assert all(by_id[row["prediction_id"]] == row for row in part.to_pylist())
    views = [PreparedView(Shaped.shape, shaped)]
    given = prepared(with_pictures(rows, None, PERTURBING), views)
    decoded_before = predict_pictures(given, [LoadedClassifier(Shaped(), QUESTION)])
    assert decoded_before["prediction_id"].equals(whole["prediction_id"])
    assert decoded_before["perturbation"].equals(whole["perturbation"])
    assert decoded_before["image_id"].equals(whole["image_id"])


def test_an_image_that_cannot_be_read_is_an_error_of_each_of_its_rows():
    _, table = images(2)
    table = table.set_column(
        table.column_names.index("bytes"), "bytes", pa.array([b"no picture", table["bytes"][1].as_py()])
    )
    answers = predict_pictures(
        with_pictures(rows_of(table), None, PERTURBING), [LoadedClassifier(Brightness(), QUESTION)]
    )
    errors = dict.fromkeys(("image 0", "image 1"), 0)
    for image, error in zip(answers["image_id"].to_pylist(), answers["error"].to_pylist(), strict=True):
        errors[image] += error is not None
    assert errors == {"image 0": len(KINDS), "image 1": 0}


class Source:
    """Counts how often each row is read."""

    revision = "1"

    def __init__(self, files, counts):
        self.files, self.counts = files, counts

    def fetch(self, ids):
        for row in ids:
            self.counts[row] += 1
        data = [self.files[row] for row in ids]
        return pa.table({"key": [str(row) for row in ids], "bytes": pa.array(data, pa.binary())})


def test_an_image_whose_bytes_stay_in_their_source_is_read_once_for_all_its_pictures():
    _, table = images(3)
    files, counts = table["bytes"].to_pylist(), [0, 0, 0]
    placed = table.drop_columns(["bytes", "row", "size", "content"])
    placed = placed.append_column("row", pa.array([0, 1, 2], pa.int64()))
    placed = placed.append_column("size", pa.array([len(data) for data in files], pa.int64()))
    placed = placed.append_column("content", pa.array([content_of(data) for data in files]))
    rows = with_pictures(rows_of(placed), partial(Source, files, counts), PERTURBING)
    assert counts == [1, 1, 1]
    there = with_pictures(rows_of(table), None, PERTURBING)
    assert rows["bytes"].equals(there["bytes"])


@pytest.mark.parametrize(
    ("shapes", "side"),
    [
        ([], 256),
        ([None], 256),
        ([Shape(64, "bilinear", (64, 64))], 256),
        ([Shape(256, "bilinear", (224, 224)), Shape((384, 400), "bicubic", None)], 384),
        ([Shape(None, "bilinear", None)], 256),
    ],
)
def test_pictures_keep_what_the_largest_classifier_takes(shapes, side):
    assert side_for(shapes) == side
