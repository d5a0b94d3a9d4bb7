"""Clusters of failures, and the sentences that describe them best."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import silhouette_score

from c2b_ray.audits.failures.discovery.clusters import (
    Scoring,
    Similarity,
    clusters,
    combine,
    combine_groups,
    described,
    silhouette,
)
from c2b_ray.models.scripted import ScriptedCaptionScorer
from c2b_ray.steps.draw import png
from c2b_ray.tables.failures import COMBINATIONS

PROMPT = "a photo of a fly."


def unit(rows):
    rows = np.asarray(rows, np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def bunches(sizes, seed, spread=0.1):
    random = np.random.default_rng(seed)
    centres = np.eye(16)[: len(sizes)]
    rows = [centre + random.normal(0, spread, 16) for centre, n in zip(centres, sizes, strict=True) for _ in range(n)]
    return unit(rows)


def test_silhouettes_are_those_of_scikit_learn():
    rows = bunches([5, 4, 1], seed=3, spread=0.4)
    distances = np.clip(1 - rows.astype(float) @ rows.T.astype(float), 0, 2)
    np.fill_diagonal(distances, 0)
    for labels in (np.repeat([0, 1, 2], [5, 4, 1]), np.arange(10) % 2):
        assert silhouette(distances, labels) == pytest.approx(silhouette_score(distances, labels, metric="precomputed"))
    assert silhouette(distances, np.zeros(10, int)) == 0


def test_failures_are_split_by_predicted_label_then_by_features():
    embeddings = np.concatenate([bunches([6, 4], seed=1), bunches([3], seed=2)])
    predicted = ["bee"] * 10 + ["ant", None, "ant"]
    result = clusters(predicted, embeddings)
    assert [(cluster.target, sorted(cluster.members)) for cluster in result] == [
        ("bee", list(range(10))),
        ("bee", list(range(6))),
        ("bee", list(range(6, 10))),
        ("ant", [10, 12]),
        (None, [11]),
    ]
    assert clusters(predicted, embeddings) == result


def test_failures_without_structure_are_one_cluster_led_by_its_medoid():
    random = np.random.default_rng(5)
    noise = unit(random.normal(0, 1, (40, 64)))
    [cluster] = clusters(["bee"] * 40, noise)
    middle = int((noise @ noise.sum(axis=0)).argmax())
    assert cluster.members[0] == middle
    assert sorted(cluster.members) == list(range(40))


def test_equal_single_and_unreadable_failures_make_no_trouble():
    same = unit(np.ones((5, 3)))
    assert [len(cluster.members) for cluster in clusters(["bee"] * 5, same)] == [5]
    same[2] = np.nan
    assert [cluster.members for cluster in clusters(["bee", "bee", "ant", "fly", "fly"], same)] == [(0, 1), (3, 4)]
    assert clusters([], np.empty((0, 3), np.float32)) == []
    assert [cluster.members for cluster in clusters(["bee", None, "bee"])] == [(0, 2), (1,)]


def test_a_label_s_failures_are_capped_to_the_first_ones():
    assert [cluster.members for cluster in clusters(["bee"] * 9, most_images=4)] == [(0, 1, 2, 3)]


def words_of(shown):
    """Scores as a likelihood does: what the images show is likely, all else is not, and every word costs."""

    def scores(texts):
        return np.float32([[sum(2 if w in one else -1 for w in text.split()) for text in texts] for one in shown])

    return scores


def test_sentences_are_added_while_they_describe_more_of_the_images():
    shown = [{"wet.", "green.", "night."}, {"wet.", "green."}, {"wet.", "red."}]
    result = combine("", ["red", "green", "wet", "night"], words_of(shown))
    assert result.sentences == ("wet", "green")
    assert list(result.scores) == sorted(result.scores)
    assert combine("", ["red", "green", "wet"], words_of(shown), most=1).sentences == ("wet",)
    assert combine("", ["red", "green", "wet"], words_of(shown), always=True).sentences == ("wet", "green", "red")


def test_what_every_image_of_the_label_shows_explains_no_failure():
    failures, others = words_of([{"day.", "wet."}] * 3), words_of([{"day."}] * 3)
    assert combine("", ["day", "wet"], failures).sentences == ("day", "wet")
    assert combine("", ["day", "wet"], failures, reference=others).sentences == ("wet",)


def test_sentences_that_repeat_or_have_no_score_are_passed_over():
    def scores(texts):
        return np.float32([[np.nan if "odd" in text else len(text) for text in texts], [np.nan] * len(texts)])

    result = combine(PROMPT, ["it is on a yellow flower", "it is on a flower", "it is odd"], scores)
    assert result.sentences == ("it is on a yellow flower",)
    assert combine(PROMPT, [], scores).sentences == ()
    assert combine(PROMPT, ["odd"], scores).sentences == ()


class Encoder:
    dimension, revision = 2, "two"

    def encode_images(self, images):
        return unit([[image.mean(), 1] for image in images])

    def encode_texts(self, texts):
        return unit([[len(text), 1] for text in texts])


def test_an_encoder_scores_captions_by_the_cosine():
    images = [np.full((2, 2, 3), value, np.uint8) for value in (1, 3)]
    scores = Similarity(Encoder()).caption_scores(images, ["a", "aaa"])
    np.testing.assert_allclose(scores, [[1, 4 / 20**0.5], [4 / 20**0.5, 1]], rtol=1e-6)


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
