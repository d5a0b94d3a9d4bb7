"""Directions of two classifiers: which go together, whose effect is larger, and what cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from c2b_ray.audits.latent.comparison import ComparedSearch, chance_cosine, compared_directions
from c2b_ray.tables.latent import LATENT_COMPARISON

LEVEL = 0.05
KEY = ("weights", "target", "yes", "consistent", ())
REACH = 0.02


def row(rank, direction, effect, verdict="found", **more):
    vector = np.zeros(40)
    for place, value in direction.items():
        vector[place] = value
    about = {"generator": "g", "target": "t", "label": "yes", "method": "consistent", "known": [], "problem": "p"}
    limits = {"effect_low": effect - REACH, "effect_high": effect + REACH}
    return {
        **about, **limits, "rank": rank, "direction": (vector / np.linalg.norm(vector)).tolist(), "effect": effect,
        "verdict": verdict, "name": None, "images_used": 90, "cos_target": 0.0, "reason": None, **more,
    }  # fmt: skip


def told(a, b):
    table = compared_directions({KEY: ComparedSearch(a)}, {KEY: ComparedSearch(b)}, LEVEL)
    assert table.schema.equals(LATENT_COMPARISON)
    return table.to_pylist()


def test_directions_go_together_by_what_they_are_not_by_their_rank():
    a = [row(0, {0: 1}, 0.3), row(1, {1: 1}, 0.2), row(2, {2: 1}, 0.01, "nothing found")]
    b = [row(0, {1: 1, 0: 0.1}, 0.4), row(1, {0: 1}, 0.305), row(2, {3: 1}, 0.02, "nothing found")]
    rows = {(one["rank_a"], one["rank_b"]): one for one in told(a, b)}
    assert {pair: one["change"] for pair, one in rows.items()} == {
        (1, 0): "worse",
        (0, 1): "undetermined",
        (2, 2): "undetermined",
    }
    worse = rows[1, 0]
    assert worse["change"] == "worse"
    assert worse["cosine"] == pytest.approx(1 / np.sqrt(1.01))
    # Both errors added: (0.4 - 0.2) / (2 * 0.02 / 1.96)
    assert worse["p_value"] == pytest.approx(2 * norm.sf(0.2 / (2 * REACH / norm.ppf(0.975))))
    assert (worse["difference_low"], worse["difference_high"]) == pytest.approx((0.16, 0.24))


def test_a_direction_that_the_other_lacks_is_held_against_what_is_left_of_the_other():
    a = [row(0, {0: 1}, 0.02, "nothing found")]
    b = [row(0, {1: 1}, 0.3), row(1, {2: 1}, 0.03, "nothing found")]
    (one,) = told(a, b)
    assert (one["change"], one["rank_a"], one["rank_b"], one["cosine"]) == ("worse", 0, 0, None)
    assert one["note"] == "what moves A most of all that is left stands in"
    (back,) = told(b, a)
    assert back["change"] == "better"
    for one in told([row(0, {0: 1}, 0.3)], [row(0, {1: 1}, 0.3)]):  # others, and both searches ended there
        assert (one["change"], one["p_value"]) == ("undetermined", None)
        assert "let `directions` be more" in one["note"]


def test_what_was_searched_otherwise_is_not_compared():
    axes = np.eye(40)
    of_a, of_b = (ComparedSearch([row(0, {0: 1}, effect)], axes[0], 0.1) for effect in (0.1, 0.5))
    tilted = ComparedSearch(of_b.rows, axes[0] + 0.3 * axes[1], 0.1)
    assert {one["note"] for one in compared_directions({KEY: of_a}, {KEY: tilted}, LEVEL).to_pylist()} == {
        "the target's hyperplanes are 0.29 radians apart, more than their doubt"
    }
    other = (*KEY[:-1], ("hue",))
    assert [one["note"] for one in compared_directions({KEY: of_a}, {other: of_b}, LEVEL).to_pylist()] == [
        "only A was searched so", "only B was searched so",
    ]  # fmt: skip
    silent = row(0, {0: 1}, 0.0, "undetermined") | {"effect": None, "direction": None, "reason": "constant predictions"}
    (one,) = told([silent], [row(0, {0: 1}, 0.3)])
    assert (one["p_value"], one["note"]) == (None, "constant predictions")


def test_random_directions_seldom_pass_for_alike():
    random = np.random.default_rng(0)
    for dimension in (2, 8, 40):
        pairs = random.standard_normal((2, 4000, dimension))
        cosines = np.abs((pairs[0] * pairs[1]).sum(axis=1) / np.linalg.norm(pairs, axis=2).prod(axis=0))
        assert (cosines > chance_cosine(dimension)).mean() == pytest.approx(0.05, abs=0.015)


def test_equal_classifiers_are_seldom_told_apart():
    random = np.random.default_rng(1)
    called = []
    for _ in range(60):
        effects = 0.2 + random.normal(0, REACH / norm.ppf(0.975), (2, 3))
        sides = [[row(k, {k: 1}, effect) for k, effect in enumerate(of)] for of in effects]
        called.append(any(one["change"] in ("worse", "better") for one in told(*sides)))
    assert np.mean(called) <= 0.05
