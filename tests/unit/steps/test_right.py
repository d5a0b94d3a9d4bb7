"""What counts as right: of the whole label space, of the classes alone, and where no single answer is."""

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.steps import classify
from c2b_ray.steps.answers import UNDECIDED, answers_of
from c2b_ray.steps.classify import Classes, answers
from c2b_ray.tables import PREDICTIONS

LABELS = ("snowplow", "minibus", "bicycle", "tram", "coach", "van", "kite")
TRAFFIC = Classes(("minibus", "bicycle", "tram"), ((1, 4), (2,), (3,)))
INF = np.inf


def one(logits, rule="top1", classes=TRAFFIC, labels=LABELS):
    (answer,) = answers(np.array([logits], np.float32), labels, classes, rule)
    return answer


def taken(answer, target):
    row = {"prediction_id": "p", "image_id": "i", "classifier": "c", "revision": "1", **vars(answer)}
    return answers_of(pa.Table.from_pylist([row], PREDICTIONS), "c").of(target)["i"]


def test_an_answer_outside_the_classes_is_wrong_and_named_unless_the_choice_is_among_the_classes():
    fog = [9, 5, 1, 0, 0, 0, 0]
    assert taken(one(fog), "minibus") == "snowplow"
    assert one(fog).predicted_class is None
    assert taken(one(fog, "among_classes"), "minibus") == "minibus"
    assert one(fog, "among_classes").label == "snowplow"


def test_any_label_of_the_class_is_right_and_another_class_is_named():
    coach = one([0, 1, 2, 3, 9, 0, 0])
    assert (coach.label, coach.predicted_class) == ("coach", "minibus")
    assert (taken(coach, "minibus"), taken(coach, "tram")) == ("minibus", "minibus")


def test_top5_counts_for_every_class_with_a_label_among_the_five():
    answer = one([9, 1, 7, 0.5, 6, 5, 4], "top5")  # snowplow, bicycle, coach, van, kite; neither minibus nor tram
    assert answer.answered == ["minibus", "bicycle"]
    assert [taken(answer, name) for name in TRAFFIC.names] == ["minibus", "bicycle", "snowplow"]


def test_a_tie_for_the_fifth_place_counts_for_no_class_that_it_may_leave_out():
    # Four labels lead; minibus, tram and coach share the fifth place. Two of the three stand for minibus.
    answer = one([9, 1, 7, 1, 1, 5, 4], "top5")
    assert answer.answered == ["bicycle"]
    assert taken(answer, "tram") == "snowplow"


@pytest.mark.parametrize("rule", ["top1", "top5", "among_classes"])
@pytest.mark.parametrize("logits", [[0] * 7, [-INF] * 7, [-1e30] * 7])
def test_no_single_answer_is_wrong_for_every_class(rule, logits):
    answer = one(logits, rule)
    assert answer.undecided
    assert {taken(answer, name) for name in TRAFFIC.names} == {UNDECIDED}


def test_a_tie_is_decided_by_what_stands_for_the_same_class():
    tie = one([0, 3, 0, 3, 0, 0, 0])
    assert tie.undecided == "2 labels are equally likely: minibus, tram"
    same = one([0, 3, 0, 0, 3, 0, 0])  # minibus and coach
    assert (same.undecided, same.label, taken(same, "minibus"), taken(same, "tram")) == (None, None, *["minibus"] * 2)


def test_logits_decide_where_softmax_would_underflow_or_round():
    assert one([1e4, 0, -5, -9, -9, -9, -9], "among_classes").undecided is None
    assert taken(one([1e4, -9, 0, -5, -9, 0, 0], "among_classes"), "bicycle") == "bicycle"
    near = np.float32(5)
    assert taken(one([0, 0, near, np.nextafter(near, np.float32(9)), 0, 0, 0]), "tram") == "tram"


def test_no_probability_on_any_class_is_no_answer_among_them():
    for nothing in (-INF, -87.33654):  # of an HTTP classifier, and of a table of predictions
        answer = one([0, *[nothing] * 6], "among_classes")
        assert answer.undecided == "no class has any probability"
        assert (answer.label, taken(answer, "minibus")) == ("snowplow", UNDECIDED)


def test_equal_means_of_several_labels_are_a_tie_whatever_floats_make_of_them():
    # minibus: mean(.1, .3) = .2, tram: .2
    with np.errstate(divide="ignore"):
        answer = one(np.log([0.2, 0.1, 0.0, 0.2, 0.3, 0.1, 0.1]), "among_classes")
    assert answer.undecided == "2 classes are equally likely: minibus, tram"


def test_another_label_of_the_classes_name_is_not_the_class():
    cranes = ("crane", "crane", "bus")  # a bird and a machine, told apart by index
    answer = one([0, 9, 1], classes=Classes(("crane", "bus"), ((0,), (2,))), labels=cranes)
    assert taken(answer, "crane") == "crane (another label)"


def test_logits_that_are_no_numbers_are_no_answer():
    found = answers(np.array([[np.nan] + [0] * 6, [INF] + [0] * 6, [1] + [0] * 6]), LABELS, TRAFFIC, "top1")
    assert [answer is None for answer in found] == [True, True, False]


def test_one_class():
    bus = Classes(("bus",), ((1,),))
    assert taken(one([0, 9, 0, 0, 0, 0, 0], classes=bus), "bus") == "bus"
    assert taken(one([9, 5, 0, 0, 0, 0, 0], classes=bus), "bus") == "snowplow"


def test_rows_that_are_decided_together_are_what_each_is_alone():
    random = np.random.default_rng(0)
    logits = random.normal(0, 5, (600, len(LABELS)))
    logits[::7] = np.round(logits[::7])  # ties
    logits[3::50], logits[5::60, 2], logits[8::90, 1], logits[9::11, 3] = -INF, np.nan, INF, -INF
    together = answers(logits, LABELS, TRAFFIC, "top1")
    assert together == [answers(row[None], LABELS, TRAFFIC, "top1")[0] for row in logits]
    alone = [classify._answer(row, LABELS, TRAFFIC, TRAFFIC.of_label, "top1") for row in logits if row.max() < INF]
    assert [answer for answer in together if answer is not None] == alone
    assert len(alone) < len(logits)
