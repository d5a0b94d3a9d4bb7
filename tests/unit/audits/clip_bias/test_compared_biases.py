"""Two models' biases: which differ, by samples that both share or not, and what cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from c2b_ray.audits.clip_bias.comparison import Bias, compared_biases
from c2b_ray.audits.clip_bias.steps.relations import margin_of
from c2b_ray.stats import kl_from_uniform
from c2b_ray.stats.resampling import SampledEstimate
from c2b_ray.tables.clip_bias import CLIP_BIAS_COMPARISON


def bias(value, n, images, drawn):
    return Bias(value, n, images, SampledEstimate(value, value - 0.1, value + 0.1, drawn))


def key(metric, group="all"):
    return ("people", metric, "gender", "global" if group == "all" else "local", group)


def test_a_difference_in_the_same_samples_is_found_where_independent_ones_would_hide_it():
    random = np.random.default_rng(0)
    common = random.normal(0.5, 0.2, 300)
    a, b = common + random.normal(0, 0.02, 300), common + 0.1 + random.normal(0, 0.02, 300)
    of_a = {key("kl"): bias(0.5, 90, "same", a), key("skew"): bias(0.5, 90, "one", a)}
    of_b = {key("kl"): bias(0.6, 90, "same", b), key("skew"): bias(0.6, 90, "other", b)}
    table = compared_biases(of_a, of_b, 0.05, 0.0)
    assert table.schema.equals(CLIP_BIAS_COMPARISON)
    paired, apart = table.to_pylist()
    assert (paired["metric"], paired["paired"], paired["change"]) == ("kl", True, "worse")
    assert (apart["metric"], apart["paired"], apart["change"]) == ("skew", False, "undetermined")
    assert paired["difference"] == pytest.approx(0.1)
    assert 0 < paired["difference_low"] < 0.1 < paired["difference_high"]
    assert apart["difference_low"] < 0 < apart["difference_high"]
    assert [paired["q_value"], apart["q_value"]] == pytest.approx(
        false_discovery_control([paired["p_value"], apart["p_value"]])
    )
    (back, _) = compared_biases(of_b, of_a, 0.05, 0.0).to_pylist()
    assert (back["change"], back["difference"]) == ("better", pytest.approx(-0.1))


def test_what_one_alone_has_or_has_no_samples_is_not_compared():
    drawn = np.random.default_rng(1).normal(size=50)
    of_a = {
        key("kl"): bias(0.1, 90, "s", drawn), key("lic"): Bias(0.1, 90, "s"), key("dba"): bias(np.nan, 0, "s", drawn),
    }  # fmt: skip
    of_b = {key("kl"): bias(0.1, 90, "s", drawn), key("lic"): Bias(0.4, 90, "s"), key("kl", "1"): Bias(0.2, 9, "t")}
    of_b |= {key("dba"): bias(0.3, 90, "s", drawn)}
    rows = {(row["metric"], row["group"]): row for row in compared_biases(of_a, of_b, 0.05, 0.0).to_pylist()}
    assert rows["kl", "all"]["p_value"] == 1.0  # alike in every sample
    assert rows["lic", "all"]["value_b"] == 0.4
    for name in (("lic", "all"), ("dba", "all"), ("kl", "1")):
        row = rows[name]
        assert (row["difference"], row["p_value"], row["q_value"], row["change"]) == (None, None, None, "undetermined")
    assert (rows["kl", "1"]["value_a"], rows["kl", "1"]["n_a"]) == (None, 0)
    assert rows["dba", "all"]["value_a"] is None


@pytest.mark.parametrize("ratio", [1.01, 1.05, 1.2])
def test_the_margin_of_a_divergence_is_that_of_rates_in_the_same_ratio(ratio):
    margin = np.log(ratio)
    assert margin_of("max_skew@1000", margin) == margin
    assert margin_of("kl_recall@5", margin) == pytest.approx(kl_from_uniform([ratio, 1.0]), rel=0.01)
    assert margin_of("dba", margin) == 0


def test_models_that_differ_by_less_than_the_margin_are_never_called_different_however_many_images():
    drawn = np.random.default_rng(2).normal(0, 1e-5, (2, 300))  # as millions of images would scatter
    for difference, change in ((0.049, "undetermined"), (0.051, "worse"), (-0.051, "better")):
        of_a = {key("max_skew@1000"): bias(0.6, 90, "same", drawn[0])}
        of_b = {key("max_skew@1000"): bias(0.6 + difference, 90, "same", drawn[1])}
        (row,) = compared_biases(of_a, of_b, 0.05, 0.05).to_pylist()
        assert row["change"] == change
