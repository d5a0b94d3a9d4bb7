"""Matching by embeddings that are planted here: paraphrases are near, decoys are not, whatever they are called."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray import stats
from c2b_ray.audits.evaluate.steps.matching import (
    DETECTED_TO_TRUTH,
    TRUTH_TO_DETECTED,
    Rule,
    compared,
    is_presence,
    keyword_wording,
    matches,
    name_similarities,
    wording,
)
from c2b_ray.audits.evaluate.steps.outcomes import (
    Levels,
    agreement_table,
    difference_table,
    outcome_table,
    threshold_table,
)
from c2b_ray.tables.evaluate import BIASES


def bias(source, classifier, text, sign, score=None, negated=False, texts=None):
    return {
        "source": source, "classifier": classifier, "target_class": "bus", "attribute": "a", "value": text,
        "wordings": texts or [text], "negated": negated, "n": 50, "score": 0.3 * sign if score is None else score,
        "p_value": 0.001, "q_value": 0.001, "paper": sign, "tested": sign,
    }  # fmt: skip


def unit(*values):
    vector = np.array(values, float)
    return vector / np.linalg.norm(vector)


VECTORS = {
    "mist": unit(1, 0, 0, 0), "fog": unit(1, 0.2, 0, 0), "fog horn": unit(0, 0, 1, 0), "weather": unit(0.3, 1, 0, 0),
    "night": unit(0, 0, 0, 1), "beard": unit(0, 1, 0, 0.1),
}  # fmt: skip


def table(*rows):
    return pa.Table.from_pylist(list(rows), BIASES)


@pytest.fixture
def one():
    truth = table(
        bias("truth", "x", "mist", -1), bias("truth", "x", "fog horn", 1), bias("truth", "y", "mist", -1),
        bias("truth", "x", "night", 0),
    )  # fmt: skip
    found = table(bias("m", "x", "fog", -1, texts=["weather", "fog"]), bias("m", "x", "night", 1))
    return compared("m", truth, found, VECTORS)


def test_a_difference_of_tau_is_no_bias_whatever_floats_make_of_it():
    """0.95 - 0.9 is 0.04999999999999993 in floats, 0.9 - 0.85 is 0.05000000000000004."""
    truth = table(
        *(bias("truth", "x", "mist", 0, score=score) for score in (0.9 - 0.85, 0.95 - 0.9, 18 / 20 - 16 / 20))
    )
    found = table(bias("m", "x", "fog", 1))
    rows, _, _ = compared("m", truth, found, VECTORS).outcomes(Rule("paper", 0.9, tau=0.05), TRUTH_TO_DETECTED)
    assert rows.tolist() == [2]


def test_a_paraphrase_is_a_hit_and_a_decoy_with_the_same_word_a_miss(one):
    rows, outcomes, _ = one.outcomes(Rule("tested", 0.9), TRUTH_TO_DETECTED)
    assert dict(zip(rows.tolist(), outcomes.tolist(), strict=True)) == {0: 1, 1: 0, 2: 0}  # of y nothing is detected
    rows, outcomes, _ = one.outcomes(Rule("tested", 0.9), DETECTED_TO_TRUTH)
    # Night is detected, and no bias of the ground truth.
    assert dict(zip(rows.tolist(), outcomes.tolist(), strict=True)) == {0: 1, 1: 0}


def test_the_other_direction_is_a_false_hit_and_a_denial_turns_it():
    truth = table(bias("truth", "x", "beard", 1))
    for negated, outcome in ((False, -1), (True, 1)):
        one = compared("m", truth, table(bias("m", "x", "beard", -1, negated=negated)), VECTORS)
        assert one.outcomes(Rule("paper", 0.9), TRUTH_TO_DETECTED)[1].tolist() == [outcome]


def test_tables_hold_what_outcomes_say(one):
    levels = Levels({"set": 0.9, "calibrated": float("nan")}, "nearest", 0.05, 0)
    rows = [row for row in outcome_table([one], levels).to_pylist() if row["rule"] == "tested"]
    assert {row["threshold_kind"] for row in rows} == {"set"}
    assert [row["outcome"] for row in rows] == ["hit", "miss", "miss", "hit", "miss"]
    whole = {
        row["direction"]: row
        for row in agreement_table([one], levels).to_pylist()
        if row["classifier"] == "" and row["rule"] == "tested"
    }
    assert whole[TRUTH_TO_DETECTED]["hit"] == pytest.approx(1 / 3, abs=1e-12)
    assert whole[DETECTED_TO_TRUTH]["hit_minus_false"] == pytest.approx(0.5, abs=1e-12)
    nothing = compared("n", one.truth.table, one.detected.table.slice(0, 0), VECTORS)
    difference = difference_table([one, nothing], levels).to_pylist()[0]
    assert difference["difference"] == pytest.approx(1 / 3, abs=1e-12)
    varied = threshold_table([one], frozenset()).to_pylist()
    # At τ = 0.3 no |score| of 0.3 lies beyond.
    assert {row["biases"] for row in varied if row["tau"] == 0.3} == {0}
    assert {row["biases"] for row in varied if row["tau"] == 0.01 and row["direction"] == TRUTH_TO_DETECTED} == {3}


def test_matches_are_listed_nearest_first_with_the_wordings_that_were(one):
    rows = matches(one, VECTORS, 0.9).to_pylist()
    first = next(row for row in rows if row["truth_wording"] == "mist")
    assert (first["detected_wording"], first["rank"], first["detected_tested"]) == ("fog", 1, -1)
    assert first["similarity"] == pytest.approx(1 / np.sqrt(1.04), abs=1e-9)


def test_the_calibrated_threshold_is_above_what_different_names_reach(one):
    cosines = name_similarities(one.truth.table, VECTORS)
    assert len(cosines) == 3  # mist, fog horn and night
    assert stats.match_threshold(cosines, 0.001) == pytest.approx(cosines.max(), abs=1e-8)
    assert not (cosines >= stats.match_threshold(cosines, 0.001)).any()


def test_one_value_of_two_attributes_matches_by_the_whole_name_alone():
    """Black hair is not a black car, though both are black; a name without an attribute is compared with either."""
    vectors = {
        "black": unit(1, 0, 0, 0), "black hair": unit(1, 1, 0, 0), "black car": unit(1, 0, 1, 0),
        "black hair colour": unit(1, 1.1, 0, 0),
    }  # fmt: skip
    truth = table(bias("truth", "x", "black", -1, texts=["black", "black hair"]))
    for detected, hit in (
        (["black", "black car"], 0), (["black", "black hair colour"], 1), (["black"], 1),
    ):  # fmt: skip
        one = compared("m", truth, table(bias("m", "x", "black", -1, texts=detected)), vectors)
        assert one.outcomes(Rule("tested", 0.9), TRUTH_TO_DETECTED)[1].tolist() == [hit]
        row = matches(one, vectors, 0.0).to_pylist()[0]
        assert row["similarity"] == pytest.approx(one.groups[0].similarity[0, 0], abs=1e-12)
        cosine = float(vectors[row["truth_wording"]] @ vectors[row["detected_wording"]])
        assert cosine == pytest.approx(row["similarity"], abs=1e-12)
    two = table(*[bias("truth", "x", "black", -1, texts=["black", f"black {what}"]) for what in ("hair", "car")])
    assert name_similarities(two, vectors) == pytest.approx([1 / np.sqrt(2)], abs=1e-12)
    three = table(*two.to_pylist(), bias("truth", "x", "black", -1))
    assert sorted(name_similarities(three, vectors)) == pytest.approx([1 / np.sqrt(2), 1, 1], abs=1e-12)


def test_one_truth_under_two_names_and_two_truths_under_one_are_each_counted_once():
    """Of each side as many outcomes as it has biases, whatever matches whatever; an empty side is all misses."""
    truth = table(bias("truth", "x", "mist", -1), bias("truth", "x", "beard", 1))
    named_twice = table(bias("m", "x", "fog", -1), bias("m", "x", "mist", -1))
    one = compared("m", truth, named_twice, VECTORS)
    assert one.outcomes(Rule("tested", 0.9), TRUTH_TO_DETECTED)[1].tolist() == [1, 0]
    assert one.outcomes(Rule("tested", 0.9), DETECTED_TO_TRUTH)[1].tolist() == [1, 1]
    for sides in ((truth, named_twice.slice(0, 0)), (truth.slice(0, 0), named_twice)):
        one = compared("m", *sides, VECTORS)
        assert [
            one.outcomes(Rule("tested", 0.9), direction)[1].tolist()
            for direction in (TRUTH_TO_DETECTED, DETECTED_TO_TRUTH)
        ] in ([[0, 0], []], [[], [0, 0]])
        levels = Levels({"set": 0.9}, "nearest", 0.05, 0)
        empty = [row for row in agreement_table([one], levels).to_pylist() if not row["biases"]]
        assert empty
        assert all(np.isnan(row["hit"]) for row in empty)


@pytest.mark.parametrize(
    ("attribute", "value", "texts", "negated"),
    [
        ("Weather", "Fog", ("fog", "fog weather"), False),
        ("Eyeglasses", "present", ("eyeglasses",), False),
        ("Eyeglasses", "absent", ("eyeglasses",), True),
        ("No_Beard", "present", ("beard",), True),
        ("No_Beard", "-1", ("beard",), False),
        ("companion", "none", ("companion",), True),
        ("beard", "no beard", ("beard", "beard beard"), True),
        ("hat", "without a hat", ("hat", "hat hat"), True),
        ("note", "notable", ("notable", "notable note"), False),
    ],
)
def test_what_is_denied_is_compared_with_its_direction_turned(attribute, value, texts, negated):
    said = wording(attribute, value)
    assert (said.texts, said.negated) == (texts, negated)


def test_names_replace_a_value_or_an_attribute_that_is_there_or_not():
    names = {"weather: fog": "mist", "Eyeglasses": "spectacles"}
    assert wording("weather", "fog", names).texts == ("mist",)
    assert wording("Eyeglasses", "absent", names) == wording("spectacles", "absent")
    assert wording("weather", "rain", names).texts[0] == "rain"
    assert keyword_wording("No dog") == keyword_wording("without any dog")


def test_presence_is_known_by_all_its_values():
    assert is_presence(frozenset({"1", "-1"}))
    assert not is_presence(frozenset({"none", "dog"}))
    assert not is_presence(frozenset())
