"""Answers of a classifier, and which of them count as right."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.errors import ConfigError, ServiceError, WeightsError
from c2b_ray.models.json_service import RequestRefused
from c2b_ray.steps import classify
from c2b_ray.steps.answers import UNDECIDED, answers_of
from c2b_ray.steps.classify import Classes, answers, classification, predict
from c2b_ray.tables import IMAGES, PREDICTIONS
from c2b_ray.world import render, sample
from c2b_ray.world.table import picture


class Fixed:
    """Gives the logits that it was made with, a row per image, and notes what it was shown."""

    def __init__(self, labels, logits):
        self.labels, self.revision, self._logits = tuple(labels), "1", np.asarray(logits, np.float32)
        self.seen = []

    def logits(self, images, keys):
        self.seen += list(zip(images, keys, strict=True))
        return self._logits[: len(images)]


def table(*rows):
    return pa.Table.from_pylist(
        [{"image_id": f"i{n}", "key": f"k{n}", "bytes": data, "error": error} for n, (data, error) in enumerate(rows)],
        IMAGES,
    )


SCENE = sample(1, 5)[0]
GOOD = (picture(SCENE), None)


def test_class_probability_is_the_mean_over_the_labels_of_the_class():
    # softmax of log(p) is p: .4 .1 .3 .2; bus = mean(.4, .1) = .25, boat = .3, though the likeliest label is coach
    model = Fixed(["coach", "minibus", "ship", "tree"], [np.log([0.4, 0.1, 0.3, 0.2])])
    asked = classification("x:y", model, ["bus", "boat"], {"bus": [0, "minibus"], "boat": ["ship"]}, "among_classes")
    (row,) = predict(table(GOOD), model, asked).to_pylist()
    assert (row["label"], row["predicted_class"]) == ("coach", "boat")
    assert row["label_probability"] == pytest.approx(0.4)
    assert row["class_probability"] == pytest.approx(0.3)
    np.testing.assert_array_equal(model.seen[0][0], render(SCENE))
    assert model.seen[0][1] == "k0"


def test_probabilities_of_all_classes_are_kept_where_they_are_wanted():
    # softmax of log(p) is p; a class has the sum over its labels, and a row without an answer has none
    model = Fixed(["coach", "minibus", "ship", "tree"], [np.log([0.4, 0.1, 0.3, 0.2]), [np.nan] * 4])
    label_map = {"bus": [0, "minibus"], "boat": ["ship"]}
    plain = classification("x:y", model, ["bus", "boat"], label_map)
    wanted = classification("x:y", model, ["bus", "boat"], label_map, probabilities=True)
    first, second = predict(table(GOOD, GOOD), model, wanted)["probabilities"].to_pylist()
    assert first == pytest.approx([0.5, 0.3])
    assert second is None
    assert predict(table(GOOD), model, plain)["probabilities"].to_pylist() == [None]
    assert plain.prediction_id("i0") != wanted.prediction_id("i0")


def test_bad_images_and_nan_logits_are_rows_with_an_error_in_their_place():
    model = Fixed(["bus", "boat"], [[1, 0], [np.nan, 0], [-np.inf, 0]])
    asked = classification("x:y", model, ["bus", "boat"], None)
    rows = predict(table(GOOD, (b"", None), GOOD, (None, "gone"), GOOD), model, asked).to_pylist()
    assert [row["predicted_class"] for row in rows] == ["bus", None, None, None, "boat"]
    assert rows[3]["error"] == "gone"
    assert "not numbers" in rows[2]["error"]
    assert rows[1]["error"]
    assert len(model.seen) == 3


@pytest.mark.parametrize(
    "error", [WeightsError("fails on pictures"), RequestRefused("refused", "reply"), ServiceError("x:y is dead")]
)
def test_a_model_that_fails_is_named_once_also_where_the_error_comes_from_another_process(error):
    class Failing(Fixed):
        def logits(self, images, keys):
            raise error

    model = Failing(["bus", "boat"], [[1, 0]])
    with pytest.raises(type(error), match=r"^x:y") as raised:
        predict(table(GOOD), model, classification("x:y", model, ["bus", "boat"], None))
    assert str(raised.value).count("x:y") == 1
    again = pickle.loads(pickle.dumps(raised.value))  # as Ray carries it; no weights are ever read so
    assert (type(again), str(again)) == (type(error), str(raised.value))


@pytest.mark.parametrize(
    ("label_map", "field", "words"),
    [
        (None, "classes", "did you mean 'boat'"),
        ({"bus": [0]}, "label_map", "'boats'"),
        ({"bus": [0], "boats": [7]}, "label_map.boats", "labels 0 to 1"),
        ({"bus": [0], "boats": ["boot"]}, "label_map.boats", "did you mean 'boat'"),
    ],
)
def test_a_class_that_no_label_maps_to(label_map, field, words):
    with pytest.raises(ConfigError, match=words) as caught:
        classification("x:y", Fixed(["bus", "boat"], []), ["bus", "boats"], label_map)
    assert caught.value.field == field


def test_a_label_that_several_outputs_have_is_meant_by_its_index():
    model = Fixed(["crane", "bus", "Crane", "boat"], [])
    assert classification("x:y", model, ["bus", "boat"], None).labels_of_class == ((1,), (3,))
    assert classification("x:y", model, ["bird", "bus"], {"bird": [0], "bus": ["bus"]}).labels_of_class == ((0,), (1,))
    for classes, label_map in ((["crane"], None), (["bird"], {"bird": ["crane"]})):
        with pytest.raises(ConfigError, match=r"2 labels of x:y are 'crane', at 0, 2; .*indices") as caught:
            classification("x:y", model, classes, label_map)
        assert caught.value.field == f"label_map.{classes[0]}"


def test_the_id_depends_on_what_was_asked():
    model = Fixed(["bus", "boat"], [])
    a = classification("x:y", model, ["bus", "boat"], None)
    b = classification("x:y", model, ["bus", "boat"], {"bus": [1], "boat": [0]})
    c = classification("x:y", model, ["bus", "boat"], None, "among_classes")
    assert len({asked.prediction_id("i") for asked in (a, b, c)}) == 3


@pytest.mark.parametrize(
    ("classes", "label_map", "right", "words"),
    [
        (["bus", "tram"], {"bus": [0, 1], "tram": ["boat"]}, "top1", "'bus' and 'tram' share the label 'boat'"),
        (["bus"], {"bus": [True]}, "top1", "neither a label's name nor its index"),
        (["bus"], {"bus": [1.0]}, "top1", "neither a label's name nor its index"),
        (["bus"], None, "among_classes", "the only class"),
        (["bus"], None, "top5", "has 2 labels"),
    ],
)
def test_what_would_make_answers_meaningless_is_refused(classes, label_map, right, words):
    with pytest.raises(ConfigError, match=words):
        classification("x:y", Fixed(["bus", "boat"], []), classes, label_map, right)


def test_a_classifier_of_one_label_is_refused():
    with pytest.raises(ConfigError, match=r"classifier: x:y has one label, 'bus', so that every answer would be right"):
        classification("x:y", Fixed(["bus"], []), ["bus"], None)


def test_underscores_do_not_make_two_classes_of_one_label():
    with pytest.raises(ConfigError, match="share the label"):
        classification("x:y", Fixed(["traffic light", "bus"], []), ["traffic light", "traffic_light"], None)


@pytest.mark.parametrize(
    ("field", "names", "label_map", "words"),
    [
        ("captions", ["tram"], None, "captions: no label of x:y is 'tram'.*or give `label_map`"),
        ("--classifiers", ["tram"], None, "--classifiers: no label of x:y is 'tram'.*or give `--label-map`"),
        ("captions", ["bus", "Bus"], None, "captions: 'bus' and 'Bus' share the label 'bus'"),
        ("--classifiers", ["bus", "tram"], {"bus": [0], "tram": [0]}, "--label-map: 'bus' and 'tram' share the label"),
    ],
)
def test_what_is_wrong_with_a_label_is_said_of_what_the_user_wrote(field, names, label_map, words):
    with pytest.raises(ConfigError, match=words):
        classification("x:y", Fixed(["bus", "boat"], []), names, label_map, field=field)


def test_labels_that_nothing_names_ask_for_a_file_of_names():
    with pytest.raises(ConfigError, match=r"no label of x:y is 'bus'; .*add \?labels=FILE to its spec"):
        classification("x:y", Fixed(["label_0", "label_1"], []), ["bus"], None)


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
