import numpy as np
import pytest

from c2b_ray.audits.c2b.scoring.confounding import StandardisedScores
from c2b_ray.audits.c2b.scoring.judge import LABELS, Estimate
from c2b_ray.audits.c2b.scoring.score import pooled
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.tables import POOLED


def of_class(name, accuracy, n, doubts=None, values=("blurred", "sharp")):
    total = np.full(len(accuracy), n)
    return Estimate(
        classifier="m",
        target_class=name,
        attribute="focus",
        values=values,
        accuracy=np.array(accuracy, float),
        effective=total.astype(float),
        basis=LABELS,
        doubts=list(doubts or [None] * len(accuracy)),
        shared=np.zeros(len(accuracy)),
        columns={"n": total, "correct": np.round(np.array(accuracy) * n).astype(int)},
    )


def test_one_effect_over_ten_classes_is_found_where_no_class_alone_shows_it():
    table = pooled([of_class(f"c{i}", [0.80 + 0.01 * i, 0.90], 150) for i in range(8)], Thresholds(0.02, 0.05))
    assert table.schema == POOLED
    blurred, sharp = table.to_pylist()
    assert (blurred["bias_class"], blurred["classes"], blurred["n"]) == ("blurred", 8, 1200)
    assert blurred["phi"] == pytest.approx(-sharp["phi"])
    assert (blurred["verdict"], sharp["verdict"]) == ("against", "for")


def test_cells_in_doubt_and_single_classes_take_no_part():
    classes = [of_class("a", [0.5, 0.9], 100, ["impure", None]), of_class("b", [0.9, 0.9], 100)]
    assert pooled(classes, Thresholds(0.05, 0.05)).num_rows == 0
    assert pooled([], Thresholds(0.05, 0.05)).num_rows == 0


def test_values_are_one_by_their_normalised_names():
    classes = [
        of_class("a", [0.8, 0.9], 50, values=("Blurred_A", "sharp")),
        of_class("b", [0.8, 0.9], 50, values=("blurred a", "Sharp")),
    ]
    rows = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()
    assert [(row["bias_class"], row["classes"]) for row in rows] == [("Blurred_A", 2), ("sharp", 2)]


def test_what_one_class_alone_shows_is_not_what_all_classes_share():
    """A bus in fog at .5 among nine classes that fog does nothing to: a mean φ of −.05, established, of one class."""
    classes = [of_class("bus", [0.3, 0.95], 400), *(of_class(f"c{i}", [0.95, 0.95], 400) for i in range(5))]
    (blurred, _) = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()
    assert blurred["phi"] == pytest.approx(-0.65 / 6)
    assert blurred["phi_high"] < -0.05
    assert (blurred["verdict"], blurred["doubt"]) == ("undetermined", "bus alone makes the difference")


def test_what_other_attributes_explain_in_every_class_is_not_found_over_all_of_them():
    """In each class images of a value are more often nights, which takes .08 of its φ of −.1."""
    classes = [of_class(f"c{i}", [0.80, 0.90], 300) for i in range(8)]
    plain = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    assert plain["verdict"] == "against"
    moved = np.array([-0.08, 0.08])
    nothing = np.full(2, np.nan)
    for one in classes:
        one.adjusted = StandardisedScores(
            np.array([-0.02, 0.02]),
            moved,
            np.full(2, 0.01),
            np.full(2, 1e-4),
            nothing,
            nothing,
            (None,) * 2,
            (None,) * 2,
        )
    held = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    assert held["verdict"] == "undetermined"
    assert held["phi_low"] <= plain["phi_low"] < -0.02 < held["phi_high"]
    assert "alike in the other attributes it is -0.02" in held["doubt"]


def test_a_row_names_the_weakest_basis_its_captions_and_how_much_they_differ():
    classes = [of_class(f"c{i}", [0.80, 0.90], 300) for i in range(3)]
    labelled = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    assert (labelled["basis"], labelled["captions"], labelled["caption_spread"]) == (LABELS, None, None)
    classes[1].basis = "captions"
    for one in classes:
        one.columns |= {"captions": [1, 1], "caption_spread": np.full(2, np.nan)}
    single = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    assert (single["basis"], single["captions"]) == ("captions", 3)
    assert np.isnan(single["caption_spread"])
    classes[0].columns |= {"captions": [2, 2], "caption_spread": np.full(2, 0.02)}
    several = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    assert (several["captions"], several["caption_spread"]) == (4, 0.02)


def test_what_predicted_false_accepts_explain_is_not_found_over_all_classes_and_lies_within_the_limits():
    """A sound classifier (.9); in each of eight classes a tenth of the blurred images shows something else."""
    classes = [of_class(f"c{i}", [0.81, 0.90], 300) for i in range(8)]
    plain = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    assert plain["verdict"] == "against"
    assert plain["phi_high"] < 0
    for one in classes:
        one.without_false_accepts = np.array([0.90, 0.90])
    tested = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    assert tested["verdict"] == "undetermined"
    assert "-0.09 as estimated, +0.00 without the images that the verifier falsely accepts" in tested["doubt"]
    assert tested["phi"] == plain["phi"]
    assert tested["phi_low"] == plain["phi_low"]
    assert tested["phi_high"] > 0


def test_false_accepts_that_are_not_excluded_over_all_classes_widen_limits_and_leave_no_finding():
    classes = [of_class(f"c{i}", [0.75, 0.90], 300) for i in range(4)]
    plain = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    for one in classes:
        one.without_false_accepts = np.array([0.75, 0.90])
        one.bounds = lambda confidence, times: (np.array([0.75, 0.90]), np.array([0.95, 0.90]))
    tested = pooled(classes, Thresholds(0.05, 0.05)).to_pylist()[0]
    assert (plain["verdict"], tested["verdict"]) == ("against", "undetermined")
    assert "the calibration holds too few images that show another class" in tested["doubt"]
    assert tested["phi_low"] == pytest.approx(plain["phi_low"])
    # .20 in each of four classes of equal weight: .20/√4
    assert tested["phi_high"] == pytest.approx(-0.15 + np.hypot(plain["phi_high"] + 0.15, 0.10), abs=1e-6)
