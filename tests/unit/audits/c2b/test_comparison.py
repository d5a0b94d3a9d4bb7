"""The comparison's view: ordered, worded, and honest about what is not known."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from c2b_ray.audits.c2b.comparison import MOST_ROWS, comparison_page, left_out
from c2b_ray.report.blocks import Page, Table
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


def page(rows: list[dict[str, Any]], classifiers: tuple[str, str] = ("a", "b")) -> Page:
    tables = (pa.Table.from_pylist(rows, COMPARISON), COMPARISON_POOLED.empty_table())
    return comparison_page("Task", classifiers, tables, (0.05, 0.05))


def rows_of(shown: Page) -> list[list[list[Any]]]:
    """Returns the cells of the rows of what got worse, better, and stays undetermined."""
    blocks = [section.blocks[0] for section in shown.sections[:3]]
    return [[row.cells for row in block.lines] if isinstance(block, Table) else [] for block in blocks]


def values_of(rows: list[list[Any]]) -> list[str]:
    return [cells[1].text[1].text for cells in rows]


def test_the_largest_difference_comes_first_and_the_unknown_last() -> None:
    empty = row("hail", "undetermined", NAN, n=0, accuracy_a=NAN, q_value=NAN, unshared=4)
    shown = page([empty, row("fog", "worse", -0.2), row("snow", "worse", -0.6), row("rain", "undetermined", 0.01)])
    worse, better, undetermined = rows_of(shown)
    assert values_of(worse) == ["snow", "fog"]
    assert better == []
    assert values_of(undetermined) == ["rain", "hail"]
    assert [cell.text for cell in undetermined[1]][2] == [cell.text for cell in undetermined[1]][6] == "—"
    tally, scale = (paragraph.text for paragraph in shown.head)
    assert tally == "2 worse, 0 better, 0 the same, 2 undetermined"
    assert scale.endswith("Left out, counted cell by cell: 4 that only one of the two drew.")


def test_what_was_left_out_is_said_only_where_something_was() -> None:
    assert left_out([row("fog", "same", 0.0)]) == ""
    both = left_out([row("fog", "same", 0.0, unshared=1, unanswered=2), row("rain", "same", 0.0, unanswered=3)])
    assert both.endswith("1 that only one of the two drew and 5 that one of them did not answer.")


def test_changes_on_one_caption_a_cell_say_so() -> None:
    one = {"captions": 1, "caption_spread": NAN}
    shown = page([row("fog", "worse", -0.3, **one), row("rain", "undetermined", 0.0, **one)])
    assert [cells[1].lines for rows in rows_of(shown) for cells in rows] == [["on one caption"], []]
    assert "One caption drew the images of each cell" in shown.head[1].text
    for several in ({"captions": 2, "caption_spread": 0.02}, {"captions": None, "caption_spread": None}):
        assert "One caption" not in page([row("fog", "worse", -0.3, **several)]).head[1].text


def test_long_lists_are_cut() -> None:
    better = page([row(str(i), "better", 0.3) for i in range(MOST_ROWS + 7)]).sections[1].blocks[0]
    assert (len(better.rows), better.more) == (MOST_ROWS, "And 7 more, in comparison.parquet.")


def test_places_are_not_named_and_two_of_a_name_are_told_apart() -> None:
    specs = ("onnx:/home/someone/a/net.onnx", "onnx:/home/someone/b/net.onnx")
    shown = page([], specs)
    assert [part[1].text for part in shown.byline] == ["onnx:net.onnx #ae57cc", "onnx:net.onnx #44ec27"]
    html = shown.html()
    assert "/home/someone" not in html
    assert html.count("<p>Nothing.</p>") == 3


def test_one_spec_in_two_runs_is_one_name() -> None:
    assert [part[1].text for part in page([], ("m", "m")).byline] == ["m", "m"]
