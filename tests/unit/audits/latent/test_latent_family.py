"""Verdicts over a run's problems: the false discovery rate is held, and order within a problem costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.audits.latent.verdicts import with_q_values
from c2b_ray.config.latent import EvidenceConfig

EVIDENCE = EvidenceConfig()  # margin 0.05, level 0.05


def rows(p_values, method="consistent", high=0.09):
    """One problem each, or a list of its directions."""
    return [
        {
            "problem": f"p{number}",
            "method": method,
            "p_value": p,
            "verdict": "found" if p is not None and p <= 0.05 else "nothing found",
            "reason": "more",
            "effect_low": 0.051,
            "effect_high": high,
        }
        for number, each in enumerate(p_values)
        for p in (each if isinstance(each, list) else [each])
    ]


def test_of_many_unbiased_problems_chance_finds_none_and_methods_are_families_of_their_own():
    uniform = np.linspace(0.025, 0.975, 20).tolist()
    decided = with_q_values([*rows(uniform), *rows([0.001], "axes")], EVIDENCE)
    assert [row["verdict"] for row in decided] == ["nothing found"] * 20 + ["found"]
    assert "among 20 directions" in decided[0]["reason"]
    assert decided[-1]["q_value"] == 0.001


def test_later_directions_count_with_the_largest_p_value_before_them():
    decided = with_q_values(rows([[0.02, 0.0001, 0.6], [0.9], None]), EVIDENCE)
    assert [row["q_value"] for row in decided] == [*map(pytest.approx, (0.04, 0.04, 0.8, 0.9)), None]
    assert [row["verdict"] for row in decided[:3]] == ["found", "found", "nothing found"]
    assert with_q_values([], EVIDENCE) == []


def test_what_chance_may_explain_but_an_interval_does_not_exclude_stays_open():
    uniform = np.linspace(0.025, 0.975, 20).tolist()
    first, *others = with_q_values(rows(uniform, high=0.3), EVIDENCE)
    assert (first["verdict"], {row["verdict"] for row in others}) == ("undetermined", {"nothing found"})
    assert "an effect of 0.1 is not excluded" in first["reason"]
    margin_0 = EvidenceConfig(margin=0.0)  # every effect counts: none can be excluded
    assert with_q_values(rows(uniform, high=0.3), margin_0)[0]["verdict"] == "nothing found"
