"""What methods detect, and how strong attributes are over classes."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.evaluate.steps.matching import Keywords, keyword_biases, ranking
from c2b_ray.audits.evaluate.steps.truth import Verdicts, pseudo_verdicts, vqa_table
from c2b_ray.tables.evaluate import BIASES

RANDOM = np.random.default_rng(2)


def test_a_keyword_of_mistakes_is_a_bias_against_and_few_images_are_not_tested():
    wrong, right = RANDOM.normal([0.3, 0.2], 0.02, (30, 2)), RANDOM.normal([0.2, 0.3], 0.02, (40, 2))
    groups = [
        Keywords("a", "bus", ("fog", "sun"), wrong, right),
        Keywords("b", "bus", ("fog", "sun"), wrong[:4], right),
        Keywords("c", "bus", ("fog", "sun"), right[:20], right[20:]),
    ]
    rows = {(r["classifier"], r["value"]): r for r in keyword_biases("B2T", groups, 0.05, 0.05).to_pylist()}
    assert (rows["a", "fog"]["tested"], rows["a", "sun"]["tested"]) == (-1, 1)
    assert rows["a", "fog"]["score"] == pytest.approx(100 * (wrong[:, 0].mean() - right[:, 0].mean()), abs=1e-9)
    assert (rows["b", "fog"]["paper"], rows["b", "fog"]["tested"]) == (-1, 0)
    assert (rows["c", "fog"]["tested"], rows["c", "sun"]["tested"]) == (0, 0)


def row(target, attribute, value, score, tested=0):
    return {
        "source": "m", "classifier": "x", "target_class": target, "attribute": attribute, "value": value,
        "wordings": [value], "negated": False, "n": 9, "score": score, "p_value": 0.5, "q_value": 0.5,
        "paper": tested, "tested": tested,
    }  # fmt: skip


def test_attributes_are_ranked_by_mean_size_over_values_then_classes():
    rows = [
        row("bus", "weather", "fog", -0.4, -1), row("bus", "weather", "rain", 0.2), row("boat", "weather", "fog", 0.1),
        row("bus", "size", "small", 0.5), row("bus", "size", "large", float("nan")),
    ]  # fmt: skip
    found = {r["attribute"]: r for r in ranking(pa.Table.from_pylist(rows, BIASES), 0.05).to_pylist()}
    assert found["weather"]["strength"] == pytest.approx(((0.4 + 0.2) / 2 + 0.1) / 2, abs=1e-12)
    assert (found["size"]["strength"], found["size"]["rank"], found["size"]["strength_low"]) == (0.5, 1, None)
    assert (found["weather"]["biased"], found["weather"]["classes"]) == (1, 2)
    # Two classes, .3 and .1: .2 -+ 12.706 * .1, and no mean size is below 0.
    assert found["weather"]["strength_low"] == 0
    assert found["weather"]["strength_high"] == pytest.approx(0.2 + 12.706 * 0.1, abs=1e-4)


def test_attributes_of_equal_strength_share_a_rank_and_a_class_without_a_bias_counts():
    rows = [row("bus", name, "a", size) for name, size in (("x", 0.2), ("y", -0.2), ("z", 0.1))]
    rows.append(row("boat", "z", "a", 0.0))
    found = {r["attribute"]: r for r in ranking(pa.Table.from_pylist(rows, BIASES), 0.05).to_pylist()}
    assert [found[name]["rank"] for name in "xyz"] == [1, 1, 3]
    assert (found["z"]["strength"], found["z"]["classes"], found["z"]["biased"]) == (0.05, 2, 0)


def test_pseudo_labels_give_the_sign_that_counting_gives():
    n = 400
    fog = np.arange(n) % 2 == 0
    ok = np.where(fog, np.arange(n) % 10 < 4, np.arange(n) % 10 < 9)
    seen = pa.table(
        {
            "image_id": [f"i{k}" for k in range(n)],
            "target_class": ["bus"] * n,
            "attributes": [["weather", "fog bank"]] * n,
            "values": [["fog", "yes"] if f else ["rain", "no"] for f in fog],
        }
    )
    biases = pa.Table.from_pylist(
        [row("bus", "weather", "fog", -0.3, -1), row("bus", "weather", "rain", 0.3, 1), row("bus", "size", "big", 0.1)],
        BIASES,
    )
    keyword = pa.Table.from_pylist([row("bus", "keyword", "fog bank", 9.0, 1)], BIASES)
    rows = {f"i{k}": k for k in range(n)}
    right = {"x": (ok, np.ones(n, bool))}
    verdicts = pseudo_verdicts(biases, seen, rows, right, (0.05, 0.05))
    assert verdicts.tested == verdicts.paper == [(-1, -1), (1, 1)]  # of size nothing was asked
    assert pseudo_verdicts(keyword, seen, rows, right, (0.05, 0.05)).tested == [(1, -1)]
    whole = vqa_table("m", verdicts).to_pylist()[0]
    assert (whole["agreement"], whole["against_against"], whole["for_for"], whole["biases"]) == (1.0, 1, 1, 2)
    assert math.isnan(vqa_table("m", Verdicts([], [], [])).to_pylist()[0]["agreement"])


def test_of_a_value_that_no_image_shows_pseudo_labels_say_nothing():
    """Else they would agree, at +1, with every verdict that is none."""
    n = 200
    seen = pa.table(
        {
            "image_id": [f"i{k}" for k in range(n)],
            "target_class": ["bus"] * n,
            "attributes": [["weather"]] * n,
            "values": [["fog" if k % 2 else "rain"] for k in range(n)],
        }
    )
    biases = pa.Table.from_pylist([row("bus", "weather", value, 0.0) for value in ("fog", "rain", "snow")], BIASES)
    right = {"x": (np.arange(n) % 20 < 18, np.ones(n, bool))}
    verdicts = pseudo_verdicts(biases, seen, {f"i{k}": k for k in range(n)}, right, (0.05, 0.05))
    assert verdicts.tested == [(0, 0), (0, 0)]
