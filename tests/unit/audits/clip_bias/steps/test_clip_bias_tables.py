"""Measured biases → tables of transfer, of local with global, of two models, and of gaps; and a bias planted in one
group alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import false_discovery_control, spearmanr

from c2b_ray.audits.clip_bias.steps.measure import (
    DOWNSTREAM,
    PRETRAINING,
    Attribute,
    BiasRow,
    ImageSubset,
    Key,
    MeasuredModels,
    Skew,
    bias_table,
    measure_disparity,
    measure_skew,
    views_of,
    with_q_values,
)
from c2b_ray.audits.clip_bias.steps.relations import gap_table, locality_table, pair_table, quadrant, transfer_table
from c2b_ray.stats.disparity import Chance

MODELS = [f"m{number}" for number in range(7)]


def row(model, key, value):
    return BiasRow(model, key, value, value, value, 100, 0.0, 0.5)


def keys(stage, dataset, view="global", group="all"):
    return [Key(dataset, metric, attribute, view, group, stage) for metric in ("x", "y") for attribute in ("a", "b")]


def test_transfer_is_every_pair_across_attributes_over_models_that_have_both():
    random = np.random.default_rng(0)
    before, after = keys(PRETRAINING, "d"), keys(DOWNSTREAM, "vqa")
    local = [*keys(PRETRAINING, "d", "local", "1"), *keys(DOWNSTREAM, "vqa", "local", "1")]
    rows = [row(model, key, float(random.normal())) for key in [*before, *after, *local] for model in MODELS]
    rows[0] = row(MODELS[0], before[0], math.nan)
    table = transfer_table(rows, MODELS, 0.95, {"vqa": "d"}).to_pylist()
    assert len(table) == 16 + 16
    assert {one["view"] for one in table} == {"global", "group 1"}
    first = table[0]
    assert (first["n_models"], first["models"]) == (6, MODELS[1:])
    values = [[one.value for one in rows if one.key == key][1:] for key in (before[0], after[0])]
    assert first["rho"] == pytest.approx(spearmanr(*values).statistic, abs=1e-12)
    p_values = [one["p_value"] for one in table]
    assert [one["q_value"] for one in table] == pytest.approx(false_discovery_control(p_values), abs=1e-12)


def test_other_datasets_groups_are_not_compared():
    rows = [
        row(m, key, 1.0)
        for m in MODELS
        for key in (*keys(PRETRAINING, "e", "local", "1"), *keys(DOWNSTREAM, "vqa", "local", "1"))
    ]
    assert transfer_table(rows, MODELS, 0.95, {"vqa": "d"}).num_rows == 0


def planted(seed, models=4, images=900, gap=0.3):
    """Scores of models on three groups of images; in the second, and there alone, one value of the attribute fares
    worse, and in the others it fares a little better, so that over all images both fare alike."""
    random = np.random.default_rng(seed)
    group, value = random.integers(0, 3, images), random.integers(0, 2, images)
    attribute = Attribute.of("coin", [["heads", "tails"][one] for one in value])
    shift = np.where(group == 1, -gap, gap / 2) * (value == 1)
    scores = {}
    for number in range(models):
        biased = number % 2 == 0
        hits = (random.random(images) < 0.6 + shift * biased).astype(float)
        scores[f"{'biased' if biased else 'fair'}-{number}"] = (hits, np.ones(images))
    return attribute, [np.flatnonzero(group == one) for one in range(3)], scores


def test_a_bias_planted_in_one_group_alone_is_found_there_and_not_over_all_images():
    found, silent, false, all_found = 0, 0, 0, 0
    for seed in range(5):
        attribute, groups, scores = planted(seed)
        measured = MeasuredModels()
        for view in views_of(900, groups):
            key = Key("d", "kl_recall@5", "coin", view.view, view.group, PRETRAINING)
            measure_disparity(measured, key, scores, (attribute, view), Chance(500, 50, seed))
        rows = with_q_values(measured.biases)
        biased = [one for one in rows if one.model.startswith("biased")]
        found += all(one.q_value <= 0.05 for one in biased if one.key.group == "2")
        silent += sum(one.value_low == 0 for one in biased if one.key.view == "global")
        false += sum(one.q_value <= 0.05 for one in rows if one.model.startswith("fair"))
        all_found += sum(one.q_value <= 0.05 for one in rows)
    assert found >= 4
    assert silent >= 9  # of 10
    assert false <= 0.15 * all_found  # a false discovery rate of .05, in five runs


def test_copies_of_a_picture_are_one_picture_s_evidence():
    """Ten copies of each of 40 pictures, recalled by chance: as 400 images most of them would seem biased."""
    copies, alarms = np.repeat(np.arange(40) * 10, 10), {True: 0, False: 0}
    for seed in range(30):
        random = np.random.default_rng([seed, 5])
        attribute = Attribute.of("coin", np.repeat(random.permutation(["heads", "tails"] * 20), 10).tolist())
        hits = {"m": (np.repeat((random.random(40) < 0.5).astype(float), 10), np.ones(400))}
        rows = []
        for known in (True, False):
            measured, key = MeasuredModels(), Key("d", "kl_recall@5", "coin", "global", "all", PRETRAINING)
            at = attribute, views_of(400, [])[0]
            measure_disparity(measured, key, hits, at, Chance(200, 20), copies if known else None)
            rows += measured.biases
            alarms[known] += measured.biases[0].p_value <= 0.05
        assert rows[0].value == pytest.approx(rows[1].value)
    assert alarms[True] <= 5
    assert alarms[False] >= 10


def test_two_models_of_one_bias_are_not_told_apart_and_two_of_different_ones_are():
    random = np.random.default_rng(3)
    attribute = Attribute.of("coin", ["heads", "tails"] * 400)
    tails = attribute.codes == 1
    gaps = {"none": 0.0, "one": 0.25, "other": 0.25}
    scores = {m: ((random.random(800) < 0.7 - gap * tails).astype(float), np.ones(800)) for m, gap in gaps.items()}
    measured = MeasuredModels()
    key = Key("d", "kl_recall@5", "coin", "global", "all", PRETRAINING)
    measure_disparity(measured, key, scores, (attribute, views_of(800, [])[0]), Chance(200, 200))
    verdicts = {
        (one["model_a"], one["model_b"]): one["verdict"] for one in pair_table(measured.biases, 0.05, 0.0).to_pylist()
    }
    assert verdicts == {("none", "one"): "apart", ("none", "other"): "apart", ("one", "other"): "not told apart"}


def test_two_models_are_compared_by_lic_through_its_intervals():
    key = Key("captions", "lic", "coin", "global", "all", DOWNSTREAM)
    limits = {"low": (0.01, -0.04, 0.06), "near": (0.03, -0.02, 0.08), "high": (0.4, 0.35, 0.45)}
    unknown = BiasRow("none", key, *(float("nan"),) * 3, 0, 0.0, float("nan"))
    rows = [BiasRow(model, key, *of, 100, 0.0, 0.5) for model, of in limits.items()]
    pairs = {(row["model_a"], row["model_b"]): row for row in pair_table([*rows, unknown], 0.05, 0.05).to_pylist()}
    verdicts = {models: row["verdict"] for models, row in pairs.items()}
    assert verdicts == {("low", "near"): "not told apart", ("low", "high"): "apart", ("near", "high"): "apart"}
    reach = 0.05 * 2**0.5  # MOVER of two half-widths of .05
    assert pairs["low", "high"]["difference_low"] == pytest.approx(-0.39 - reach)
    assert pairs["low", "high"]["difference_high"] == pytest.approx(-0.39 + reach)


def test_gaps_and_quadrants():
    measured = MeasuredModels()
    attribute = Attribute.of("coin", ["heads", "tails"] * 40)
    hits = (attribute.codes == 0).astype(float)
    for stage, name, scores in ((PRETRAINING, "d", hits), (DOWNSTREAM, "vqa", 1 - hits)):
        key = Key(name, "kl_score", "coin", "global", "all", stage)
        at = (attribute, views_of(80, [])[0])
        measure_disparity(measured, key, {"m": (scores, np.ones(80))}, at, Chance(100, 20))
    (gap,) = gap_table(measured.rates).to_pylist()
    assert (gap["pretraining_gap"], gap["downstream_gap"], gap["quadrant"]) == (1.0, -1.0, "IV")
    assert [quadrant(x, y) for x, y in ((1, 1), (-1, 1), (-1, -1), (0, 1))] == ["I", "II", "III", ""]


def test_local_bias_is_correlated_with_the_global_one_of_the_same_metric_and_attribute():
    whole, local = keys(PRETRAINING, "d"), keys(PRETRAINING, "d", "local", "1")
    rows = [row(m, key, float(at)) for key in (*whole, *local) for at, m in enumerate(MODELS)]
    table = locality_table(rows, MODELS, 0.95).to_pylist()
    assert len(table) == 4
    assert all(one["rho"] == pytest.approx(1) for one in table)


def test_spellings_of_one_value_are_one_value():
    attribute = Attribute.of("gender", ["Female", "female", "MALE", None, "female", "male", "male"])
    assert attribute.values == ("female", "male")
    assert attribute.codes.tolist() == [0, 0, 1, -1, 0, 1, 1]


def test_a_value_of_few_images_is_named_beside_its_skew():
    measured = MeasuredModels()
    attribute = Attribute.of("coin", ["heads"] * 60 + ["edge"])
    similar = np.random.default_rng(0).normal(size=(3, 61)).astype(np.float32)
    key = Key("d", "max_skew@6", "coin", "global", "all", PRETRAINING)
    how = (Skew(6, 1.0, "formula"), Chance(100, 50))
    measure_skew(measured, key, {"m": similar}, (attribute, ImageSubset.everything(61)), how)
    assert measured.biases[0].note.endswith("only 1 image has the coin 'edge', so the interval is wide")


def test_the_value_that_leads_for_the_most_texts_is_kept():
    """Three texts: two rank all heads first, one all tails; of two texts that disagree neither is favoured."""
    attribute = Attribute.of("coin", ["heads"] * 20 + ["tails"] * 20)
    heads = np.r_[np.ones(20), np.zeros(20)].astype(np.float32)
    key = Key("d", "max_skew@10", "coin", "global", "all", PRETRAINING)
    how = (Skew(10, 1.0, "formula"), Chance(100, 50))
    measured = MeasuredModels()
    similar = {"m": np.stack([heads, heads, 1 - heads]), "n": np.stack([heads, 1 - heads])}
    measure_skew(measured, key, similar, (attribute, ImageSubset.everything(40)), how)
    leads = [(row["favoured"], row["favoured_texts"], row["texts"]) for row in bias_table(measured.biases).to_pylist()]
    assert leads == [("heads", 2, 3), (None, None, 2)]
