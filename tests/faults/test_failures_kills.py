"""SIGKILL of `c2b failures`, again and again: the same command ends with the tables of a run that nobody disturbed."""

import signal

from doomed_builds import ended, forked, run_config, said

from c2b_ray import load_run

CONFIG = {
    "labels": ["boat"],
    "classifier": "world:resnet-planted-1",
    "images": {"generate": {"model": "world:renderer"}},
    "captioner": "world:clip",
    "hierarchy": "world",
    "budget": {"draws": 600},
}
COMMITS = (1, 5, 3, 7)
"""Files that each process puts in place before it dies, a moment before the next."""


def rounds_of(run):
    return run.rounds.drop_columns("seconds").sort_by("round_id")


def test_a_run_whose_driver_is_killed_again_and_again_has_the_tables_of_an_undisturbed_one(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = forked(run_config, whole, "failures", CONFIG)
    for commits in COMMITS:
        assert ended(forked(run_config, killed, "failures", CONFIG, commits)) == -signal.SIGKILL, said(killed)
    assert ended(undisturbed) == 0, said(whole)
    assert load_run(killed).manifest["status"] == "running"
    assert ended(forked(run_config, killed, "failures", CONFIG)) == 0, said(killed)

    a, b = load_run(whole), load_run(killed)
    assert a.hypotheses.num_rows > 0
    assert b.hypotheses.equals(a.hypotheses)
    assert b.candidates.equals(a.candidates)
    assert rounds_of(b).equals(rounds_of(a))
    assert b.manifest["spent"] == a.manifest["spent"]
