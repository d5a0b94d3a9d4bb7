"""The comparison's view: ordered, worded, and honest about what is not known."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from c2b_ray.audits.c2b.comparison import MOST_ROWS, comparison_page, comparison_view, left_out
from c2b_ray.tables import COMPARISON, COMPARISON_POOLED

NAN = float("nan")


def row(value: str, change: str, difference: float, **values: Any) -> dict[str, Any]:
    numbers = {
        field.name: 0.5 if pa.types.is_floating(field.type) else 0
        for field in COMPARISON
        if field.name not in ("change", "doubt")
    }
    names = {"target_class": "bus", "attribute": "weather", "bias_class": value, "change": change}
    return {**numbers, "n": 20, "difference": difference, **names, **values}


def view(rows: list[dict[str, Any]], classifiers: tuple[str, str] = ("a", "b")) -> Any:
    return comparison_view(
        "Task", classifiers, (pa.Table.from_pylist(rows, COMPARISON), COMPARISON_POOLED.empty_table()), 0.05, 0.05
    )


def test_the_largest_difference_comes_first_and_the_unknown_last() -> None:
    empty = row("hail", "undetermined", NAN, n=0, accuracy_a=NAN, q_value=NAN, unshared=4)
    shown = view([empty, row("fog", "worse", -0.2), row("snow", "worse", -0.6), row("rain", "undetermined", 0.01)])
    worse, better, undetermined = shown.sections
    assert [r.value for r in worse.rows] == ["snow", "fog"]
    assert better.rows == ()
    assert [r.value for r in undetermined.rows] == ["rain", "hail"]
    assert undetermined.rows[1].accuracy_a == undetermined.rows[1].q == "—"
    assert shown.tally == "2 worse, 0 better, 0 the same, 2 undetermined"
    assert shown.left_out == "Left out, counted cell by cell: 4 that only one of the two drew."


def test_what_was_left_out_is_said_only_where_something_was() -> None:
    assert left_out([row("fog", "same", 0.0)]) == ""
    both = left_out([row("fog", "same", 0.0, unshared=1, unanswered=2), row("rain", "same", 0.0, unanswered=3)])
    assert both.endswith("1 that only one of the two drew and 5 that one of them did not answer.")


def test_changes_on_one_caption_a_cell_say_so() -> None:
    one = {"captions": 1, "caption_spread": NAN}
    shown = view([row("fog", "worse", -0.3, **one), row("rain", "undetermined", 0.0, **one)])
    assert [r.caveat for section in shown.sections for r in section.rows] == ["on one caption", ""]
    assert shown.one_caption.startswith("One caption drew the images of each cell")
    assert view([row("fog", "worse", -0.3, captions=2, caption_spread=0.02)]).one_caption == ""
    assert view([row("fog", "worse", -0.3, captions=None, caption_spread=None)]).one_caption == ""


def test_long_lists_are_cut() -> None:
    section = view([row(str(i), "better", 0.3) for i in range(MOST_ROWS + 7)]).sections[1]
    assert (len(section.rows), section.more) == (MOST_ROWS, 7)


def test_places_are_not_named_and_two_of_a_name_are_told_apart() -> None:
    specs = ("onnx:/home/someone/a/net.onnx", "onnx:/home/someone/b/net.onnx")
    shown = view([], specs)
    assert (shown.name_a, shown.name_b) == ("onnx:net.onnx #ae57cc", "onnx:net.onnx #44ec27")
    page = comparison_page("<b>", specs, (COMPARISON.empty_table(), COMPARISON_POOLED.empty_table()), (0.05, 0.05))
    assert "/home/someone" not in page
    assert "<h1>&lt;b&gt;</h1>" in page
    assert page.count("<p>Nothing.</p>") == 3


def test_one_spec_in_two_runs_is_one_name() -> None:
    shown = view([], ("m", "m"))
    assert (shown.name_a, shown.name_b) == ("m", "m")
