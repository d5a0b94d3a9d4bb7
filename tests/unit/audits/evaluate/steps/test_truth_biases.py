"""Ground truth: differences in accuracy, by counting."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.evaluate.steps.truth import cells, one_spelling, truth_biases

RANDOM = np.random.default_rng(3)
N = 4000


@pytest.fixture(scope="module")
def labels():
    return pa.table(
        {
            "target_class": RANDOM.choice(["bus", "boat"], N),
            "weather": RANDOM.choice(["fog", "rain", "clear"], N),
            "hat": pa.array(RANDOM.choice(["present", "absent"], N).tolist()[:-5] + [None] * 5),
            "rare": ["yes"] * 3 + ["no"] * (N - 3),
        }
    )


def answers(labels, loss):
    """Right in .9 of the images, and in less of a bus in fog."""
    fog = np.array([(c, w) == ("bus", "fog") for c, w in labels.select([0, 1]).to_pandas().itertuples(index=False)])
    return np.random.default_rng(5).random(N) < np.where(fog, 0.9 - loss, 0.9), np.ones(N, bool)


def test_a_planted_bias_is_the_only_one_as_tested(labels):
    found = cells(labels, ["weather", "hat", "rare"], ["bus", "boat"], 10)
    assert ("bus", "hat", "present") in found
    assert ("bus", "hat", "absent") not in found  # would say the same again
    assert not any(cell[1] == "rare" for cell in found)  # three images
    right = {"planted": answers(labels, 0.5), "control": answers(labels, 0.0)}
    table = truth_biases(found, right, 0.05, 0.05, {"weather: fog": "mist"})
    rows = {(r["classifier"], r["target_class"], r["attribute"], r["value"]): r for r in table.to_pylist()}
    biased = {key for key, row in rows.items() if row["tested"]}
    assert biased == {("planted", "bus", "weather", value) for value in ("fog", "rain", "clear")}
    assert rows["planted", "bus", "weather", "fog"]["tested"] == -1
    assert rows["planted", "bus", "weather", "fog"]["wordings"] == ["mist"]
    # An independent count.
    ok, _ = right["planted"]
    held = labels.to_pylist()
    shown = [ok[i] for i, r in enumerate(held) if (r["target_class"], r["weather"]) == ("bus", "rain")]
    other = [ok[i] for i, r in enumerate(held) if r["target_class"] == "bus" and r["weather"] in ("fog", "clear")]
    expected = sum(shown) / len(shown) - sum(other) / len(other)
    assert rows["planted", "bus", "weather", "rain"]["score"] == pytest.approx(expected, abs=1e-9)
    assert rows["planted", "bus", "weather", "rain"]["n"] == len(shown)


def test_images_without_an_answer_count_for_nothing(labels):
    found = cells(labels, ["hat"], ["bus"], 10)
    ok, held = answers(labels, 0.0)
    (shown, _), *_ = found.values()
    held[shown] = False
    table = truth_biases(found, {"one": (ok, held)}, 0.05, 0.05, {})
    row = table.to_pylist()[0]
    assert (row["n"], row["tested"], row["paper"]) == (0, 0, 0)


def test_classes_and_values_have_their_most_frequent_spelling_in_any_order_of_rows():
    rows = pa.table({"target_class": ["BUS", "bus", "bus", None], "weather": ["Fog", "fog", None, "fog"]})
    for table in (rows, rows.take([3, 2, 1, 0])):
        labels = one_spelling(table, ["target_class", "weather"])
        assert set(labels["target_class"].to_pylist()) == {"bus", None}
        assert set(labels["weather"].to_pylist()) == {"fog", None}


def test_copies_of_a_picture_count_once():
    """Ten copies of each of 40 pictures, answered by chance: as 400 images half of the cells would seem biased."""
    random, alarms = np.random.default_rng(8), {True: 0, False: 0}
    pictures = np.repeat(np.arange(40), 10)
    for _ in range(30):
        hats = random.permutation(["yes", "no"] * 20)[pictures]
        labels = pa.table({"target_class": ["bus"] * 400, "hat": hats.tolist()})
        ok = (random.random(40) < 0.6)[pictures]
        for known in (True, False):
            found = cells(labels, ["hat"], ["bus"], 10)
            right = {"one": (ok, np.ones(400, bool))}
            (row,) = truth_biases(found, right, 0.05, 0.05, {}, pictures if known else None).to_pylist()
            alarms[known] += row["tested"] != 0
            assert row["n"] == (20 if known else 200)
            gap = ok[hats == "yes"].mean() - ok[hats == "no"].mean()
            assert row["score"] == pytest.approx(gap)
    assert alarms[True] <= 3
    assert alarms[False] >= 8
