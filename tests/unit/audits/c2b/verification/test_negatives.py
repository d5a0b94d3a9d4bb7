from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
from pictured_answers import asked_of, captions_of, see
from PIL import Image

from c2b_ray.audits.c2b.verification.calibration import compare_negatives
from c2b_ray.audits.c2b.verification.false_accepts import (
    MOST,
    CaptionReach,
    NegativeChecker,
    as_draws,
    as_verifications,
    compare,
    to_compare,
)
from c2b_ray.engine.here import InProcess
from c2b_ray.steps.draw import image_id
from c2b_ray.tables import DRAWS, NEGATIVES, VERIFICATIONS

CAPTIONS = captions_of()
IDS = {(row["target_class"], row["bias_class"]): row["caption_id"] for row in CAPTIONS.to_pylist()}
BUS_IN_SNOW, BUS_IN_RAIN = IDS["bus", "snow"], IDS["bus", "rain"]


def png(target, value, degrees):
    """Returns a picture that holds what it shows, and its angle to every caption."""
    pixels = np.zeros((9, 9, 3), np.uint8)
    pixels[0, 0] = target, value, degrees
    data = BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    return data.getvalue()


class Encoder:
    """Embeds pictures by the angle that they hold; all texts at 0 degrees."""

    dimension, revision = 2, "e"

    def encode_images(self, images):
        angles = np.deg2rad([float(pixels[0, 0, 2]) for pixels in images])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def encode_texts(self, texts):
        return np.tile(np.array([1, 0], np.float32), (len(texts), 1))


class Source:
    revision = "s"

    def __init__(self, files):
        self.files = files

    def fetch(self, ids):
        return pa.table({"key": [str(i) for i in ids], "bytes": pa.array([self.files[i] for i in ids], pa.binary())})


def pools(least):
    """Returns draws, the least similar of each caption at the cosine of these degrees."""
    rows = [
        {"caption_id": name, "image_id": f"{name} {place}", "rank": place, "similarity": cosine, "source": "retrieve"}
        for name, degrees in least.items()
        for place, cosine in enumerate((1.0, np.cos(np.deg2rad(degrees))))
    ]
    return pa.Table.from_pylist(rows, DRAWS)


REACH = CaptionReach.of(CAPTIONS, pools({BUS_IN_SNOW: 20, BUS_IN_RAIN: 40}))
ROWS = [
    ("bus", png(0, 0, 0)),  # shows the class: no negative
    ("boat", png(0, 1, 10)),  # near to both captions, taken for a bus in the rain
    ("mug", png(1, 0, 30)),  # near to "rain" alone, said to be a boat
    ("mug", png(0, 0, 60)),  # near to none
    ("mug", b"no image"),
    (None, png(0, 0, 0)),  # unknown
]
LABELS = pa.table({"target_class": [name for name, _ in ROWS]})


def checker():
    return NegativeChecker(see(), Encoder(), Source([data for _, data in ROWS]), REACH)


def test_images_of_other_classes_that_a_pool_would_hold_are_verified():
    asked = asked_of()
    rows = compare(to_compare(LABELS, "s", "x", REACH, 0), checker(), asked).to_pylist()
    assert [row["image_id"] for row in rows] == [image_id("s", row) for row in (1, 2, 3, 4)]
    near, rainy, far, broken = rows
    assert (near["captions"], near["class_shown"], near["values"]) == ([BUS_IN_SNOW, BUS_IN_RAIN], "bus", ["rain"])
    assert near["similarities"] == pytest.approx([np.cos(np.deg2rad(10))] * 2)
    assert (rainy["captions"], rainy["class_shown"]) == ([BUS_IN_RAIN], "boat")
    assert (far["captions"], far["class_shown"]) == ([], None)
    assert broken["captions"] == []
    assert broken["error"] is not None
    assert [row["error"] for row in rows[:3]] == [None] * 3


def test_negatives_are_draws_and_verifications_of_the_captions_that_would_draw_them():
    found = compare(to_compare(LABELS, "s", "x", REACH, 0), checker(), asked_of())
    draws = as_draws(found)
    assert draws.schema == DRAWS
    one, two = image_id("s", 1), image_id("s", 2)
    assert draws.select(["caption_id", "image_id"]).to_pylist() == [
        {"caption_id": BUS_IN_SNOW, "image_id": one},
        {"caption_id": BUS_IN_RAIN, "image_id": one},
        {"caption_id": BUS_IN_RAIN, "image_id": two},
    ]
    said = as_verifications(found)
    assert said.schema == VERIFICATIONS
    assert said["image_id"].to_pylist() == [one, two]


def test_a_stage_writes_them_once(tmp_path):
    images = to_compare(LABELS, "s", "x", REACH, 0)
    first = compare_negatives(InProcess(), images, checker, asked_of(), str(tmp_path))
    assert first.schema == NEGATIVES

    def unused():
        raise AssertionError("all answers are there")

    assert compare_negatives(InProcess(), images, unused, asked_of(), str(tmp_path)).equals(first)


def test_ids_change_with_what_answers_depend_on():
    def ids(labels=LABELS, revision="s", made_by="x", reach=REACH):
        return to_compare(labels, revision, made_by, reach, 0)["negative_id"].to_pylist()

    other_pools = CaptionReach.of(CAPTIONS, pools({BUS_IN_SNOW: 21, BUS_IN_RAIN: 40}))
    variants = [ids(), ids(revision="t"), ids(made_by="y"), ids(reach=other_pools)]
    assert len({name for names in variants for name in names}) == 4 * len(ids())


def test_many_images_are_sampled_for_each_class():
    labels = pa.table({"target_class": ["mug"] * (MOST + 10) + ["bus"] * 10})
    chosen = to_compare(labels, "s", "x", REACH, 0)
    assert chosen.num_rows == MOST
    assert chosen["row"].to_pylist() == sorted(chosen["row"].to_pylist())
    assert not chosen.equals(to_compare(labels, "s", "x", REACH, 1))
    assert chosen["target_class"].unique().to_pylist() == ["bus"]  # boats have no pool
