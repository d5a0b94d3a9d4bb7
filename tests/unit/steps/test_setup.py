"""A set-up is called wrong where it is, and not where a classifier is merely bad, weak or biased.

Simulated classifiers: a row of `confusion` has the probabilities of the labels that images of a class get.
"""

import numpy as np
import pytest

from c2b_ray.steps.classify import Classification
from c2b_ray.steps.setup import detected, hopeless, sentences, setup_finding
from c2b_ray.steps.setup_maps import LabelledAnswers


def asking(confusion, names=None, right="top1"):
    classes, labels = confusion.shape
    names = names or tuple(f"n{i:04d}" for i in range(labels))
    return Classification("c", "r", tuple(names[:classes]), tuple((k,) for k in range(classes)), right, tuple(names))


def answers(confusion, images, rng, weights=None):
    truth = rng.choice(len(confusion), images, p=weights)
    answer = (rng.random(images)[:, None] > confusion.cumsum(axis=1)[truth]).sum(axis=1)
    return LabelledAnswers(truth, np.minimum(answer, confusion.shape[1] - 1))


def classifier(accuracies, rng):
    """A classifier whose errors go to few other classes, as those of real ones do."""
    rows = []
    for number, accuracy in enumerate(accuracies):
        others = rng.dirichlet(np.full(len(accuracies) - 1, 0.3)) * (1 - accuracy)
        rows.append(np.insert(others, number, accuracy))
    return np.array(rows)


def found(confusion, images, rng, **more):
    return detected(asking(confusion, more.pop("names", None)), answers(confusion, images, rng, **more))


SOUND = {
    "good": (lambda rng: rng.uniform(0.4, 0.95, 10), 400),
    "weak": (lambda rng: np.full(10, 0.3), 1000),
    "weak, two classes": (lambda rng: np.array([0.66, 0.62]), 400),
    "biased, two classes": (lambda rng: np.array([0.97, 0.3]), 400),
    "four classes hopeless, six good": (lambda rng: np.array([0.1] * 4 + [0.9] * 6), 600),
    "bad, few images": (lambda rng: rng.uniform(0, 0.2, 10), 20),
    "weak, a hundred classes": (lambda rng: rng.uniform(0.05, 0.2, 100), 400),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_classifier_that_works_is_not_called_hopeless(name):
    accuracies, images = SOUND[name]
    rng = np.random.default_rng(1)
    runs = [found(classifier(accuracies(rng), rng), images, rng) for _ in range(300)]
    assert sum(one.hopeless for run in runs for one in run) == 0
    assert sum(map(bool, runs)) <= 1


def test_most_images_of_one_class_hide_nothing_and_show_nothing():
    rng = np.random.default_rng(2)
    confusion = np.array([[0.95, 0.05], [0.4, 0.6]])
    assert not any(found(confusion, 600, rng, weights=[0.97, 0.03]) for _ in range(100))


def test_outputs_one_place_after_their_names():
    rng = np.random.default_rng(3)
    confusion = np.zeros((10, 101))
    confusion[:, 1:11] = classifier(np.full(10, 0.8), rng)
    (one,) = found(confusion, 300, rng)
    assert (one.kind, one.places, one.hopeless) == ("shifted", 1, True)
    assert "1 place after the right one in the list of labels" in setup_finding(one, asking(confusion))["seen"]


def test_a_thousand_classes_that_are_shifted_need_less_than_one_image_each():
    rng = np.random.default_rng(4)
    confusion = np.eye(1000, 1001, 1) * 0.7
    confusion[:, 0] = 0.3
    (one,) = found(confusion, 400, rng)
    assert (one.kind, one.places) == ("shifted", 1)


def test_numbered_folders_in_the_order_of_text():
    rng = np.random.default_rng(5)
    names = [str(i) for i in range(30)]
    order = [names.index(name) for name in sorted(names)]
    confusion = classifier(np.full(30, 0.8), rng)[:, order]
    (one,) = found(confusion, 500, rng, names=names)
    assert (one.kind, one.hopeless) == ("sorted", True)
    asked = asking(np.eye(30)[:, :], sorted(names))  # and names as text, for outputs in the order of numbers
    right = np.array([sorted(names).index(name) for name in names])
    truth = rng.integers(0, 30, 500)
    (one,) = detected(asked, LabelledAnswers(truth, np.argsort(right)[truth]))
    assert one.kind == "sorted"


def test_names_in_any_other_order():
    rng = np.random.default_rng(6)
    order = np.roll(np.arange(10), 3)[[1, 0, 2, 4, 3, 6, 5, 8, 7, 9]]
    (one,) = found(classifier(np.full(10, 0.85), rng)[:, order], 500, rng)
    assert (one.kind, one.hopeless) == ("reordered", True)
    assert one.explained > 0.6 * one.images


def test_classes_that_other_labels_stand_for():
    rng = np.random.default_rng(7)
    confusion = np.zeros((3, 40))
    confusion[0, 30] = confusion[1, 12] = confusion[2, 25] = 0.9
    confusion[:, :3] += 0.1 / 3
    (one,) = found(confusion, 300, rng)
    assert one.kind == "reordered"
    assert "n0000 is answered 'n0030'" in setup_finding(one, asking(confusion))["seen"]


def test_two_classes_in_each_other_s_place_among_good_ones():
    rng = np.random.default_rng(8)
    confusion = classifier(np.full(10, 0.9), rng)[:, [1, 0, *range(2, 10)]]
    (one,) = found(confusion, 800, rng)
    assert (one.kind, one.hopeless, {k for k, _ in one.pairs}) == ("exchanged", False, {0, 1})
    (one,) = found(np.array([[0.05, 0.95], [0.9, 0.1]]), 300, rng)
    assert (one.kind, one.hopeless) == ("exchanged", True)


def test_two_classes_that_are_never_right_need_few_images():
    """Of four classes with 8 images each: 6 pairs × 2**-16 = 9.2e-5, below 1.25e-4; with 7 images 3.7e-4, above."""
    confusion = np.eye(4)[[0, 1, 3, 2]]
    rng = np.random.default_rng(5)
    for images, expected in ((8, [("exchanged", False, 16, {2, 3})]), (7, [])):
        truth = np.repeat(np.arange(4), images)
        answer = np.array([confusion[k].argmax() for k in truth])
        order = rng.permutation(len(truth))
        seen = detected(asking(confusion), LabelledAnswers(truth[order], answer[order]))
        assert [(one.kind, one.hopeless, one.explained, {k for k, _ in one.pairs}) for one in seen] == expected


def test_one_answer_for_all():
    rng = np.random.default_rng(9)
    for classes, images in ((2, 400), (10, 400)):
        confusion = np.full((classes, classes), 0.005)
        confusion[:, 1] = 1 - 0.005 * (classes - 1)
        (one,) = found(confusion, images, rng)
        assert (one.kind, one.label, one.hopeless) == ("one answer", 1, True)


@pytest.mark.parametrize(("classes", "images"), [(2, 2500), (5, 600), (10, 500), (50, 500)])
def test_guessing(classes, images):
    rng = np.random.default_rng(10)
    runs = [found(np.full((classes, classes), 1 / classes), images, rng) for _ in range(40)]
    assert sum(bool(run) and run[0].kind == "chance" and run[0].hopeless for run in runs) >= 36


def test_answers_outside_the_classes():
    rng = np.random.default_rng(11)
    confusion = np.full((5, 50), 0.97 / 45)
    confusion[:, :5] = 0.03 / 5
    (one,) = found(confusion, 300, rng)
    assert (one.kind, one.hopeless) == ("outside", True)
    confusion = np.full((4, 50), 0.0)
    confusion[np.arange(4), np.arange(4)] = 0.07  # few answers are right, but those are no accident
    confusion[:, 4:] = 0.93 / 46
    (one,) = found(confusion, 3000, rng)
    assert (one.kind, one.hopeless) == ("outside", False)
    (one,) = detected(asking(np.zeros((1, 9))), LabelledAnswers(np.zeros(200, int), np.full(200, 5)))
    assert (one.kind, one.label) == ("outside", 5)


def test_a_table_whose_truth_was_taken_for_the_answer():
    truth = np.arange(200) % 4
    asked = asking(np.eye(4))
    (one,) = detected(asked, LabelledAnswers(truth, truth), is_table=True)
    assert (one.kind, one.hopeless) == ("perfect", False)
    assert not detected(asked, LabelledAnswers(truth, truth))
    assert not detected(asked, LabelledAnswers(truth[:50], truth[:50]), is_table=True)
    wrong = np.where(np.arange(200) == 7, (truth + 1) % 4, truth)
    assert not detected(asked, LabelledAnswers(truth, wrong), is_table=True)


def test_no_images_and_no_answers_show_nothing():
    assert not detected(asking(np.eye(3)), LabelledAnswers(np.zeros(0, int), np.zeros(0, int)))
    (one,) = detected(asking(np.eye(3)), LabelledAnswers(np.arange(300) % 3, np.full(300, -1)))
    assert (one.kind, one.label) == ("one answer", -1)
    assert "no single label" in setup_finding(one, asking(np.eye(3)))["seen"]


def test_a_run_is_hopeless_where_all_its_classifiers_are():
    (one,) = detected(asking(np.eye(3)), LabelledAnswers(np.arange(300) % 3, np.full(300, 2)))
    row = setup_finding(one, asking(np.eye(3)))
    assert hopeless([row], ["c"])
    assert not hopeless([row], ["c", "d"])
    assert sentences(row, of_several=True).startswith("c: 300 of 300 (100 %) of the images")


@pytest.mark.parametrize("kind", ["chance", "one answer"])
def test_a_table_of_predictions_is_not_told_to_mend_weights_and_preprocessing(kind):
    generator = np.random.default_rng(0)
    answers = np.full(600, 2) if kind == "one answer" else generator.integers(0, 3, 600)
    (one,) = detected(asking(np.eye(3)), LabelledAnswers(np.arange(600) % 3, answers), is_table=True)
    assert one.kind == kind
    of_model, of_table = (
        sentences(setup_finding(one, asking(np.eye(3)), True, is_table)) for is_table in (False, True)
    )
    assert "normalisation" in of_model
    assert "normalisation" not in of_table
    assert "weights" not in of_table
    assert "?prediction=COLUMN" in of_table
