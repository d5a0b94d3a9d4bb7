"""Answers that follow the look of an image: by hand, by enumeration, and on simulated classifiers."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import statsmodels.api as sm

from c2b_ray.stats.look_alikes import class_answers, followed_look, mean_over_classes

CLASSES, IMAGES, DIMENSIONS = 12, 360, 12


def ordinary(accuracy, seed):
    """Wrong answers by class alone; the look says nothing about them."""
    random = np.random.default_rng(seed)
    truth, look = random.integers(0, CLASSES, IMAGES), random.normal(size=(IMAGES, DIMENSIONS))
    confused = random.dirichlet(np.full(CLASSES, 0.3), CLASSES)
    wrong = np.array([random.choice(CLASSES, p=confused[one]) for one in truth])
    return look, truth, np.where(random.random(IMAGES) < accuracy, truth, wrong)


def by_look_alike_classes(spread, seed):
    """The nearest class in the look itself: dogs that look like cats are called cats."""
    random = np.random.default_rng(seed)
    truth, centres = random.integers(0, CLASSES, IMAGES), random.normal(size=(CLASSES, DIMENSIONS))
    look = centres[truth] + spread * random.normal(size=(IMAGES, DIMENSIONS))
    return look, truth, ((look[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)


def follower(right, seed):
    """Ten textures; an answer is the class's with the probability `right`, else mostly the texture's."""
    random = np.random.default_rng(seed)
    truth, texture = random.integers(0, CLASSES, IMAGES), random.integers(0, 10, IMAGES)
    look = 3 * random.normal(size=(10, DIMENSIONS))[texture] + random.normal(size=(IMAGES, DIMENSIONS))
    named = np.where(random.random(IMAGES) < 0.7, CLASSES + texture, random.integers(0, 60, IMAGES))
    return look, truth, np.where(random.random(IMAGES) < right, truth, named)


def said(found):
    return found.p_value <= 0.05 and found.share_low > 0.1 and found.margin_low > 0


def test_the_look_answers_what_the_nearest_of_other_classes_are_called():
    # One number describes a look. Class 0: answers 7, 8; class 1: 7, 8, 9; class 2: 7, and a right answer beside them.
    look = [[0.0], [10.0], [0.1], [10.1], [0.2], [0.3], [0.0]]
    truth, answer = [0, 0, 1, 1, 1, 2, 2], [7, 8, 7, 8, 9, 7, 2]
    found = followed_look(look, truth, answer, resamples=9)
    # Image 0 has look-alikes of classes 1 and 2 called 7, 9, 7, 8: 7 twice. Image 1: nearest 8, then 7, 9, 7: 7 twice.
    assert found.look_answer.tolist()[:2] == [7, 7]
    assert found.follows_look.tolist()[:2] == [True, False]
    assert found.neighbours[0].tolist()[:4] == [2, 4, 5, 3]
    assert found.compared.tolist() == [True] * 6 + [False]  # the right answer is the class's
    assert found.look_answer[6] == -1
    assert 6 not in found.neighbours


def test_of_answers_that_are_equally_common_the_nearest_ones_counts():
    found = followed_look([[0.0], [1.0], [2.0]], [0, 1, 2], [5, 6, 7], resamples=9)
    assert found.look_answer.tolist() == [6, 5, 6]


def test_an_images_own_class_is_no_answer_of_its_look():
    # The nearest image of class 1 is called 0, what image 0 is: it says nothing about what else image 0 looks like.
    found = followed_look([[0.0], [0.1], [3.0]], [0, 1, 2], [5, 0, 5], resamples=9)
    assert found.look_answer[0] == 5


def test_chance_permutes_answers_within_classes():
    random = np.random.default_rng(3)
    look, truth = random.normal(size=(9, 2)), np.repeat([0, 1, 2], 3)
    answer = np.array([5, 6, 7, 5, 6, 7, 5, 7, 8])
    counts = [
        followed_look(look, truth, np.r_[one, two, three], resamples=0).follows_look.sum()
        for one in permutations(answer[:3])
        for two in permutations(answer[3:6])
        for three in permutations(answer[6:])
    ]
    found = followed_look(look, truth, answer, resamples=4_000)
    assert found.expected == pytest.approx(np.mean(counts), abs=0.1)
    assert found.p_value == pytest.approx(np.mean(np.array(counts) >= found.follows_look.sum()), abs=0.04)
    assert found.share == pytest.approx((found.follows_look.sum() - found.expected) / 9)


def test_a_class_that_is_called_another_name_throughout_is_followed():
    truth, answer = [0, 0, 0, 0, 0, 1, 1, 2], [3, 3, 3, 3, 4, 1, 2, 5]
    assert class_answers(truth, answer).tolist() == [True] * 4 + [False, True, False, False]
    # Each of the three has four others, of which two, no more than half, share its name.
    assert class_answers([0] * 5, [3, 3, 3, 4, 5]).tolist() == [False] * 5


def test_limits_are_statsmodels_cluster_robust_ones():
    random = np.random.default_rng(1)
    truth = random.integers(0, 9, 200)
    values = random.normal(size=200) + 0.3 * truth
    oracle = sm.OLS(values, np.ones(200)).fit(cov_type="cluster", cov_kwds={"groups": truth}, use_t=True)
    assert mean_over_classes(values, truth, 0.9) == pytest.approx((oracle.params[0], *oracle.conf_int(0.1)[0]))


def test_p_values_are_uniform_where_the_look_says_nothing():
    p = np.array([followed_look(*ordinary(0.3, seed), seed=seed, resamples=99).p_value for seed in range(60)])
    assert (p <= 0.1).sum() <= 13  # binomial with 60 and .1: P(more) < .005


@pytest.mark.parametrize("accuracy", [0.1, 0.4, 0.8])
def test_a_classifier_that_errs_by_class_does_not_follow_the_look(accuracy):
    assert not any(said(followed_look(*ordinary(accuracy, seed), resamples=99)) for seed in range(5))


def test_mistaking_look_alike_classes_for_each_other_is_significant_and_not_said():
    for seed in range(5):
        look, truth, answer = by_look_alike_classes(1.6, seed)
        found = followed_look(look, truth, answer, resamples=99)
        assert 0.5 < np.mean(truth == answer) < 0.9
        assert found.p_value <= 0.05
        assert not said(found)


def test_labels_in_another_order_are_no_look():
    for seed in range(5):
        look, truth, answer = by_look_alike_classes(1.1, seed)
        assert np.mean(truth == answer) > 0.7
        assert not said(followed_look(look, truth, (answer + 1) % CLASSES, resamples=99))


def test_a_classifier_with_one_answer_follows_no_look():
    look, truth, _ = ordinary(0.5, 0)
    found = followed_look(look, truth, np.zeros(IMAGES, int), resamples=99)
    assert found.p_value == 1
    assert found.share == 0
    assert not said(found)


def test_a_classifier_that_follows_the_look_is_found():
    found = followed_look(*follower(0.1, 0), resamples=99)
    assert said(found)
    # .9 × .7 of the answers are the texture's, of whose images some look-alikes are of others.
    assert 0.45 < found.share < 0.65
    assert found.beyond_chance.sum() == pytest.approx(found.follows_look.sum() - found.expected)


def test_a_classifier_that_follows_the_class_more_is_not_said_to_follow_the_look():
    found = followed_look(*follower(0.6, 0), resamples=99)
    assert found.p_value <= 0.05
    assert found.share_low > 0.1
    assert found.margin_high < 0
    assert not said(found)


def test_images_without_a_descriptor_are_not_compared():
    look, truth, answer = follower(0.1, 1)
    look[::2] = np.nan
    found = followed_look(look, truth, answer, resamples=9)
    assert not found.compared[::2].any()
    assert set(found.neighbours[1::2].ravel() % 2) <= {1}


@pytest.mark.parametrize("images", [0, 1])
def test_hardly_any_image(images):
    found = followed_look(np.zeros((images, 3)), [0] * images, [1] * images, resamples=9)
    assert found.p_value == 1
    assert not said(found)
    assert np.isnan(found.share_low)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"vectors: \(2, 1\), expected \(3, d\)"):
        followed_look([[0.0], [1.0]], [0, 1, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="two arrays of one length"):
        class_answers([0, 1], [0])
    with pytest.raises(ValueError, match="two arrays of one length"):
        mean_over_classes([0.0], [0, 1], 0.9)
