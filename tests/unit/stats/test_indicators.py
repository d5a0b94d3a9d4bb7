import numpy as np
import pytest

from c2b_ray.stats.shown_values import shown

# Of three values, told apart 7 times in 10; images known to show each, by what was said.
KNOWN = np.array([[700.0, 200, 100], [100, 700, 200], [150, 150, 700]])


def test_an_answer_stands_for_the_row_of_the_inverse():
    found = shown([[0], [1], [2], [-1]], np.full((4, 1), -1), [KNOWN])
    confusion = (KNOWN + np.eye(3)) / (KNOWN + np.eye(3)).sum(axis=1, keepdims=True)
    assert confusion @ found.columns[:3, 1:] == pytest.approx(np.eye(3))
    assert found.columns[3, 1:] == pytest.approx(found.columns[:3, 1:].mean(axis=0))
    assert found.columns[:, 0].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("with_caption", [False, True])
def test_means_and_products_are_those_of_what_images_show(with_caption):
    # An oracle: what 60,000 images show is known here. The two attributes go together.
    random, n = np.random.default_rng(4), 60_000
    truth = random.integers(0, 3, (n, 2))
    truth[:, 1] = np.where(random.random(n) < 0.7, truth[:, 0], truth[:, 1])
    rates = (KNOWN / KNOWN.sum(axis=1, keepdims=True)).cumsum(axis=1)
    said = (random.random((n, 2, 1)) > rates[truth]).sum(axis=2)
    drawn = np.full((n, 2), -1)
    if with_caption:  # nine in ten show what they were drawn for
        drawn[:, 0] = np.where(random.random(n) < 0.9, truth[:, 0], (truth[:, 0] + 1) % 3)
    found = shown(said, drawn, [1000 * KNOWN, 1000 * KNOWN]).columns
    real = np.hstack([np.eye(3)[truth[:, 0]], np.eye(3)[truth[:, 1]]])
    assert found[:, 1:].mean(axis=0) == pytest.approx(real.mean(axis=0), abs=0.02)
    assert found[:, 1:4].T @ found[:, 4:] / n == pytest.approx(real[:, :3].T @ real[:, 3:] / n, abs=0.02)


def test_with_the_caption_stand_ins_are_surer():
    random = np.random.default_rng(4)
    truth = random.integers(0, 2, (2000, 1))
    said = np.where(random.random((2000, 1)) < 0.7, truth, 1 - truth)
    known = [np.array([[700.0, 300], [300, 700]])]
    spread = [
        np.square(shown(said, drawn, known).columns[:, 1:] - np.eye(2)[truth[:, 0]]).mean()
        for drawn in (truth, -1 + 0 * truth)
    ]
    assert spread[0] < 0.1 * spread[1]


def test_an_answer_that_tells_nothing_is_not_blown_up():
    found = shown([[0], [1]], [[-1], [-1]], [np.full((2, 2), 50.0)])
    assert np.abs(found.columns).max() < 4


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="answers and drawn"):
        shown([[0]], [[0, 0]], [KNOWN])
    with pytest.raises(ValueError, match="square"):
        shown([[0]], [[0]], [KNOWN[:2]])
    with pytest.raises(ValueError, match="values 0 to 2"):
        shown([[3]], [[0]], [KNOWN])
    assert shown(np.zeros((0, 1)), np.zeros((0, 1)), [KNOWN]).columns.shape == (0, 4)
