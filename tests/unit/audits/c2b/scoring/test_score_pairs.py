import math
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from paired_worlds import SNOW_AT_NIGHT, RetrievedWorld, labelled_world

from c2b_ray.audits.c2b.scoring.pairs import PairImages, score_pairs
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.stats import crossed, interactions
from c2b_ray.steps.duplicates import Distinct


def scored(counts, tau=0.05, distinct=None):
    proposals, captions, draws, predictions = labelled_world(counts)
    images = PairImages(draws, distinct)
    return score_pairs(proposals, captions, predictions, images, ["m"], Thresholds(tau, 0.05))


def by_name(table):
    return {row["bias_class"]: row for row in table.to_pylist()}


def test_copies_of_one_picture_count_once_in_a_cell():
    images = labelled_world(SNOW_AT_NIGHT)[3]["image_id"].to_pylist()
    marks = [np.random.default_rng(i).bytes(200) for i in range(len(images))]
    copies = pa.table({"image_id": images, "content": [str(i // 4) for i in range(len(images))], "fingerprint": marks})
    whole = scored(SNOW_AT_NIGHT).to_pylist()
    found = scored(SNOW_AT_NIGHT, distinct=Distinct(copies)).to_pylist()
    assert [row["n"] for row in found] == [50] * 4
    assert [row["repeats"] for row in found] == [150] * 4
    assert [row["repeats"] for row in whole] == [0] * 4
    assert found[3]["interaction_high"] > whole[3]["interaction_high"]


def test_a_cell_that_its_two_attributes_do_not_explain_is_found_once():
    rows = by_name(scored(SNOW_AT_NIGHT))
    assert list(rows) == ["rain, day", "rain, night", "snow, day", "snow, night"]
    told = rows["snow, night"]
    assert (told["attribute"], told["value_a"], told["value_b"]) == ("weather × lighting", "snow", "night")
    assert (told["n"], told["correct"], told["basis"]) == (200, 60, "labels")
    assert told["expected"] == pytest.approx(0.9 + 0.8 - 0.9)  # snow by day + rain at night − rain by day
    assert told["interaction"] == pytest.approx(0.3 - 0.8)
    assert told["phi"] == pytest.approx(0.3 - (0.9 + 0.8 + 0.9) / 3)
    assert (told["verdict"], told["folded_into"], told["doubt"]) == ("against", None, None)
    for name in ("rain, night", "snow, day"):
        assert (rows[name]["verdict"], rows[name]["folded_into"]) == ("undetermined", "snow, night")


def test_two_effects_that_add_up_are_no_intersection():
    additive = {("rain", "day"): (900, 100), ("rain", "night"): (700, 300),
                ("snow", "day"): (700, 300), ("snow", "night"): (500, 500)}  # fmt: skip
    rows = scored(additive, 0.1).to_pylist()
    assert [row["interaction"] for row in rows] == pytest.approx([0] * 4, abs=1e-12)
    assert {row["verdict"] for row in rows} == {"none"}
    assert rows[3]["phi"] < -0.2  # though the cell itself is bad


def test_a_cell_that_is_always_right_is_not_unfair():
    """Either value alone saves what is bad without it; together they would make 160 % right."""
    saved = {("rain", "day"): (80, 120), ("rain", "night"): (200, 0), ("snow", "day"): (200, 0)}
    rows = by_name(scored(saved | {("snow", "night"): (199, 1)}))
    assert [name for name, row in rows.items() if row["verdict"] in ("for", "against")] == ["rain, day"]
    assert all(row["expected"] <= 1 for row in rows.values() if not math.isnan(row["expected"]))


def test_an_empty_cell_is_unknown_and_is_not_zero():
    counts = {
        (x, y): (18, 2)
        for x, y in product(("fog", "rain", "snow"), ("day", "dusk", "night"))
        if (x, y) != ("snow", "night")
    }
    rows = by_name(scored(counts))
    empty = rows["snow, night"]
    assert (empty["n"], empty["verdict"]) == (0, "undetermined")
    for name in ("accuracy", "accuracy_low", "phi", "phi_low", "interaction", "interaction_low", "p_value", "q_value"):
        assert math.isnan(empty[name])
    table = np.array(
        [
            [rows[f"{x}, {y}"][k] for y in ("day", "dusk", "night")]
            for x in ("fog", "rain", "snow")
            for k in ("correct", "n")
        ]
    )
    expected = interactions(crossed(table[0::2], table[1::2]))[0, 0]
    assert rows["fog, day"]["interaction"] == pytest.approx(expected)


def test_all_classifiers_of_an_audit_are_one_family():
    """A gap that is a finding of one classifier is none among those of thirteen."""
    counts = {("rain", "day"): (90, 10), ("rain", "night"): (90, 10), ("snow", "day"): (90, 10)}
    proposals, captions, draws, predictions = labelled_world(counts | {("snow", "night"): (68, 32)})
    others = [
        row | {"classifier": f"c{i}", "predicted_class": "bus"} for row in predictions.to_pylist() for i in range(12)
    ]
    tables = proposals, captions, pa.Table.from_pylist([*predictions.to_pylist(), *others], predictions.schema)
    alone = score_pairs(*tables, PairImages(draws), ["m"], Thresholds(0.05, 0.05)).to_pylist()
    assert [row["verdict"] for row in alone][3] == "against"
    among = score_pairs(
        *tables, PairImages(draws), ["m", *[f"c{i}" for i in range(12)]], Thresholds(0.05, 0.05)
    ).to_pylist()
    assert {row["verdict"] for row in among if row["classifier"] == "m"} == {"undetermined"}


def test_retrieved_images_that_nobody_checked_are_in_doubt_and_generated_ones_rest_on_captions():
    made = RetrievedWorld((2, 2))
    for cell in product(range(2), range(2)):
        made.add(cell, cell, 200, 0.3 if cell == (1, 1) else 0.9)
    rows = made.scores()
    assert {row["verdict"] for row in rows.values()} == {"undetermined"}
    assert all("nobody checked" in row["doubt"] and math.isnan(row["p_value"]) for row in rows.values())
    assert rows["a1", "b1"]["interaction"] == pytest.approx(-0.6, abs=0.1)  # the numbers are there to be seen
    rows = made.scores(source="generate")
    assert (rows["a1", "b1"]["verdict"], rows["a1", "b1"]["basis"]) == ("against", "captions")


def test_images_that_do_not_show_both_values_do_not_count():
    """81 of the 101 images of a cell show both of its values, the others a cell that is worse by far."""
    made = RetrievedWorld((2, 2))
    for cell in product(range(2), range(2)):
        if cell != (1, 1):
            made.add(cell, cell, 400, 0.4 if cell == (1, 0) else 0.95)
    made.add((1, 1), (1, 1), 81, 0.4)
    made.add((1, 1), (0, 1), 20, 0.95)
    row = made.scores(made.verified())["a1", "b1"]
    assert (row["n"], row["basis"], row["verdict"]) == (81, "calibrated", "undetermined")
    assert row["shown"] == pytest.approx(0.8, abs=0.03)
    assert row["accuracy"] == pytest.approx(0.4, abs=0.12)
    assert row["interaction_low"] < 0 < row["interaction_high"]


def test_images_that_do_not_show_the_class_do_not_count():
    made = RetrievedWorld((2, 2))
    for cell in product(range(2), range(2)):
        made.add(cell, cell, 200, 0.95)
        made.add(cell, cell, 30 if cell == (1, 1) else 0, 0.0, shows_class=False)
    row = made.scores(made.verified())["a1", "b1"]
    assert row["n"] == 200
    assert row["accuracy"] == pytest.approx(0.95, abs=0.03)
    assert row["verdict"] == "undetermined" or row["verdict"] == "none"


def test_more_images_must_show_the_class_where_nobody_knows_how_often_the_verifier_is_right_on_it():
    made = RetrievedWorld((2, 2))
    for cell in product(range(2), range(2)):
        made.add(cell, cell, 200, 0.95)
        made.add(cell, cell, 60 if cell == (1, 1) else 0, 0.0, shows_class=False)
    assert made.scores(made.verified())["a1", "b1"]["doubt"] is None
    assert made.scores(made.verified(of_class=False))["a1", "b1"]["doubt"] == "only 77% of the images show a bus"


@pytest.mark.parametrize("accepted", [False, True])
def test_the_verifier_s_errors_are_corrected(accepted):
    """Of images said to show a cell up to a quarter show another: uncorrected, a gap of 0.6 looks like one of 0.4."""
    estimates, covered = [], 0
    for seed in range(12):
        made = RetrievedWorld((2, 3), (0.9, 0.85), seed)
        for cell in product(range(2), range(3)):
            for shows in product(range(2), range(3)):
                made.add(cell, shows, 160 if cell == shows else 20, 0.3 if shows == (1, 2) else 0.9, accepted=accepted)
        row = made.scores(made.verified())["a1", "b2"]
        assert row["doubt"] is None
        estimates.append(row["interaction"])
        covered += row["interaction_low"] <= -0.6 <= row["interaction_high"]
    assert np.mean(estimates) == pytest.approx(-0.6, abs=0.04)
    assert covered >= 10


def test_a_cell_in_doubt_is_not_tested_and_predicts_nothing():
    made = RetrievedWorld((3, 3))
    for cell in product(range(3), range(3)):
        if cell == (0, 0):
            made.add(cell, cell, 60, 0.1)
            made.add(cell, (1, 1), 140, 0.9)
        else:
            made.add(cell, cell, 200, 0.9)
    rows = made.scores(made.verified())
    row = rows["a0", "b0"]
    assert (row["verdict"], row["doubt"]) == ("undetermined", "only 30% of the images show both 'a0' and 'b0'")
    assert math.isnan(row["p_value"])
    for name, other in rows.items():
        if name != ("a0", "b0"):
            assert abs(other["interaction"]) < 0.1
            assert other["verdict"] not in ("for", "against")


def test_what_differs_between_captions_is_in_the_interval():
    """Two captions a cell; those of one cell are right on 20 % and 80 % of their images, or on half of them both."""

    def high(*accuracies):
        made = RetrievedWorld((2, 2), captions=2)
        for cell in product(range(2), range(2)):
            for number, accuracy in enumerate(accuracies if cell == (1, 1) else (0.9, 0.9)):
                made.add(cell, cell, 200, accuracy, number=number)
        row = made.scores(source="generate")["a1", "b1"]
        return row["interaction_high"] - row["interaction"]

    assert high(0.2, 0.8) > 1.5 * high(0.5, 0.5)


@pytest.mark.parametrize(("captions", "known"), [(1, False), (2, True)])
def test_a_cell_names_its_captions_and_whether_any_cell_showed_how_they_differ(captions, known):
    made = RetrievedWorld((2, 2), captions=captions)
    for cell in product(range(2), range(2)):
        for number in range(captions):
            made.add(cell, cell, 100, 0.9, number=number)
    row = made.scores(source="generate")["a1", "b1"]
    assert row["captions"] == captions
    assert math.isnan(row["caption_spread"]) != known
