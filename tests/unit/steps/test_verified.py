import math

import numpy as np
import pyarrow as pa
import pytest
from verified_images import LEVELS, PERFECT, Made, mark

from c2b_ray.audits.c2b.verification.false_accepts import corrections_of
from c2b_ray.steps.answers import answers_of
from c2b_ray.tables import PREDICTIONS


def test_with_a_perfect_verifier_scores_equal_those_without():
    made = Made().add("snow", "snow", 300, 180).add("rain", "rain", 300, 270)
    plain, checked = made.scores(), made.scores(PERFECT)
    for cell, row in checked.items():
        assert row["verdict"] == plain[cell]["verdict"] != "undetermined"
        assert row["doubt"] is None
        for name in ("n", "correct", "accuracy_observed", "phi_observed", "repeats"):
            assert row[name] == plain[cell][name]
        for name in ("accuracy", "accuracy_low", "accuracy_high", "phi", "phi_low", "phi_high"):
            assert row[name] == pytest.approx(plain[cell][name], abs=0.01)
        assert row["shown"] == pytest.approx(1, abs=0.01)
        assert row["class_shown"] == pytest.approx(1, abs=0.01)
    assert plain["bus", "snow"]["shown"] is None


def test_corrected_columns_are_of_what_images_show():
    # A third of the "snow" images show rain, where the classifier is right 9 times in 10; in snow it is half the time.
    made = Made().add("snow", "snow", 200, 100).add("snow", "rain", 100, 90).add("rain", "rain", 300, 270)
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["n"], row["correct"]) == (300, 190)
    assert row["accuracy_observed"] == pytest.approx(190 / 300)
    assert row["phi_observed"] == pytest.approx(190 / 300 - 0.9)
    assert row["accuracy"] == pytest.approx(0.5, abs=0.01)
    assert row["phi"] == pytest.approx(-0.4, abs=0.01)
    assert row["shown"] == pytest.approx(2 / 3, abs=0.01)
    assert row["shown_low"] < 2 / 3 < row["shown_high"]
    assert row["verdict"] == "against"


def test_a_verifier_that_cannot_tell_the_class_trusts_no_cell():
    made = Made().add("snow", "snow", 200, 100).add("rain", "rain", 200, 180)
    blind = PERFECT | {("bus", "bus"): 50, ("bus", "boat"): 50, ("boat", "bus"): 50, ("boat", "boat"): 50}
    for row in made.scores(blind).values():
        if row["target_class"] == "bus":
            assert row["doubt"].startswith(
                "the verifier cannot tell a bus from the other classes (Youden's index 0.00)"
            )
            assert row["verdict"] == "undetermined"


def test_a_difference_that_another_attribute_explains_is_no_finding():
    # Right by day and wrong at night, whatever the weather; the images of snow show fewer nights than those of rain.
    made = Made().add("snow", "snow", 190, 190, light="day").add("snow", "snow", 10, 0, light="night")
    made.add("rain", "rain", 120, 120, light="day").add("rain", "rain", 80, 0, light="night")
    row = made.scores(PERFECT)["bus", "snow"]
    assert row["phi"] == pytest.approx(0.35, abs=0.01)
    assert row["doubt"] == "explained by lighting: +0.35 on the images of 'snow', +0.00 on images alike in lighting"
    assert row["verdict"] == "undetermined"
    # Wrong in rain, by day and at night: what remains within lighting is a finding.
    made = Made().add("snow", "snow", 190, 190, light="day").add("snow", "snow", 10, 10, light="night")
    made.add("rain", "rain", 120, 80, light="day").add("rain", "rain", 80, 50, light="night")
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["doubt"], row["verdict"]) == (None, "for")


def test_an_attribute_that_means_the_same_explains_nothing():
    made = Made().add("snow", "snow", 200, 100, light="white").add("rain", "rain", 195, 190, light="grey")
    made.add("rain", "rain", 5, 5, light="white")
    row = made.scores(PERFECT)["bus", "snow"]
    assert (row["doubt"], row["verdict"]) == (None, "against")


def test_a_doubt_withholds_the_verdict_and_the_p_value():
    wrong_class = Made().add("snow", "snow", 120, 0, "boat").add("snow", "snow", 80, 80).add("rain", "rain", 200, 200)
    row = wrong_class.scores(PERFECT)["bus", "snow"]
    assert row["class_shown"] == pytest.approx(0.4, abs=0.01)
    assert (row["verdict"], row["doubt"]) == ("undetermined", "only 40% of the images show a bus")
    assert math.isnan(row["p_value"])
    assert math.isnan(row["q_value"])
    assert row["images_to_settle"] is None
    wrong_value = Made().add("snow", "rain", 160, 160).add("snow", "snow", 40, 40).add("rain", "rain", 200, 200)
    found = wrong_value.scores(PERFECT)
    assert found["bus", "snow"]["doubt"].endswith("of the images show 'snow'")
    assert "'snow'" in found["bus", "rain"]["doubt"]  # the only value to compare it with
    guess = dict.fromkeys([(a, b) for a in ("snow", "rain") for b in ("snow", "rain")], 500.0)
    made = Made().add("snow", "snow", 100, 50).add("snow", "rain", 100, 50)
    guessed = made.add("rain", "rain", 100, 100).add("rain", "snow", 100, 100).scores(guess)
    assert {row["doubt"][:24] for row in guessed.values()} == {"the verifier cannot tell"}
    blind = Made().add("snow", None, 50, 20).add("rain", None, 50, 50).scores(PERFECT)
    assert {row["doubt"] for row in blind.values()} == {"the verifier named no value of any image"}
    assert {row["verdict"] for row in blind.values()} == {"undetermined"}


def test_the_share_of_the_class_allows_for_the_verifier_s_errors():
    # .73 are said to be buses: sensitivity .8, specificity .9: (.73 + .9 - 1)/(.8 + .9 - 1) = .9
    made = Made().add("snow", "snow", 73, 73).add("snow", "snow", 27, 27, "boat")
    cells = made.cells()
    known = {("bus", "bus"): 80.0, ("bus", "boat"): 20.0, ("boat", "boat"): 90.0, ("boat", "bus"): 10.0}
    assert made.verified(known).of(cells).share_of_class(0) == pytest.approx(0.9)
    assert made.verified({}).of(cells).share_of_class(0) == pytest.approx(0.73)  # uncalibrated: as it is said
    assert math.isnan(made.verified(known).of(cells).share_of_class(1))  # no image of rain was drawn


def differing(boats):
    """Five captions of snow of which some are harder; of rain none is. `boats`: wrong images of no bus, each."""
    made = Made(captions=5)
    for number, right in enumerate([27, 30, 33, 36, 39]):
        made.add("snow", "snow", 40, right, number=number).add("rain", "rain", 40, 36, number=number)
        for value in ("snow", "rain"):
            made.add(value, value, boats, 0, "boat", number=number)
    return made


def test_what_captions_add_to_chance_is_part_of_verified_scores_and_of_what_would_settle_them():
    made = differing(boats=0)
    plain, checked = made.scores()["bus", "snow"], made.scores(PERFECT)["bus", "snow"]
    assert plain["images_to_settle"] > 200
    for name in ("phi_low", "phi_high", "accuracy_low", "accuracy_high"):
        assert checked[name] == pytest.approx(plain[name], abs=0.01)
    assert checked["images_to_settle"] == pytest.approx(plain["images_to_settle"], rel=0.1)


def test_captions_differ_no_less_where_other_images_water_that_down():
    # As many images of boats as of buses: counted accuracies differ by half as much, corrected ones as before.
    pure, impure = (differing(boats).scores(PERFECT)["bus", "snow"] for boats in (0, 40))
    assert impure["class_shown"] == pytest.approx(0.5, abs=0.01)
    assert impure["phi"] == pytest.approx(pure["phi"], abs=0.01)
    # It is .95 as wide: the less clearly captions are seen, the more of their spread is what its prior expects.
    assert impure["phi_high"] - impure["phi_low"] >= 0.9 * (pure["phi_high"] - pure["phi_low"])


def test_repeats_of_a_picture_count_once():
    made = Made().add("snow", "snow", 5, 5).add("snow", "snow", 4, 0, marks=mark(999)).add("rain", "rain", 6, 6)
    snow = made.scores(PERFECT)["bus", "snow"]
    assert (snow["n"], snow["correct"], snow["repeats"]) == (6, 5, 3)
    plain = made.scores()["bus", "snow"]  # without a verifier as well
    assert (plain["n"], plain["correct"], plain["repeats"]) == (6, 5, 3)


def test_a_repeat_of_another_class_s_picture_still_counts_for_its_own():
    # The same picture, saved twice: one copy was drawn for boats, the other for buses.
    made = Made(classes=("boat", "bus"))
    for target in ("boat", "bus"):
        made.add("snow", "snow", 1, 1, target, mark(999), target, name=f"{target} copy")
        made.add("snow", "snow", 5, 5, target, target=target).add("rain", "rain", 6, 6, target, target=target)
    for row in made.scores(PERFECT).values():
        assert (row["n"], row["repeats"], row["doubt"]) == (6, 0, None)


def test_what_is_kept_of_a_group_for_further_classifiers_is_of_the_same_cells_and_pools():
    made = Made().add("snow", "snow", 100, 60).add("snow", "rain", 30, 20).add("rain", "rain", 120, 100)
    cells = made.cells()
    fewer = cells.where(np.arange(len(cells.cell)) % 130 >= 20)
    other = [row | {"predicted_class": "mug"} if i % 3 else row for i, row in enumerate(made.predictions)]
    kept = made.verified(PERFECT)
    pooled = kept.drawn_from(cells)
    seen = {}
    for verified, drawn, rows in (
        (kept, cells, made.predictions),
        (kept, cells, other),
        (kept, fewer, made.predictions),
        (pooled, fewer, made.predictions),
        (kept, cells, made.predictions),
    ):
        known = seen.setdefault((verified, id(drawn)), verified.of(drawn))
        answers = answers_of(pa.Table.from_pylist(rows, PREDICTIONS), "m").to(drawn)
        fresh = made.verified(PERFECT)
        fresh = fresh.drawn_from(cells) if verified is pooled else fresh
        (group,) = drawn.groups
        found, expected = (
            corrections_of(one, [group], answers, LEVELS)[group.name] for one in (known, fresh.of(drawn))
        )
        np.testing.assert_array_equal(found.scores.accuracy, expected.scores.accuracy)
        np.testing.assert_array_equal(found.total, expected.total)
        assert found.misfit == expected.misfit
