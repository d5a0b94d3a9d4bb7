"""Two classifiers compared by their failures, and gates on runs and comparisons."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from failures_recipes import CRAYFISH, FLY, Recipe
from synthetic_failures import make_run

from c2b_ray.audits.failures.comparison import compared_hypotheses
from c2b_ray.audits.gate import GateCell, failed
from c2b_ray.audits.gate import check as gates_checked
from c2b_ray.audits.runs import check, compare, export
from c2b_ray.errors import ConfigError, RunError
from c2b_ray.tables.failures import FAILURES_COMPARISON


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """`both`: a classifier with causes and one without; `old`, `new`: one each; `other`: with another rule."""
    place = tmp_path_factory.mktemp("runs")
    small = {"pictures": False, "verified": False}
    return {
        "both": make_run(
            place / "both",
            Recipe(causes=(FLY, CRAYFISH), classifiers=("sound", "<b>bad</b>"), blind=("sound",), **small),
        ),
        "old": make_run(place / "old", Recipe(causes=(FLY,), classifiers=("old",), blind=("old",), **small)),
        "new": make_run(place / "new", Recipe(causes=(FLY, CRAYFISH), classifiers=("new",), **small)),
        "other": make_run(place / "other", Recipe(causes=(FLY,), classifiers=("m",), config={"rule": "top1"}, **small)),
        "elsewhere": make_run(place / "elsewhere", Recipe(causes=(FLY,), classifiers=("m",), generator="g", **small)),
    }


def test_two_classifiers_of_one_run(runs):
    comparison = compare(runs["both"])
    assert comparison.cells.schema.equals(FAILURES_COMPARISON)
    rows = comparison.cells.to_pylist()
    worse = [row for row in rows if row["change"] == "worse"]
    assert {(row["label"], row["target"]) for row in worse} >= {("fly", "bee"), ("crayfish", "chainlink fence")}
    for row in worse:
        assert row["difference_low"] > 0
        assert row["difference"] == pytest.approx(
            row["failures_b"] / row["draws_b"] - row["failures_a"] / row["draws_a"]
        )
        assert row["ratio_low"] > 1
        assert row["q_value"] <= 0.05
    boat = next(row for row in rows if row["label"] == "boat")  # a baseline, which both share
    assert (boat["target"], boat["verdict_b"], boat["change"]) == (None, "baseline", "undetermined")
    swapped = compare(runs["both"], None, "<b>bad</b>", "sound").cells.to_pylist()
    assert sum(row["change"] == "better" for row in swapped) == len(worse)


def test_two_runs_are_matched_by_caption_and_what_one_alone_tested_is_told(runs, tmp_path):
    comparison = compare(runs["old"], runs["new"])
    alone = [row for row in comparison.cells.to_pylist() if row["difference"] is None]
    assert {row["label"] for row in alone} == {"crayfish"}
    assert {row["verdict_a"] for row in alone} == {None}
    assert failed(comparison.check(["fly/bee/*:worse"]))
    assert failed(comparison.check(["crayfish/*:failure"]))  # a new finding fails a build, though A never tested it
    assert not failed(comparison.check(["fly/bee/*:better"]))
    page = comparison.write(tmp_path / "out")
    written = pq.read_table(tmp_path / "out" / "comparison.parquet")
    assert written["caption"].equals(comparison.cells["caption"])
    assert "of B alone" in Path(page).read_text()


@pytest.mark.parametrize(
    ("a", "b", "error", "words"),
    [
        ("both", "new", ConfigError, "name one"),
        ("old", "other", RunError, "differ in rule"),
        ("old", "elsewhere", RunError, "in common"),
    ],
)
def test_what_cannot_be_compared_is_refused(runs, a, b, error, words):
    with pytest.raises(error, match=words):
        compare(runs[a], runs[b])


def test_the_command_shows_it_and_the_page_runs_nothing(runs, tmp_path, c2b):
    status, out, _ = c2b("compare", runs["both"].path, "--out", tmp_path / "out", "--fail-on", "worse")
    assert status == 1
    assert "Fails more often (" in out
    assert "failed worse" in out
    assert "<b>bad" not in (tmp_path / "out" / "comparison.html").read_text()
    told = json.loads(c2b("compare", runs["both"].path, "--json")[1])
    assert told["changes"]["worse"] > 0


def test_a_finding_without_a_measured_rate_is_not_compared_and_fails_the_gate_on_findings(runs, tmp_path):
    small = {"pictures": False, "verified": False}
    new = make_run(tmp_path / "new", Recipe(causes=(FLY,), classifiers=("new",), unmeasured=("fly",), **small))
    comparison = compare(runs["old"], new)
    assert failed(comparison.check(["fly/bee/*:failure"]))
    assert {one.outcome for one in comparison.check(["fly/bee/*:worse"], allow_unchecked=True)} == {"skipped"}
    flies = [row for row in comparison.cells.to_pylist() if row["target"] == "bee"]
    assert {(row["difference"], row["p_value"], row["change"]) for row in flies} == {(None, None, "undetermined")}
    page = Path(comparison.write(tmp_path / "out")).read_text()
    assert not re.search(r">\s*nan|nan\s*(%|<)", page, re.IGNORECASE)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    recipe = Recipe(causes=(FLY, CRAYFISH), classifiers=("a", "b"), blind=("b",), doubts=("it draws none",))
    return make_run(tmp_path_factory.mktemp("gates") / "run", recipe)


@pytest.mark.parametrize(
    ("gate", "classifier", "fails"),
    [
        ("failure", None, True),
        ("failure", "b", False),
        ("fly/bee/*:failure", None, True),
        ("boat/*:failure", None, False),  # its baseline alone: nothing of it was ever wrong more often
        ("rate>0.03", None, True),
        ("fly/bee/*:rate>0.03", None, False),
        ("boat/*:rate>0.001", None, True),  # a baseline may be too bad by itself
        ("ratio>100000", "a", False),
        ("findings>0", "a", True),
        ("findings>0", "b", False),
        ("findings>50", None, False),
    ],
)
def test_a_gate_fails_where_its_condition_holds_of_a_caption_or_a_baseline(run, gate, classifier, fails):
    assert failed(check(run, [gate], classifier)) == fails


def test_a_verdict_in_doubt_is_skipped(run):
    of = {one.outcome for one in check(run, ["crayfish/chainlink fence/*:failure"], "a", allow_unchecked=True)}
    assert of == {"skipped"}


def test_without_any_caption_the_baselines_are_what_was_checked(tmp_path):
    run = make_run(tmp_path / "run", Recipe(causes=()))
    assert [one.outcome for one in check(run, ["failure"])] == ["passed"]
    with pytest.raises(ConfigError, match="no cell"):
        check(run, ["fly/*:failure"])


def test_a_classifier_is_exported_by_its_name(run):
    assert b"\nb," not in b"\n" + export(run, "csv", "a").replace(b'"', b"")
    with pytest.raises(ConfigError, match="no predictions of 'c'"):
        export(run, "csv", "c")


def test_a_finding_whose_rate_no_image_was_left_to_measure_fails_the_gate_on_findings(tmp_path):
    """Its rate is not a number, which neither passes nor fails a gate on rates."""
    run = make_run(tmp_path / "run", Recipe(causes=(FLY,), unmeasured=("fly",)))
    assert failed(check(run, ["fly/bee/*:failure"]))
    rates = check(run, ["fly/bee/*:rate>0.001"])
    assert [(one.cell, one.outcome) for one in rates if one.outcome != "skipped"] == [("every cell", "failed")]


def test_a_classifier_that_did_not_change_hardly_ever_fails_a_gate_on_changes():
    """30 captions, drawn anew for both runs; a gate on an interval allows for no number of captions."""
    random, failing = np.random.default_rng(3), {"worse": 0, "better": 0, "difference_low>0": 0}
    for _ in range(60):
        rates, draws = random.uniform(0, 0.3, 30), random.integers(20, 400, 30)

        def run(rates=rates, draws=draws):
            unknown = {"q_value": None, "verdict": "failure", "doubts": []}
            keys = [{"label": "a", "target": None, "caption": f"c{i}", "generator": "g"} for i in range(30)]
            counts = zip(keys, random.binomial(draws, rates).tolist(), draws.tolist(), strict=True)
            return [{**key, "failures": f, "draws": n, "rate": f / n, **unknown} for key, f, n in counts]

        rows = compared_hypotheses(run(), run(), 0.05).to_pylist()
        cells = [GateCell("m", row["caption"], {**row, "n": row["draws_b"]}) for row in rows]
        for gate in failing:
            failing[gate] += failed(gates_checked([gate], cells, allow_unchecked=True))
    assert max(failing["worse"], failing["better"]) <= 5  # of 60 at most 3 on average
    assert failing["difference_low>0"] > 5  # so the guide advises against it
