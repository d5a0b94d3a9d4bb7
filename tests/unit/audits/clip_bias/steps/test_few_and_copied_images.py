"""Values of few images, and copies of images: they are no more evidence than the different pictures that there are."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.audits.clip_bias.downstream import answered_question, filtered
from c2b_ray.audits.clip_bias.steps.measure import (
    PRETRAINING,
    Attribute,
    ImageSubset,
    Key,
    MeasuredModels,
    Skew,
    measure_disparity,
    measure_skew,
)
from c2b_ray.audits.clip_bias.steps.relations import pair_table
from c2b_ray.stats.disparity import Chance
from c2b_ray.stats.resampling import SampledEstimate, difference_of_estimates
from c2b_ray.stats.skew import mean_max_skew

QUICK = Chance(100, 100)


def coin(heads, tails):
    return Attribute.of("coin", ["heads"] * heads + ["tails"] * tails)


def skew_of(similar, attribute, copies=None, k=20):
    measured, key = MeasuredModels(), Key("d", "max_skew@20", "coin", "global", "all", PRETRAINING)
    view = ImageSubset.everything(len(attribute.codes))
    measure_skew(measured, key, similar, (attribute, view), (Skew(k, 1.0, "formula"), QUICK), copies)
    return measured


def test_copies_of_a_picture_are_no_evidence_of_skew():
    """Ten copies of each of 40 pictures, ranked by chance: as 400 images most of them would seem skewed."""
    copies, alarms, values = np.repeat(np.arange(40) * 10, 10), {True: 0, False: 0}, set()
    for seed in range(30):
        random = np.random.default_rng([seed, 6])
        attribute = Attribute.of("coin", np.repeat(random.permutation(["heads", "tails"] * 20), 10).tolist())
        similar = {"m": np.repeat(random.normal(size=(3, 40)), 10, axis=1).astype(np.float32)}
        for known in (True, False):
            (row,) = skew_of(similar, attribute, copies if known else None, 60).biases
            alarms[known] += row.p_value <= 0.05
            values.add((seed, round(row.value, 9)))
    assert len(values) == 30  # copies change no value
    assert alarms[True] <= 5
    assert alarms[False] >= 10


def test_copies_leave_interval_and_p_value_as_those_of_the_pictures():
    random = np.random.default_rng(1)
    groups = (random.random(200) < 0.4).astype(int)
    scores = 0.5 * groups + random.normal(size=(4, 200))
    alone = mean_max_skew(np.argsort(-scores, axis=1), groups, 2, 20, QUICK)
    five = np.repeat(np.arange(200), 5)
    again = mean_max_skew(np.argsort(-scores[:, five], axis=1, kind="stable"), groups[five], 2, 100, QUICK, five)
    for name in ("value", "low", "high", "expected", "expected_high", "p_value"):
        assert getattr(again, name) == pytest.approx(getattr(alone, name), rel=1e-6), name
    assert again.replicates == pytest.approx(alone.replicates)


def test_pictures_of_unequal_numbers_of_copies_are_not_called_skewed():
    """Copied pictures are mostly of one value. Shuffling values alone would give them other shares."""
    random, found = np.random.default_rng(2), []
    sizes = np.r_[np.full(40, 6), np.ones(60, int)]
    picture = np.repeat(np.arange(100), sizes)
    for _ in range(60):
        groups = np.r_[random.random(40) < 0.9, random.random(60) < 0.2].astype(int)
        scores = random.normal(size=(3, 100))[:, picture]
        order = np.argsort(-scores, axis=1, kind="stable")
        found.append(mean_max_skew(order, groups[picture], 2, 30, QUICK, picture))
    assert np.mean([one.p_value <= 0.05 for one in found]) <= 0.12
    assert np.mean([one.low == 0 for one in found]) >= 0.9


@pytest.mark.parametrize(("tails", "rate"), [(1, 0.5), (2, 0.3), (3, 0.1), (5, 0.1), (12, 0.05)])
def test_two_models_alike_are_not_told_apart_by_the_recall_of_a_few_images(tails, rate):
    """Bootstrap samples of these told them apart in .28 to .53 of the cases."""
    random, attribute, found = np.random.default_rng([tails, 3]), coin(200, tails), []
    for _ in range(40):
        measured, key = MeasuredModels(), Key("d", "kl_recall@5", "coin", "global", "all", PRETRAINING)
        hits = {m: ((random.random(200 + tails) < rate).astype(float), np.ones(200 + tails)) for m in "ab"}
        measure_disparity(measured, key, hits, (attribute, ImageSubset.everything(200 + tails)), QUICK)
        found += [one["p_value"] <= 0.05 for one in pair_table(measured.biases, 0.05, 0.05).to_pylist()]
    assert np.mean(found) <= 0.1


@pytest.mark.parametrize("tails", [1, 2, 3, 4])
def test_two_models_alike_are_not_told_apart_by_the_skew_of_a_few_images(tails):
    random, attribute, found = np.random.default_rng([tails, 4]), coin(200, tails), []
    for _ in range(40):
        places = {m: random.normal(size=200 + tails) * 3 + random.normal(size=(6, 200 + tails)) for m in "ab"}
        measured = skew_of({m: of.astype(np.float32) for m, of in places.items()}, attribute, k=80)
        found += [one["p_value"] <= 0.05 for one in pair_table(measured.biases, 0.05, 0.05).to_pylist()]
    assert np.mean(found) <= 0.1


def test_a_group_that_is_never_right_is_told_from_one_that_is_where_it_has_many_images():
    attribute, random = coin(200, 100), np.random.default_rng(5)
    hits = {m: ((random.random(300) < 0.3).astype(float), np.ones(300)) for m in "ab"}
    hits["a"][0][200:] = 0
    measured, key = MeasuredModels(), Key("d", "kl_recall@5", "coin", "global", "all", PRETRAINING)
    measure_disparity(measured, key, hits, (attribute, ImageSubset.everything(300)), QUICK)
    (row,) = pair_table(measured.biases, 0.05, 0.05).to_pylist()
    assert row["verdict"] == "apart"
    assert 0 < row["difference_low"] < row["difference"] < row["difference_high"]


def test_a_difference_by_intervals_is_by_hand():
    """MOVER: 0.5 - 0.1 -+ root of squares of (.5 - .2, .2 - .1) and (.6 - .5, .1 - 0)."""
    nothing = np.full(50, np.nan)
    a, b = SampledEstimate(0.5, 0.2, 0.6, nothing), SampledEstimate(0.1, 0.0, 0.2, nothing)
    low, high, p = difference_of_estimates(a, b, 0.95)
    assert (low, high) == pytest.approx((0.4 - 0.1**0.5, 0.4 + 0.02**0.5))
    assert p == pytest.approx(0.0132, abs=5e-4)  # 0.4 is 2.479 of the lower half-width's standard errors
    back = difference_of_estimates(b, a, 0.95)
    assert back == pytest.approx((-high, -low, p))


def test_questions_about_copies_are_as_those_about_one_image():
    attribute = Attribute.of("coin", ["heads", "heads", "tails", "tails"])
    questions = [answered_question(at, "red", "blue", None) for at in range(4)]
    alone, known = (filtered(questions, attribute, np.arange(4), 50, of) for of in (None, np.array([0, 0, 2, 0])))
    assert (alone.images, known.images) == (4, 4)
    assert alone.answers.images.tolist() == [0, 1, 2, 3]
    assert known.answers.images.tolist() == [0, 0, 1, 2]  # the last has another value than its copies
