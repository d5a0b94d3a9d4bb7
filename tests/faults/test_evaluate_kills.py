"""SIGKILL of `c2b evaluate`, again and again: the same command ends with the tables of a run that nobody disturbed."""

import signal

from doomed_builds import ended, forked, run_config, said
from small_configs import EVALUATE

from c2b_ray import load_run

COMMITS = (3, 13, 22, 24)
"""Files that each process puts in place before it dies, a moment before the next: while the ground truth is answered,
in the method's audit, while images are looked at, and between two tables."""


def test_an_evaluation_that_is_killed_again_and_again_has_the_tables_of_an_undisturbed_one(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = forked(run_config, whole, "evaluate", EVALUATE)
    for commits in COMMITS:
        assert ended(forked(run_config, killed, "evaluate", EVALUATE, commits)) == -signal.SIGKILL, said(killed)
    assert ended(undisturbed) == 0, said(whole)
    assert load_run(killed).manifest["status"] == "running"
    assert (killed / "looked").exists()
    assert not (killed / "report.html").exists()
    assert ended(forked(run_config, killed, "evaluate", EVALUATE)) == 0, said(killed)

    a, b = load_run(whole), load_run(killed)
    assert a.agreement.num_rows > 0
    assert a.tables.keys() == b.tables.keys()
    for name, table in a.tables.items():  # as text, for NaN is not equal to itself
        assert repr(b.tables[name].to_pylist()) == repr(table.to_pylist()), name
    assert b.thresholds == a.thresholds
    assert (killed / "report.html").exists()
