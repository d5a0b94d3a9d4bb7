"""Gates on runs of `c2b failures`: what fails and what passes; a run without captions is not taken for unchecked."""

from __future__ import annotations

import pytest
from failures_recipes import CRAYFISH, FLY, Recipe
from synthetic_failures import make_run

from c2b_ray.audits.gate import failed
from c2b_ray.audits.runs import check, export
from c2b_ray.errors import ConfigError


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
