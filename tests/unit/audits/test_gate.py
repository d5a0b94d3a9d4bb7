import math

import numpy as np
import pytest

from c2b_ray.audits.gate import EVERY_CELL, GateCell, cells_of, check, failed
from c2b_ray.errors import ConfigError

NAN = math.nan


def row(name, classifier="m", n=20, **values):
    target, attribute, value = name.split("/", 2)
    return {
        "classifier": classifier,
        "target_class": target,
        "attribute": attribute,
        "bias_class": value,
        "n": n,
    } | values


SCORES = cells_of(
    [
        row("bus/weather/fog", phi=-0.4, accuracy=0.5, verdict="against"),
        row("bus/weather/rain", phi=0.2, accuracy=0.9, verdict="undetermined"),
        row("boat/weather/fog", phi=0.16, accuracy=0.8, verdict="for"),
        row("boat/size/a/b [x]", phi=-0.16, accuracy=0.8, verdict="none"),
        row("boat/size/huge", n=0, phi=NAN, accuracy=NAN, verdict="undetermined"),
    ]
)
CHANGES = cells_of(
    [
        row("bus/weather/fog", phi=-0.4, verdict="against", change="worse", difference=-0.3),
        row("bus/weather/rain", phi=0.4, verdict="for", change="undetermined", difference=0.0),
    ]
)


def outcomes(gate, cells=SCORES):
    return {c.cell: c.outcome for c in check([gate], cells)}


def failing(gate, cells=SCORES):
    return [cell for cell, outcome in outcomes(gate, cells).items() if outcome == "failed"]


@pytest.mark.parametrize(
    ("gate", "cells"),
    [
        ("phi>0.15", ["bus/weather/rain", "boat/weather/fog"]),
        ("|phi|>0.15", ["bus/weather/fog", "bus/weather/rain", "boat/weather/fog", "boat/size/a/b [x]"]),
        ("phi >= 0.2", ["bus/weather/rain"]),
        ("phi > 0.2", []),
        ("phi<-0.16", ["bus/weather/fog"]),
        ("phi<=−0.16", ["bus/weather/fog", "boat/size/a/b [x]"]),
        ("against", ["bus/weather/fog"]),
        ("none", ["boat/size/a/b [x]"]),
        ("undetermined", ["bus/weather/rain"]),
        ("bus/weather/fog:phi<-0.2", ["bus/weather/fog"]),
        ("bus/weather/fog : accuracy < 5e-1", []),
        ("boat/size/a/b [x]:none", ["boat/size/a/b [x]"]),
        ("*/weather/fog:|phi|>0.1", ["bus/weather/fog", "boat/weather/fog"]),
        ("boat/*[x]:phi<0", ["boat/size/a/b [x]"]),
    ],
)
def test_a_gate_fails_where_its_condition_holds(gate, cells):
    assert failing(gate) == cells


def test_a_named_cell_alone_is_looked_at():
    assert outcomes("bus/weather/rain:against") == {"bus/weather/rain": "passed"}
    assert len(outcomes("against")) == 5


FIELDS_OF_CHECK = ("gate", "classifier", "cell", "outcome", "message", "evidence")


def test_a_cell_without_images_is_skipped_and_a_gate_that_checked_nothing_fails():
    skipped, nothing = check(["boat/size/huge:phi<0.5"], SCORES)
    assert skipped.outcome == "skipped"
    assert "not known" in skipped.message
    assert (nothing.outcome, nothing.cell) == ("failed", EVERY_CELL)
    assert nothing.message.endswith("; --allow-undetermined lets that pass")
    assert nothing.worded("request").message.endswith("; allow_unchecked lets that pass")
    assert nothing.worded("request").to_json().keys() == skipped.to_json().keys() == set(FIELDS_OF_CHECK)
    (alone,) = check(["boat/size/huge:phi<0.5"], SCORES, allow_unchecked=True)
    assert not failed([alone])
    assert outcomes("undetermined")["boat/size/huge"] == "skipped"


def test_a_verdict_in_doubt_is_skipped_unless_the_gate_is_about_that():
    row = {"classifier": "m", "target_class": "bus", "attribute": "a", "bias_class": "x", "n": 9, "doubt": "impure"}
    cells = cells_of([{**row, "verdict": "undetermined"}])
    assert [one.outcome for one in check(["against"], cells)] == ["skipped", "failed"]
    assert [one.outcome for one in check(["undetermined"], cells)] == ["failed"]


def test_all_classes_together_are_a_cell():
    row = {"classifier": "m", "attribute": "weather", "bias_class": "fog", "n": 90, "verdict": "against"}
    assert [one.cell for one in check(["*/weather/fog:against"], cells_of([row]))] == ["all classes/weather/fog"]


def test_changes_are_gated_in_a_comparison():
    assert failing("worse", CHANGES) == ["bus/weather/fog"]
    assert failing("undetermined", CHANGES) == ["bus/weather/rain"]
    assert failing("for", CHANGES) == ["bus/weather/rain"]
    assert failing("difference<-0.1", CHANGES) == ["bus/weather/fog"]


def test_a_check_says_what_it_found():
    (found,) = check(["bus/weather/fog:phi<-0.2"], SCORES)
    assert (found.gate, found.classifier, found.message) == ("bus/weather/fog:phi<-0.2", "m", "phi is -0.4")
    assert found.evidence == "accuracy 0.5, phi -0.4, n 20"
    assert failed([found])


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ("bus/wether/fog:against", "did you mean 'bus/weather/fog'"),
        ("tram/*:against", "no cell 'tram/*'"),
        ("agianst", "did you mean 'against'"),
        ("worse", "c2b compare"),
        ("accuracies>0.1", "no measure 'accuracies' here; did you mean 'accuracy'"),
        ("verdict>0.1", "no measure 'verdict'"),
        ("phi>high", "'high' is not a number"),
        ("phi>nan", "'nan' is not a number"),
        ("|phi>0.1", "neither a word nor a comparison"),
        ("", "neither a word"),
        ("bus/weather/fog:", "neither a word"),
    ],
)
def test_a_gate_that_cannot_be_is_bad_input(gate, words):
    with pytest.raises(ConfigError, match=words.replace("*", r"\*")):
        check([gate], SCORES)


def test_a_verdict_of_one_run_is_no_change_between_two():
    cells = cells_of([{"attribute": "weather", "bias_class": "fog", "target_class": "bus", "n": 9, "change": "worse"}])
    with pytest.raises(ConfigError, match="use c2b gate"):
        check(["for"], cells)


def test_a_word_that_a_run_has_no_column_for_is_answered_with_what_it_has() -> None:
    cells = [GateCell("clip", "people/max_skew@10/woman", {"value": 0.1, "value_low": 0.0, "value_high": 0.2})]
    with pytest.raises(ConfigError, match=r"no cell with 'against'; it has value>0.1, value_low>0.1, value_high>0.1"):
        check(["against"], cells)


def test_counts_have_all_their_digits() -> None:
    cells = [GateCell("m", "bus/bus/a bus", {"draws": 250_001, "n": 12_345, "rate": 0.123456})]
    [of_draws] = check(["draws>250000"], cells)
    assert (of_draws.outcome, of_draws.message) == ("failed", "draws is 250001")
    assert of_draws.evidence == "rate 0.1235, n 12345"
    assert check(["rate>0.1"], cells)[0].message == "rate is 0.1235"


def test_a_gate_on_verdicts_that_are_all_undetermined_fails_and_says_how_many_images_decide() -> None:
    open_ = [
        {"attribute": "size", "bias_class": name, "n": 20, "verdict": "undetermined", "images_to_settle": needed}
        for name, needed in (("small", 120), ("large", 2_400), ("huge", None))
    ]
    *passed, last = check(["against"], cells_of(open_))
    assert [one.outcome for one in passed] == ["passed"] * 3
    assert (last.outcome, last.cell) == ("failed", "every cell")
    assert "none of 3 cells is decided" in last.message
    assert "120 to 2,400 images" in last.message
    assert [one.outcome for one in check(["against"], cells_of(open_), allow_unchecked=True)] == ["passed"] * 3
    decided = {**open_[0], "verdict": "none"}
    assert [one.outcome for one in check(["against"], cells_of([*open_, decided]))] == ["passed"] * 4
    in_doubt = {**decided, "doubt": "its images show something else"}  # it is skipped, so that nothing is decided
    assert check(["against"], cells_of([*open_, in_doubt]))[-1].outcome == "failed"
    pooled = {**open_[0], "n": 60}  # a value over all classes says not what would settle it
    del pooled["images_to_settle"]
    assert check(["against"], cells_of([*open_, pooled]))[-1].outcome == "failed"
    assert check(["against"], cells_of([*open_, {**pooled, "verdict": "none"}]))[-1].outcome == "passed"
    assert [one.outcome for one in check(["n>100"], cells_of(open_))] == ["passed"] * 3


def test_a_measure_is_a_column_without_anything_but_numbers():
    values = {"verdict": "none", "share": np.float64(0.2), "images": np.int64(7), "unknown": None, "kept": True, "n": 9}
    cells = [GateCell("net", "x", values), GateCell("net", "y", {**values, "share": NAN, "note": "odd"})]
    assert [one.outcome for one in check(["share>0.1"], cells)] == ["failed", "skipped"]
    assert [one.outcome for one in check(["images>7"], cells)] == ["passed", "passed"]
    assert [one.outcome for one in check(["unknown>7"], cells, allow_unchecked=True)] == ["skipped", "skipped"]
    for name in ("verdict", "kept", "note", "absent"):
        with pytest.raises(ConfigError, match=f"no measure '{name}' here"):
            check([f"{name}>0"], cells)


def test_how_many_images_a_cell_has_is_known_of_each_cell() -> None:
    doubted = row("bus/size/small", n=9, phi=0.1, verdict="undetermined", doubt="impure")
    cells = [*SCORES, *cells_of([doubted])]
    assert failing("n<10", cells) == ["boat/size/huge", "bus/size/small"]
    compared = cells_of([row("bus/weather/fog", pairs=0, change="undetermined", difference=NAN)])
    assert failing("pairs<30", compared) == ["bus/weather/fog"]
