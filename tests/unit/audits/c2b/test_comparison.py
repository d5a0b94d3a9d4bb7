"""The comparison's view: ordered, worded, and honest about what is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

import c2b_ray
from c2b_ray.audits.c2b.comparison import (
    MOST_ROWS,
    compare,
    comparison_page,
    disagreement_pictures,
    left_out,
    to_settle_line,
)
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


def test_the_images_that_would_settle_the_open_cells_are_told() -> None:
    open_rows = [row("fog", "undetermined", 0.1, pairs_to_settle=200), row("snow", "undetermined", NAN, n=0)]
    rows = [*open_rows, row("rain", "worse", -0.2, pairs_to_settle=None)]
    assert to_settle_line(rows) == (
        "1 of 2 undetermined cells has 20 images that both answered, and about 200 would settle it."
    )
    assert to_settle_line([rows[0], row("hail", "undetermined", 0.1, pairs_to_settle=301)]) == (
        "2 undetermined cells have 20 images that both answered, and about 250 would settle one (medians)."
    )
    assert to_settle_line(rows[2:]) == ""
    worse, _, undetermined = rows_of(page(rows))
    assert [len(cells) for cells in (worse[0], undetermined[0])] == [8, 9]
    assert [cells[8].text for cells in undetermined] == ["200", "—"]


def written(folder: Path, name: str, rows: list[str], wrong: set[str]) -> dict[str, Any]:
    """Writes a labelled table and predictions of its pictures, and returns an audit's fields."""
    answers = [
        f"{file},{'bus' if (label == 'bus') != (file in wrong) else 'cat'}" for file, label, _ in map(split, rows)
    ]
    (folder / f"{name}.csv").write_text("\n".join(["image,target_class,weather", *rows]))
    (folder / f"{name}-answers.csv").write_text("\n".join(["image,prediction", *answers]))
    return {
        "task": "Tell what a picture shows.",
        "classes": ["bus", "cat"],
        "classifier": f"table:{folder / f'{name}-answers.csv'}",
        "images": {"source": "labelled", "table": str(folder / f"{name}.csv"), "properties": False},
        "attributes": {"weather": ["sun", "fog"]},
        "check": False,
    }


def split(line: str) -> list[str]:
    return line.split(",")


def test_images_are_paired_by_their_bytes_where_a_table_has_other_rows_since(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(41):
        Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8)).save(tmp_path / f"{number}.png")
    rows = [f"{n}.png,{('bus', 'cat')[n % 2]},{('sun', 'fog')[n // 2 % 2]}" for n in range(40)]
    before = c2b_ray.audit(written(tmp_path, "a", rows, {"0.png"}), out=tmp_path / "run-a", via="here")
    # A row in front is new, one is gone, and one has another label.
    changed = ["40.png,bus,sun", *rows[:5], "5.png,cat,fog", *rows[6:8], *rows[9:]]
    after = c2b_ray.audit(
        written(tmp_path, "b", changed, {"0.png", "2.png", "6.png"}), out=tmp_path / "run-b", via="here"
    )
    for a, b in ((before, after), (after, before)):
        compared = compare(a, b)
        found = {(row["target_class"], row["bias_class"]): row for row in compared.cells.to_pylist()}
        counts = {cell: (row["n"], row["unshared"], row["only_a"] + row["only_b"]) for cell, row in found.items()}
        assert counts == {
            ("bus", "sun"): (9, 2, 0),
            ("bus", "fog"): (10, 0, 2),
            ("cat", "sun"): (9, 1, 0),
            ("cat", "fog"): (10, 1, 0),
        }
    sides = compare(before, after).shared.disagreements([("bus", "weather", "fog")])
    pictures = disagreement_pictures(before, sides)
    assert sorted(pictures.keys[image] for image, _ in sides["bus", "weather", "fog"].only_a) == [
        "2.png",
        "6.png",
    ]
    assert all(image in pictures.thumbnails for image, _ in sides["bus", "weather", "fog"].only_a)
