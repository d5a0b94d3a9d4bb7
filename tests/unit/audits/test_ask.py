import math

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.ask import answer, class_of, one_of_each_picture
from c2b_ray.errors import ConfigError
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.tables import IMAGES, PREDICTIONS

EACH_ITS_OWN = Distinct(IMAGES.empty_table().select(DISTINCT_COLUMNS))
CLASSES = ["bus", "school bus", "boat", "glass"]


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("a Bus in the snow at night", "bus"),
        ("two boats, far away", "boat"),
        ("glasses on a table", "glass"),
        ("a yellow school bus", "school bus"),  # not a bus and a school bus
        ("a BUS. Another bus!", "bus"),
    ],
)
def test_the_class_is_read_from_the_sentence(sentence, name):
    assert class_of(sentence, CLASSES, None) == name


@pytest.mark.parametrize(
    ("sentence", "given", "words"),
    [
        ("a busy street", None, r"names no class of the run; name one of bus, school bus, boat, glass with --class"),
        ("a bus and a boat", None, r"names several classes \(bus, boat\)"),
        ("a bus", "boot", "no class 'boot'; did you mean 'boat'"),
    ],
)
def test_what_is_not_plain_is_asked_back(sentence, given, words):
    with pytest.raises(ConfigError, match=words):
        class_of(sentence, CLASSES, given)


def test_a_given_class_wins():
    assert class_of("a bus", CLASSES, " Boat ") == "boat"


def predictions(**answers):
    rows = [
        {"prediction_id": i, "image_id": i, "classifier": "m", "revision": "1", "predicted_class": name or None}
        for i, name in answers.items()
    ]
    return pa.Table.from_pylist(rows, PREDICTIONS)


def counted(right, wrong, missing=0, start=0, name="boat"):
    given = ["bus"] * right + [name] * wrong + [""] * missing
    return {f"i{start + k}": label for k, label in enumerate(given)}


def test_copies_of_a_picture_count_once():
    asked, others = counted(4, 2), counted(3, 3, start=6)
    # i0 is i1; i5 is i6, which the run drew; i9 and i10 are one.
    pictures = {"i1": "i0", "i6": "i5", "i10": "i9"}
    marks = {name: np.random.default_rng(number).bytes(200) for number, name in enumerate(asked | others)}
    rows = [{"image_id": i, "content": i, "fingerprint": marks[pictures.get(i, i)]} for i in asked | others]
    run = set(asked) | set(others), predictions(**asked, **others)
    distinct = Distinct(pa.Table.from_pylist(rows))
    once = one_of_each_picture(list(asked), distinct)
    assert once == ["i0", "i2", "i3", "i4", "i5"]
    told = answer("m", "bus", predictions(**{i: asked[i] for i in once}), run, 0.95, distinct)
    assert (told.of_sentence.n, told.of_sentence.correct, told.errors) == (5, 3, 0)
    assert (told.others.n, told.others.correct, told.of_class.n) == (4, 2, 9)


def test_rates_and_difference_are_of_separate_images():
    """56 of 70 against 48 of 80: Newcombe (1998), table II: 0.2, and by Miettinen and Nurminen's method (6) the limits
    0.0528 and 0.3382, which the saddlepoint's come near."""
    asked, others = counted(56, 14), counted(48, 32, start=70)
    run = predictions(**asked, **others)
    told = answer("m", "bus", predictions(**asked), (set(asked) | set(others), run), 0.95, EACH_ITS_OWN)
    assert (told.of_sentence.n, told.of_sentence.correct, told.others.n, told.others.correct) == (70, 56, 80, 48)
    assert (told.of_class.n, told.of_class.correct) == (150, 104)
    assert told.difference == pytest.approx(0.2)
    assert (told.difference_low, told.difference_high) == pytest.approx((0.0528, 0.3382), abs=3e-3)
    assert 0.001 < told.p_value < 0.05
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    limits = proportion.confint_proportions_2indep(56, 70, 48, 80, method="score")
    assert (told.difference_low, told.difference_high) == pytest.approx(limits, abs=4e-3)
    assert (told.of_sentence.low, told.of_sentence.high) == pytest.approx(
        proportion.proportion_confint(56, 70, method="wilson")
    )


def test_wrong_answers_are_counted_and_missing_ones_are_not_zero():
    asked = counted(1, 3, 2) | counted(0, 1, start=9, name="mug") | counted(0, 1, start=10, name="glass")
    told = answer("m", "bus", predictions(**asked), (set(), predictions()), 0.95, EACH_ITS_OWN)
    assert (told.of_sentence.n, told.errors) == (6, 2)
    assert told.mistaken_for == (("boat", 3), ("glass", 1), ("mug", 1))
    assert told.of_class.n == 0
    assert math.isnan(told.of_class.accuracy)
    assert math.isnan(told.difference)
    assert math.isnan(told.p_value)
