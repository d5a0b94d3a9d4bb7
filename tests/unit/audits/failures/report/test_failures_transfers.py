"""The section of a failures page about other images: what was tested there, and what only stands beside the finding."""

from typing import Any

import pyarrow as pa

from c2b_ray.audits.failures.report.captions import answer_lines, on_other_images
from c2b_ray.tables.failures import TRANSFERS

COUNTS = {"draws": 200, "failures": 60, "any_failures": 66, "baseline_draws": 400, "baseline_failures": 8}
RUNS = {"rates": [0.3, 0.32], "baseline_rates": [0.02, 0.04], "p_value": 0.01}


def _row(**fields: Any) -> dict[str, Any]:
    about = {"caption_id": "night", "label": "bus", "target": "boat", "source": "world:renderer", "classifier": "b"}
    return {**about, **COUNTS, "rates": [], "baseline_rates": [], "p_value": None, **fields}


def _shown(*rows: dict[str, Any]) -> tuple[str, list[list[str]]]:
    """Returns the section's sentence, and its table: source, baseline, caption, images and runs."""
    table = pa.Table.from_pylist(list(rows), TRANSFERS)
    [section] = on_other_images(table, {"night": "at night"}, {}, 0.05, ["world:renderer"])
    paragraph, shown = section.blocks
    lines = ([cell if isinstance(cell, str) else cell.text for cell in row] for row in shown.rows)
    return paragraph.text, [[*line[3:6], *row[5].lines] for line, row in zip(lines, shown.rows, strict=True)]


def test_another_classifiers_rate_on_the_findings_own_images_is_no_comparison_on_other_images():
    assert on_other_images(pa.Table.from_pylist([_row()], TRANSFERS), {}, {}, 0.05, ["world:renderer"]) == []
    text, rows = _shown(_row(), _row(source="world:diffusion", **RUNS))
    assert [row[0] for row in rows] == ["world:diffusion"]
    assert text.startswith("1 of 1 comparison show")


def test_what_was_not_tested_has_its_rates_and_is_not_counted_as_a_comparison():
    untested, rows = _shown(_row(source="photos.csv"))
    assert untested == "Rows without p are failures over images, and were not tested."
    assert rows == [["photos.csv", "2.0\u202f%", "30\u202f%", "200 images"]]
    text, rows = _shown(_row(source="photos.csv"), _row(source="world:diffusion", **RUNS))
    assert text.startswith("1 of 1 comparison show")
    assert text.endswith(untested)
    assert [row[-1] for row in rows] == ["200 images, 2 runs", "200 images"]


def test_a_line_has_the_rate_its_interval_the_baseline_and_the_verdict():
    row = {
        "classifier": "a", "caption": "a bus in fog", "target": "house", "failures": 108, "draws": 200,
        "rate_low": 0.4705, "rate_high": 0.608, "baseline_failures": 51, "baseline_draws": 280,
        "verdict": "not_shown", "q_value": 0.0312,
    }  # fmt: skip
    [line, any_failure] = answer_lines([row, {**row, "target": None}])
    assert line == (
        "a on 'a bus in fog': taken for house 108 of 200 (0.47 to 0.61), baseline 51 of 280; not shown (q 0.031)"
    )
    assert "any failure 108" in any_failure
