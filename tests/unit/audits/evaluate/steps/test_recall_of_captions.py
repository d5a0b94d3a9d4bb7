"""recall@A·K of captions over images of known content."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.evaluate.steps.outcomes import CaptionRelevance, recall_table, shown_table, wanted
from c2b_ray.audits.evaluate.steps.truth import cells

CLASSES = ["bus", "boat"]
TEMPLATES = ("a {class}", "{value}", "a {class}, {value}")


def test_each_caption_is_wanted_of_what_it_is_true_of():
    labels = pa.table({"target_class": ["bus"] * 4 + ["boat"] * 4, "weather": ["fog", "fog", "sun", "sun"] * 2})
    said = {("weather", "fog"): "fog", ("weather", "sun"): "sunshine"}
    queries = list(wanted(labels, cells(labels, ["weather"], CLASSES, 1), CLASSES, said, TEMPLATES))
    relevant = {query.caption: query.relevant.tolist() for query in queries}
    assert relevant["a boat"] == [4, 5, 6, 7]
    assert relevant["sunshine"] == [2, 3, 6, 7]
    assert relevant["a boat, fog"] == [4, 5]
    assert len(queries) == 2 + 2 + 4
    # An image whose embedding is missing neither ranks nor counts.
    images = np.eye(8, dtype=np.float32)
    images[5] = np.nan
    texts = np.zeros((8, 8), np.float32)
    texts[:, 4], texts[:, 0] = 1.0, 0.5
    rows = recall_table(queries, texts, images, [0.5, 1.0]).to_pylist()
    boats = {row["share"]: row for row in rows if row["caption"] == "a boat"}
    assert (boats[1.0]["relevant"], boats[1.0]["k"]) == (3, 3)
    # Nearest: image 4, image 0, then five that are as near as each other, two of them boats.
    assert boats[1.0]["recall"] == pytest.approx((1 + 2 / 5) / 3, abs=1e-12)
    assert (boats[0.5]["k"], boats[0.5]["reachable"]) == (2, 0.5)


def test_a_value_is_relevant_in_every_class_and_images_without_a_label_are_not_ranked():
    """Of boats too few are in fog for a cell; an image whose weather nobody knows is neither a hit nor a miss."""
    weather = ["fog", "fog", "sun", "sun", None, "fog", "sun", "sun"]
    labels = pa.table({"target_class": ["bus"] * 4 + ["boat"] * 4, "weather": weather})
    known = cells(labels, ["weather"], CLASSES, 2)
    assert ("boat", "weather", "fog") not in known
    queries = list(wanted(labels, known, CLASSES, {("weather", v): v for v in ("fog", "sun")}, TEMPLATES))
    fog = next(query for query in queries if query.caption == "fog")
    assert (fog.relevant.tolist(), fog.unknown.tolist()) == ([0, 1, 5], [4])
    assert {query.caption for query in queries if query.kind == "class"} == {"a bus", "a boat"}
    images = np.zeros((8, 1), np.float32)
    images[:, 0] = [0.9, 0.8, 0.1, 0.1, 1.0, 0.7, 0.1, 0.1]
    row = recall_table([fog], np.ones((1, 1), np.float32), images, [1.0]).to_pylist()[0]
    assert (row["relevant"], row["recall"]) == (3, 1.0)


def test_images_that_are_as_near_as_each_other_count_by_chance():
    """Whatever their order in the table is: of ten that are all the same, three relevant."""
    for relevant in ([0, 1, 2], [7, 8, 9]):
        query = CaptionRelevance("class", "bus", None, None, "a bus", np.array(relevant), np.zeros(0, np.int64))
        images = np.ones((10, 1), np.float32)
        row = recall_table([query], np.ones((1, 1), np.float32), images, [1.0]).to_pylist()[0]
        assert row["recall"] == pytest.approx(3 * 0.3 / 3, abs=1e-12)


def test_drawn_images_count_where_an_answer_is_known():
    captions = pa.table({"caption_id": ["c"], "target_class": ["bus"], "attribute": ["weather"], "bias_class": ["fog"]})
    draws = pa.table({"caption_id": ["c"] * 4, "image_id": list("wxyz")})
    answers = pa.table(
        {
            "image_id": list("wxyz"),
            "target_class": ["bus"] * 4,
            "class_shown": ["bus", "bus", "boat", "bus"],
            "attributes": [["weather"]] * 4,
            "values": [["fog"], ["sun"], ["fog"], ["fog"]],
            "error": [None, None, None, "not a picture"],
        }
    )
    rows = {row["what"]: row for row in shown_table("m", captions, draws, answers, 0.95).to_pylist()}
    assert (rows["class"]["share"], rows["value"]["share"], rows["both"]["share"]) == (2 / 3, 2 / 3, 1 / 3)
    assert rows["both"]["images"] == 3
