"""What a terminal says beside findings: accuracy, implausible accuracy, near misses and the next step."""

import math
from dataclasses import replace

import pytest
from audit_configs import LABELLED, audit_config

from c2b_ray.audits.c2b.report.headline import (
    accuracies,
    accuracies_in_brief,
    accuracy_line,
    implausible_line,
    near_line,
    near_misses,
    next_step,
)
from c2b_ray.audits.c2b.report.ranking import Cell

NAN = math.nan


def cell(target, attribute, value, n, correct, **more):
    share = correct / n if n else NAN
    known = {"phi": 0.0, "phi_low": -0.1, "phi_high": 0.1, "q_value": 1.0, "verdict": "undetermined"}
    fields = {"classifier": "net", "errors": 0, "accuracy": share, "accuracy_low": 0.0, "accuracy_high": 1.0}
    return Cell(
        target_class=target,
        attribute=attribute,
        bias_class=value,
        n=n,
        correct=correct,
        paper_verdict=0,
        **{**fields, **known, **more},
    )


def test_accuracy_counts_each_class_once_by_the_attribute_that_most_images_have():
    cells = [
        cell("bus", "weather", "fog", 10, 4),
        cell("bus", "weather", "sun", 30, 30),
        cell("bus", "side", "left", 5, 5),  # the same images again, most of them without a side
        cell("boat", "weather", "sun", 60, 30),
    ]
    (of,) = accuracies(cells)
    assert (of.right, of.images, of.classes) == (64, 100, 2)
    assert of.balanced == pytest.approx((34 / 40 + 30 / 60) / 2)
    line = accuracy_line(of, 0.95).replace("\u202f", " ")
    assert line == "net: 64 of 100 answers are right (64 %; 54–73 %)."  # Wilson's interval
    assert implausible_line(of) == ""


@pytest.mark.parametrize(
    ("bus", "boat", "said"),
    [
        ((6, 100), (6, 100), "only 12 of 200 answers are right (6 %; guessing among 2 classes gives 50 %)"),
        ((100, 100), (0, 100), "only 100 of 200"),  # one answer for all
        ((51, 100), (50, 100), ""),
        ((941, 950), (30, 50), ""),  # 95 % of one class: 97 % of answers are right, and 80 % of classes
        ((950, 950), (0, 50), "only 950 of 1,000"),  # right as often, and always the same answer
        ((0, 5), (0, 5), ""),  # too few to tell
    ],
)
def test_implausible_accuracy_names_the_usual_causes(bus, boat, said):
    cells = [cell(name, "a", "x", n, right) for name, (right, n) in (("bus", bus), ("boat", boat))]
    line = implausible_line(accuracies(cells)[0]).replace("\u202f", " ")
    assert said in line
    assert bool(line) is bool(said)
    for cause in ("normalisation", "order", "label_map") if said else ():
        assert cause in line


def test_near_misses_are_the_largest_open_differences_that_images_would_settle():
    foggy = cell("bus", "weather", "foggy", 12, 4, phi=-0.71, phi_low=-1.0, phi_high=-0.03, images_to_settle=40)
    clear = replace(foggy, bias_class="clear", phi=0.71, phi_low=0.03, phi_high=1.0)
    cells = [
        foggy,
        clear,
        replace(foggy, attribute="side", phi=-0.04),  # within τ
        replace(foggy, attribute="hopeless", images_to_settle=None),
        replace(foggy, attribute="far", images_to_settle=4000),
        replace(foggy, attribute="doubted", doubt="its images show something else"),
        replace(foggy, attribute="found"),
        replace(foggy, attribute="found", bias_class="other", verdict="for"),
    ]
    near = near_misses(cells, 0.05)
    assert [(one.attribute, one.bias_class) for one in near] == [("weather", "foggy")]
    line = near_line(near[0], several=False, tau=0.05).replace("\u202f", " ")
    assert line.startswith("not settled: bus, weather: foggy: φ −0.71 (−1.00 to −0.03) on 12 images; about 40 images")
    labelled = audit_config(LABELLED)
    assert "c2b failures" in next_step(near, labelled)
    assert "images_per_caption: 8" in next_step(near, audit_config(captions_per_cell=5))
    assert "larger `budget`" in next_step(near, audit_config(budget={"images": 100}))
    assert next_step([], labelled) == ""


def test_no_number_of_images_is_named_where_only_the_other_tests_keep_a_difference_open():
    # Alone it would be a finding of the 100 images at hand, so that "about 30 images" would be advice to draw fewer.
    reason = "its interval alone lies beyond ±0.1, but among 54 tests that is expected of some by chance"
    more = {"phi": -0.5, "phi_low": -0.6, "phi_high": -0.39, "images_to_settle": 30, "because": reason}
    near = near_misses([cell("bus", "weather", "snow", 100, 30, **more)], 0.1)
    line = near_line(near[0], several=False, tau=0.1)
    assert line.endswith(f"on 100 images; {reason}.")
    config = audit_config(tau=0.1, captions_per_cell=1)
    assert "images_per_caption" not in next_step(near, config)
    assert "images_per_caption: 70" in next_step([*near, replace(near[0], phi_high=0.0, images_to_settle=70)], config)


def test_the_head_says_which_images_and_classifiers_its_accuracies_leave_out():
    cells = [cell("bus", "weather", "fog", 60, 30, classifier=str(i)) for i in range(5)]
    cells += [replace(one, attribute="side", n=40, correct=40) for one in cells]
    names = {str(i): f"net {i}" for i in range(5)}
    said = accuracies_in_brief(accuracies(cells), names, 100)
    assert said[0].replace("\u202f", " ") == "net 0: 30 of 60 answers right (50 %)."
    assert said[3] == "2 more classifiers below."
    assert "of the images of one attribute for each class, " in said[4]
    assert "not of all 100 images of the run" in said[4]
    of_one = accuracies_in_brief(accuracies(cells)[:1], {"0": "net"}, 60)  # labelled: every attribute has them all
    assert len(of_one) == 1
