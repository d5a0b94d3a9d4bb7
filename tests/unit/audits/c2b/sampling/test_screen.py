import math

import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.sampling.selection import cells_to_draw, in_two_stages, selected
from c2b_ray.audits.c2b.scoring.judge import TOO_FEW
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.steps.cells import GroupName
from c2b_ray.tables import SCORES

_NEEDED = {"doubt": None, "undetermined_because": None, "n": 100, "correct": 90, "accuracy": 0.9}
_NEEDED |= {"phi_low": -0.1, "phi_high": 0.1}


def scores_of(*cells):
    """Each cell: classifier, attribute, value, φ, verdict, and other columns."""
    rows = []
    for classifier, attribute, value, phi, verdict, *more in cells:
        row = {field.name: None if field.nullable else 0 for field in SCORES}
        row |= {"classifier": classifier, "target_class": "bus", "attribute": attribute, "bias_class": value}
        rows.append(row | _NEEDED | {"phi": phi, "verdict": verdict} | (more[0] if more else {}))
    return pa.Table.from_pylist(rows, SCORES)


FIRST = scores_of(
    ("a", "lighting", "day", 0.02, "undetermined"),
    ("a", "lighting", "night", -0.02, "none"),
    ("a", "size", "small", 0.03, "undetermined", {"undetermined_because": TOO_FEW}),
    ("a", "size", "large", -0.03, "undetermined", {"doubt": "they show mugs"}),
    ("b", "lighting", "day", 0.12, "undetermined"),
    ("b", "lighting", "night", -0.12, "undetermined"),
    ("b", "size", "small", math.nan, "undetermined"),
    ("b", "size", "large", 0.0, "none"),
)


def test_an_attribute_is_selected_by_any_value_and_any_classifier():
    assert selected(FIRST, 0.12) == {("bus", "lighting")}
    assert selected(FIRST, 0.13) == set()
    assert selected(FIRST, 0.03) == {("bus", "lighting"), ("bus", "size")}
    small = scores_of(("a", "size", "small", 0.07, "for"))
    assert selected(small, 0.1) == {("bus", "size")}  # a finding below the limit is examined too


def test_a_p_value_selects_where_all_images_are_tested():
    likely = scores_of(
        ("a", "size", "small", 0.06, "undetermined", {"p_value": 0.04}),
        ("a", "size", "large", -0.06, "undetermined", {"p_value": None}),
        ("a", "lighting", "day", 0.02, "undetermined", {"p_value": 0.06}),
    )
    assert selected(likely, 0.08) == set()
    assert selected(likely, 0.08, 0.05) == {("bus", "size")}


def test_all_values_of_a_selected_attribute_draw_fresh_images():
    captions = pa.Table.from_pylist(
        [
            {"target_class": c, "attribute": a, "kind": kind, "proposal_id": f"{c}-{a}", "bias_class": value}
            for c, a, kind, value in [
                ("bus", "lighting", "attribute", "day"),
                ("bus", "lighting", "attribute", "day"),
                ("bus", "lighting", "attribute", "night"),
                ("mug", "lighting", "attribute", "day"),
                ("bus", "lighting", "intersection", "day"),
            ]
        ]
    )
    groups = {GroupName("bus", "lighting")}
    assert cells_to_draw(captions, groups, 300) == {("bus-lighting", "day"): 300, ("bus-lighting", "night"): 300}


def test_only_fresh_images_make_findings_and_the_first_stage_keeps_what_it_shows():
    fresh = scores_of(
        ("a", "lighting", "day", -0.01, "none"),
        ("a", "lighting", "night", 0.01, "none"),
        ("b", "lighting", "day", 0.2, "for"),
        ("b", "lighting", "night", -0.2, "against"),
    )
    groups = {GroupName("bus", "lighting")}
    rows = in_two_stages(FIRST, fresh, groups, 0.1, 300, Thresholds(0.05, 0.05)).to_pylist()
    verdicts = ["none", "none", "undetermined", "undetermined", "for", "against", "undetermined", "none"]
    assert [row["verdict"] for row in rows] == verdicts
    assert [row["phi"] for row in rows[:2]] == [-0.01, 0.01]
    assert "drew no further images" in rows[2]["undetermined_because"]
    assert rows[3]["undetermined_because"] is None  # the doubt says why
    assert rows[6]["detectable"] is None  # without φ nothing is known
    assert all(0.1 < row["detectable"] < 0.3 for row in rows[:6] + rows[7:])


def test_a_source_that_had_no_more_images_makes_the_smallest_score_that_is_found_larger():
    first = scores_of(("a", "size", "small", 0.1, "undetermined"), ("a", "size", "large", -0.1, "undetermined"))
    groups, levels = {GroupName("bus", "size")}, Thresholds(0.05, 0.05)

    def detectable(n):
        reach = math.sqrt(6 / n)  # of an interval
        known = {"n": n, "correct": round(0.9 * n), "phi_low": 0.1 - reach, "phi_high": 0.1 + reach}
        second = scores_of(*(("a", "size", value, 0.1, "undetermined", known) for value in ("small", "large")))
        return in_two_stages(first, second, groups, 0.08, 600, levels)["detectable"][0].as_py()

    assert detectable(600) < detectable(150) - 0.05
    assert detectable(900) == pytest.approx(detectable(600), abs=0.002)  # no more than were planned


def test_captions_that_differ_make_the_smallest_score_that_is_found_larger():
    rows = [("a", "lighting", "day", 0.02, "none"), ("a", "lighting", "night", -0.02, "none")]
    levels = Thresholds(0.05, 0.05)

    def detectable(spread, **more):
        columns = {"captions": 5, "caption_spread": spread, **more}
        first = scores_of(*((*row, columns) for row in rows))
        return [
            row["detectable"] for row in in_two_stages(first, first.slice(0, 0), set(), 0.08, 300, levels).to_pylist()
        ]

    alike, apart, unknown = detectable(0.0), detectable(0.07), detectable(math.nan)
    assert all(large > small + 0.02 for large, small in zip(apart, alike, strict=True))
    assert unknown == alike
    # Where half of the images show something else, accuracies differ by twice as much as was counted.
    assert detectable(0.07, shown=0.5)[0] > apart[0]
