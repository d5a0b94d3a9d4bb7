"""Groups of failures: clustered where the images are, and described by what fits them better than other images."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from c2b_ray.audits.failures.discovery.clusters import Scoring, Similarity, combine_groups, described
from c2b_ray.models.scripted import ScriptedCaptionScorer
from c2b_ray.steps.draw import png
from c2b_ray.tables.failures import COMBINATIONS

PROMPT = "a photo of a fly."
RED, GREEN, GREY = (np.full((8, 8, 3), colour, np.uint8) for colour in ((250, 0, 0), (0, 250, 0), (90, 90, 90)))


class Colours:
    """Images are embedded by their mean colour, texts by the colours that they name."""

    dimension, revision = 3, "colours"

    def encode_images(self, images):
        return self._unit([image.mean(axis=(0, 1)) for image in images])

    def encode_texts(self, texts):
        return self._unit([[name in text for name in ("red", "green", "blue")] for text in texts])

    def _unit(self, rows):
        rows = np.asarray(rows, np.float32) + 1e-3
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def groups(images, sentences, reference=()):
    columns = {
        "combination_id": ["one"],
        "prompt": [PROMPT],
        "images": pa.array([[image if isinstance(image, bytes) else png(image) for image in images]]),
        "sentences": pa.array([sentences], pa.list_(pa.list_(pa.string()))),
        "reference": pa.array([[png(image) for image in reference]], pa.list_(pa.binary())),
    }
    return pa.table(columns)


def test_clusters_by_features_are_described_each_for_itself():
    said = [["it is red", "it is seen"]] * 4 + [["it is green", "it is seen"]] * 3
    table = groups([RED] * 4 + [GREEN] * 3, said, [GREY] * 2)
    result = combine_groups(table, Scoring(Similarity(Colours()), Colours()))
    assert result.schema == COMBINATIONS
    [clusters] = result["clusters"].to_pylist()
    assert [sorted(one["members"]) for one in clusters] == [list(range(7)), [0, 1, 2, 3], [4, 5, 6]]
    assert [one["sentences"] for one in clusters[1:]] == [["it is red"], ["it is green"]]


def test_without_an_encoder_descriptions_group_and_what_all_images_show_is_left_out():
    def score(asked):
        image, text = asked
        return 2.0 * ("red" in text and image[0, 0, 0] > 200) + 1.0 * ("seen" in text) - 0.1 * len(text.split())

    said = [["it is red", "it is seen"]] * 3 + [["it is wide"]] * 2
    table = groups([*[RED] * 3, b"no image", GREEN], said, [GREEN, GREY])
    [clusters] = combine_groups(table, Scoring(ScriptedCaptionScorer(score), None))["clusters"].to_pylist()
    assert [sorted(one["members"]) for one in clusters] == [[0, 1, 2, 4], [0, 1, 2], [4]]
    assert [one["sentences"] for one in clusters] == [["it is red"], ["it is red"], []]


def test_without_anything_that_scores_a_group_says_why():
    [row] = combine_groups(groups([RED], [["it is red"]]), Scoring(None, None)).to_pylist()
    assert row["clusters"] == []
    assert "gives captions no scores" in row["error"]


def test_features_of_descriptions_weigh_rare_words_and_are_unit_vectors():
    rows = described([["it is red"], ["it is red"], ["it is green"], []])
    assert np.isnan(rows[3]).all()
    np.testing.assert_allclose(np.linalg.norm(rows[:3], axis=1), 1, rtol=1e-6)
    assert rows[0] @ rows[1] > rows[0] @ rows[2]
