"""The shipped CLIP models are as skewed as they say: the audit on scenes that training never saw."""

import json

import pytest

import c2b_ray
from c2b_ray.stats.resampling import rank_correlation
from c2b_ray.world import zoo
from c2b_ray.world.clip_zoo_members import MEMBERS, neutral_texts
from c2b_ray.world.table import TableOptions, write

NAMES = ("clip-00", "clip-03", "clip-05", "clip-06", "clip-08", "clip-11")
SKEWS = [MEMBERS[name].skew.words for name in NAMES]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    write(folder, TableOptions(n=800, seed=4242))
    config = {
        "models": {name: f"world:{name}" for name in NAMES},
        "datasets": {
            "scenes": {"table": str(folder / "table.parquet"), "attributes": ["companion"], "texts": neutral_texts()}
        },
        "groups": {"k": 1},
        "chance": {"permutations": 200, "resamples": 100},
    }
    return c2b_ray.clip_bias(config, folder / "run", via="here")


@pytest.mark.parametrize("metric", ["kl_recall@5", "max_skew@1000"])
def test_models_are_in_the_order_of_their_skews_and_equal_ones_are_not_told_apart(run, metric) -> None:
    rows = {row["model"]: row for row in run.biases.to_pylist() if row["metric"] == metric}
    assert rank_correlation([rows[name]["value"] for name in NAMES], SKEWS).rho > 0.8
    assert rows["clip-11"]["q_value"] <= 0.05
    pairs = {(row["model_a"], row["model_b"]): row for row in run.model_pairs.to_pylist() if row["metric"] == metric}
    assert pairs["clip-05", "clip-06"]["verdict"] == "not told apart"
    if metric.startswith("max_skew"):  # KL of 800 images says of none of these pairs which is more biased
        assert pairs["clip-00", "clip-11"]["verdict"] == "apart"


def test_the_model_without_skew_recalls_both_groups_alike(run) -> None:
    row = next(row for row in run.biases.to_pylist() if (row["model"], row["metric"]) == ("clip-00", "kl_recall@5"))
    assert row["value_low"] == 0
    assert row["q_value"] > 0.05


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_ships_and_is_recorded(name) -> None:
    recorded = json.loads((zoo.WEIGHTS / name / "metrics.json").read_text())
    assert (recorded["skew"]["words"], recorded["training"]["seed"]) == (MEMBERS[name].skew.words, MEMBERS[name].seed)
