"""Intersections on the page: sentences, matrices, and nothing where none was asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from score_rows import lines, text

from c2b_ray.audits.c2b.exports import scores_json
from c2b_ray.audits.c2b.report.intersections import intersections_section
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.report.summary import summary
from c2b_ray.report.blocks import Details, Findings, FoundRow, Section, Table
from c2b_ray.storage.run import Run
from c2b_ray.tables import INTERSECTIONS

NAN = float("nan")


def row(x: str, y: str, interaction: float = NAN, verdict: str = "undetermined", **more: Any) -> dict[str, Any]:
    numbers = {name: 0.9 for name in INTERSECTIONS.names if INTERSECTIONS.field(name).type == pa.float64()}
    return numbers | {
        "classifier": "m", "target_class": "bus", "attribute": "weather × lighting", "bias_class": f"{x}, {y}",
        "attribute_a": "weather", "attribute_b": "lighting", "value_a": x, "value_b": y,
        "n": 0 if interaction != interaction else 200, "correct": 0, "errors": 0, "accuracy": 0.8 + interaction,
        "phi": interaction, "expected": 0.8, "interaction": interaction, "interaction_low": interaction - 0.1,
        "interaction_high": interaction + 0.1, "verdict": verdict,
    } | more  # fmt: skip


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), INTERSECTIONS)


FOUND = (
    row("snow", "day"),
    row("snow", "night", -0.5, "against"),
    row("rain", "day", 0.0, "none"),
    row("rain", "night", 0.2),
)


def section(*rows: dict[str, Any], names: dict[str, str] | None = None) -> Section:
    (one,) = intersections_section(table(*rows), names or {"m": "m"}, 0.05, 0.95)
    return one


def found(of: Section) -> list[FoundRow]:
    return [row for block in of.blocks if isinstance(block, Findings) for row in block.rows]


def matrices(of: Section) -> list[Table]:
    return [block for details in of.blocks if isinstance(details, Details) for block in details.blocks]


def cells(matrix: Table) -> list[tuple[str, ...]]:
    """Returns text and small lines of each cell of a matrix, without those that are the same for all."""
    rows = [row.cells[1:] for row in matrix.lines]
    return [
        (cell.text, *(text(line) if isinstance(line, tuple) else line for line in cell.lines))
        for row in rows
        for cell in row
    ]


def test_a_finding_is_a_sentence_and_a_cell_of_its_matrix() -> None:
    told = section(*FOUND, names={"m": "the model"})
    assert lines(told)[1].startswith(
        "4 cells of two values at once: 1 finding, 1 clear, 2 undetermined. 1 cell has no image. A finding is a cell"
    )
    (finding,) = found(told)
    said = text(finding.sentence).replace("\u202f", " ").replace("\u00a0", " ")
    assert said == (
        "the model recognises a bus less well when weather is snow and lighting is night than the two alone explain: "
        "30 % right where they would leave 80 % (−0.50, 95 % interval −0.60 to −0.40, 200 images)."
    )
    (matrix,) = matrices(told)
    assert [column.name for column in matrix.columns] == ["weather \\ lighting", "day", "night"]
    assert [row.cells[0].text for row in matrix.lines] == ["snow", "rain"]
    empty, night = cells(matrix)[:2]
    assert empty == ("—", "◇undetermined —", "φ —")
    assert night[1:] == ("▼against −0.50", "−0.60 to −0.40", "φ −0.50")
    assert next(iter(matrix.lines)).cells[1].title == "undetermined, 0 images"


def test_shadows_stand_beneath_their_finding_and_doubts_are_said() -> None:
    lead = row("snow", "night", -0.5, "against", basis="captions")
    shadow = row("snow", "day", 0.0, folded_into="snow, night")
    doubtful = row("rain", "night", 0.2, doubt="only 30% of the images show both 'rain' and 'night'")
    told = section(lead, shadow, row("rain", "day", 0.0, "none"), doubtful)
    (finding,) = found(told)
    assert finding.beneath == (
        "Its shadows, which are as expected once this cell is set aside: “snow, day”.",
        "With two values each, the numbers are the same for all four cells: the likeliest one is named.",
        "This rests on what the captions say: nobody checked that the images show both values.",
    )
    seen = lines(told)
    assert "1 more cell stood out only because of a finding in the same table (see shadows, below)." in seen[1]
    assert "1 cell in doubt: only 30% of the images show both 'rain' and 'night'." in seen
    (matrix,) = matrices(told)
    titles = [cell.title for row in matrix.lines for cell in row.cells[1:]]
    assert sum(title.endswith("; a shadow of snow, night") for title in titles) == 1
    assert sum("; in doubt: only 30%" in title for title in titles) == 1
    marks = [cell[-1] for cell in cells(matrix)]  # for those who cannot hover
    assert sorted(mark for mark in marks if not mark.startswith("φ")) == ["in doubt", "shadow"]


def test_findings_on_one_caption_a_cell_say_so_in_sentence_and_table() -> None:
    one = [{**cell, "basis": "captions", "captions": 1, "caption_spread": NAN} for cell in FOUND]
    told = section(*one)
    (finding,) = found(told)
    assert "200 images, on one caption)." in text(finding.sentence)
    assert [cell[-1] == "on one caption" for cell in cells(*matrices(told))] == [False, True, False, False]
    several = [{**cell, "captions": 5, "caption_spread": 0.02} for cell in FOUND]
    (finding,) = found(section(*several))
    assert "on one caption" not in text(finding.sentence)


def test_matrices_with_findings_come_first() -> None:
    other = [row(x, y, 0.7, target_class="boat") for x in ("a", "b") for y in ("c", "d")]
    told = section(*other, *FOUND)
    assert [text(matrix.caption).split(" ")[0] for matrix in matrices(told)] == ["bus", "boat"]


def test_the_page_and_the_export_hold_them(build_run: Callable[..., Run]) -> None:
    run = build_run(images_per_cell=3, pictures=False, classifiers=("m",))
    write_report(run)
    with open(run.report, encoding="utf-8") as page:
        assert "Intersections" not in page.read()
    run.write("intersections", table(*FOUND, row("<b>", "d", 0.3, target_class="<i>")))
    write_report(run)
    with open(run.report, encoding="utf-8") as page:
        html = page.read()
    assert '<section id="intersections">' in html
    assert "than the two alone explain" in html
    assert html.count('class="matrix"') == 2
    assert '<th scope="row">&lt;b&gt;' in html
    assert "undetermined; besides, 1 finding of two values at once" in html
    exported = json.loads(scores_json(run))["intersections"]
    assert (exported[0]["interaction"], exported[1]["verdict"]) == (None, "against")


def test_the_terminal_and_its_json_name_them(build_run: Callable[..., Run]) -> None:
    run = build_run(images_per_cell=3, pictures=False, classifiers=("m",))
    run.write("intersections", table(*({**cell, "captions": 1, "caption_spread": NAN} for cell in FOUND)))
    told = summary(run)
    assert told.lines[-1].endswith("; besides, 1 finding of two values at once")
    assert any("weather is snow and lighting is night" in line and "on one caption)" in line for line in told.lines)
    (found,) = told.to_json["intersections"]
    assert (found["bias_class"], found["captions"]) == ("snow, night", 1)
