import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.errors import ConfigError
from c2b_ray.steps.classify import classification, predict
from c2b_ray.tables import IMAGES
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
