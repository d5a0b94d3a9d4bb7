"""SIGKILL of `c2b failures`, again and again: the same command ends with the tables of a run that nobody disturbed."""

import signal

from doomed_builds import ended, forked, said
from doomed_failures import find

from c2b_ray import load_run

COMMITS = (1, 5, 3, 7)
"""Files that each process puts in place before it dies, a moment before the next."""


def rounds_of(run):
    return run.rounds.drop_columns("seconds").sort_by("round_id")


def test_a_run_whose_driver_is_killed_again_and_again_has_the_tables_of_an_undisturbed_one(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = forked(find, whole)
    for commits in COMMITS:
        assert ended(forked(find, killed, commits)) == -signal.SIGKILL, said(killed)
    assert ended(undisturbed) == 0, said(whole)
    assert load_run(killed).manifest["status"] == "running"
    assert ended(forked(find, killed)) == 0, said(killed)

    a, b = load_run(whole), load_run(killed)
    assert a.hypotheses.num_rows > 0
    assert b.hypotheses.equals(a.hypotheses)
    assert b.candidates.equals(a.candidates)
    assert rounds_of(b).equals(rounds_of(a))
    assert b.manifest["spent"] == a.manifest["spent"]
