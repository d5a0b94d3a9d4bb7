"""Confident disagreements by hand and on planted errors; votes of neighbours by brute force."""

import numpy as np
import pytest

from c2b_ray.stats.read_values import confident_disagreements, confident_thresholds, neighbours


def test_thresholds_and_disagreements_by_hand() -> None:
    # Of the images labelled 0: mean of .9, .8, .2 = .6333; of those labelled 1: mean of .7, .5 = .6.
    labels = [0, 0, 0, 1, 1]
    probabilities = [[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.3, 0.7], [0.5, 0.5]]
    assert confident_thresholds(labels, probabilities) == pytest.approx([1.9 / 3, 0.6])
    # Only the third is above another class's threshold (.8 >= .6); .5 of the last is below that of class 0.
    assert confident_disagreements(labels, probabilities).tolist() == [-1, -1, 1, -1, -1]


def test_an_image_without_an_answer_and_a_class_without_images_disagree_with_nothing() -> None:
    probabilities = [[np.nan] * 3, [0.1, 0.1, 0.8], [0.9, 0.05, 0.05]]
    assert np.isnan(confident_thresholds([0, 0, 0], probabilities)[1:]).all()
    assert confident_disagreements([0, 0, 0], probabilities).tolist() == [-1, -1, -1]
    assert confident_disagreements([], np.zeros((0, 3))).tolist() == []


def test_an_image_that_is_taken_for_its_label_is_none_though_another_class_is_above_its_threshold() -> None:
    # Thresholds: mean of .95, .95, .6 = .8333, above the third's .6; mean of .3, .4 = .35, below its .4.
    probabilities = [[0.95, 0.05], [0.95, 0.05], [0.6, 0.4], [0.7, 0.3], [0.6, 0.4]]
    assert confident_disagreements([0, 0, 0, 1, 1], probabilities).tolist() == [-1] * 5


def test_flipped_labels_are_found_and_sound_ones_are_not() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 4, 2000)
    logits = random.normal(0, 1, (2000, 4)) + 4 * np.eye(4)[truth]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    flipped = random.random(2000) < 0.05
    labels = np.where(flipped, (truth + 1) % 4, truth)
    found = confident_disagreements(labels, probabilities)
    assert (found[flipped] == truth[flipped]).mean() > 0.85
    assert (found[~flipped] >= 0).mean() < 0.03


def test_votes_are_those_of_the_nearest_by_brute_force() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(200, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels, queries = random.integers(0, 3, 200), np.array([3, 50, 199])
    answers = (labels[queries] + 1) % 3
    votes = neighbours(vectors, labels, queries, answers, 10)
    for at, query in enumerate(queries):
        others = [row for row in np.argsort(-(vectors @ vectors[query])) if row != query][:10]
        assert votes.answer[at] == np.mean(labels[others] == answers[at])
        assert votes.label[at] == np.mean(labels[others] == labels[query])


def test_a_copy_is_no_witness_and_an_image_without_a_vector_has_no_votes() -> None:
    vectors = np.array([[1, 0], [1, 0], [0.8, 0.6], [np.nan, np.nan]], np.float32)
    votes = neighbours(vectors, [0, 0, 1, 1], [0, 3], [1, 0], 1)
    assert votes.answer[0] == 1
    assert np.isnan([votes.answer[1], votes.label[1]]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: confident_disagreements([0], [[0.5], [0.5]]), r"\(1,\) and \(2, 1\)"),
        (lambda: confident_disagreements([2], [[0.5, 0.5]]), r"labels\[0\] = 2: there are 2 classes"),
        (lambda: neighbours(np.zeros((1, 2), np.float32), [0], [0], [0], 0), "number = 0"),
    ],
)
def test_other_arrays_are_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
