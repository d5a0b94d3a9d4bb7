"""What stands on top of the page: the map, all findings in one table, what classes share, what to know beforehand."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from audit_configs import audit_config
from run_recipes import Recipe
from score_rows import lines
from synthetic_run import make_run

from c2b_ray import tables
from c2b_ray.audits.c2b.report.findings import found_row
from c2b_ray.audits.c2b.report.overview import (
    found_cells,
    heat,
    overview_article,
    pooled_article,
    pooled_sentence,
    repeated_findings,
    strongest_pooled,
    taken,
)
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.report.ranking import Group, cells_of, ranked, worst_first
from c2b_ray.audits.c2b.report.summary import findings_table
from c2b_ray.audits.c2b.report.undetermined import notes
from c2b_ray.audits.c2b.report.unused import drops
from c2b_ray.storage.run import Run

NAN = math.nan


def row(value: str, phi: float = NAN, verdict: str = "undetermined", **more: Any) -> dict[str, Any]:
    names = {"classifier": "m", "target_class": "bus", "attribute": "weather", "bias_class": value}
    numbers = {"n": 0 if math.isnan(phi) else 50, "correct": 30, "errors": 0, "accuracy": 0.6, "phi": phi}
    limits = {"phi_low": phi - 0.1, "phi_high": phi + 0.1, "accuracy_low": 0.5, "accuracy_high": 0.7}
    return {**names, **numbers, **limits, "verdict": verdict, "paper_verdict": 0, "mistaken": 0, **more}


def groups_of(*rows: dict[str, Any]) -> list[Group]:
    return ranked(pa.Table.from_pylist(list(rows), tables.SCORES))


@pytest.mark.parametrize(
    ("rows", "state", "value"),
    [
        ([row("a", -0.3, "against"), row("b", 0.9)], "against", "a"),  # what is found, before what is larger and open
        ([row("a", -0.2), row("b", 0.01, "none")], "undetermined", "a"),
        ([row("a", -0.2, doubt="its images show no bus"), row("b", 0.01, "none")], "doubt", "a"),
        ([row("a", -0.02, "none"), row("b", 0.01, "none")], "none", ""),
        ([row("a"), row("b")], "empty", ""),
    ],
)
def test_a_place_of_the_map_shows_what_matters_most(rows: list[dict[str, Any]], state: str, value: str) -> None:
    (group,) = groups_of(*rows)
    place = heat(group)
    assert place.shade.split(" ")[0] == state
    assert place.lines == ([value] if value else [])


def test_the_confirmed_score_ranks_before_the_shrunken_and_that_before_the_observed() -> None:
    found = groups_of(
        row("observed", -0.3, "against", attribute="a"),
        row("shrunken", -0.6, "against", attribute="b", phi_shrunken=-0.2),
        row("gone", -0.7, "against", attribute="c", phi_shrunken=-0.5, phi_confirmed=0.4),
        row(
            "again", -0.2, "against", attribute="d", phi_confirmed=-0.5, phi_confirmed_low=-0.6, phi_confirmed_high=-0.4
        ),
    )
    assert [group.attribute for group in worst_first(found)] == ["d", "a", "b", "c"]
    told = found_row(found[0], "m", 0.95, "g")
    assert told is not None
    assert "; on fresh images φ\u00a0−0.50 (−0.60 to −0.40)." in "".join(span.text for span in told.sentence)


@pytest.mark.parametrize(("basis", "said"), [("captions", "on unverified captions"), ("verifier", "verifier’s word")])
def test_a_finding_says_what_it_rests_on_and_how_many_images_were_asked_for(basis: str, said: str) -> None:
    (group,) = groups_of(row("fog", -0.3, "against", basis=basis, wanted=200), row("clear", 0.3))
    told = found_row(group, "m", 0.95, "g")
    assert told is not None
    text = "".join(span.text for span in told.sentence)
    assert said in text
    assert "50 images of 200 asked for" in text


def test_notes_say_the_rule_the_captions_and_what_is_short() -> None:
    cells = cells_of(
        pa.Table.from_pylist(
            [
                row("fog", 0.1, captions=1, wanted=200, basis="captions", images_to_settle=800),
                row("snow", 0.1, captions=5, wanted=50, caption_spread=0.08),
            ],
            tables.SCORES,
        )
    )
    right, undetermined, captions, single, spread, short = notes(audit_config(right="top5"), cells)
    assert "holds 50 images and would need about 800" in undetermined
    assert "8\u202f% (median), at most 8\u202f% (bus, weather)" in spread
    assert "(right: top5)" in right
    assert "1 of 2 cells are what captions drew" in captions
    assert "In 1 of 2 cells one caption had to do" in single
    assert "the emptiest 50 of 200 (bus, weather: fog)" in short


def test_cells_whose_images_are_mostly_left_out_as_copies_say_so() -> None:
    rows = [row("fog", 0.1, repeats=150), row("snow", 0.1, repeats=49)]  # of 50 images each that count
    _, copies = notes(audit_config(), cells_of(pa.Table.from_pylist(rows, tables.SCORES)))
    assert "In 1 of 2 cells most images are left out as near-duplicates" in copies
    assert "in bus, weather: fog 150 are, and 50 count." in copies


def test_findings_on_one_caption_say_so_wherever_they_are_told() -> None:
    """Nothing shows how much captions differ: 44 of 100 audits of unbiased classifiers had a finding where captions
    differ by .05, and 100 where they differ by .15 (bench/null_audits.py)."""
    rows = (row("fog", -0.3, "against", captions=1), row("clear", 0.3, captions=1))
    (group,) = groups_of(*rows)
    told = found_row(group, "m", 0.95, "g")
    assert told is not None
    assert "50 images, on one caption)" in "".join(span.text for span in told.sentence)
    assert findings_table([(group, ())]).rows[0][-2] == "against on one caption"
    assert "a verdict may be about the caption alone" in notes(audit_config(), group.cells)[1]
    (known,) = groups_of(*(one | {"caption_spread": 0.02} for one in rows))
    told = found_row(known, "m", 0.95, "g")
    assert told is not None
    assert "on one caption" not in "".join(span.text for span in told.sentence)


def test_a_value_over_all_classes_says_what_it_repeats_in_each() -> None:
    """A wet road goes with rain: each class's finding stands beneath that of rain."""

    def of_class(name: str, reason: str) -> list[dict[str, Any]]:
        rain = row("rain", -0.3, "against", target_class=name, group=1)
        return [rain, row("wet", -0.1, "against", target_class=name, attribute="road", group=1, group_reason=reason)]

    both = cells_of(pa.Table.from_pylist(of_class("bus", "same") + of_class("tram", "same"), tables.SCORES))
    assert repeated_findings(both) == {("m", "road", "wet"): "weather: rain"}
    alone = row("wet", -0.4, "against", target_class="tram", attribute="road", group=1)
    assert repeated_findings(cells_of(pa.Table.from_pylist([*of_class("bus", "same"), alone], tables.SCORES))) == {}
    over_all = {
        "classifier": "m", "attribute": "road", "bias_class": "wet", "classes": 2, "n": 100, "phi": -0.1,
        "phi_low": -0.2, "phi_high": -0.05, "verdict": "against", "basis": "labels", "captions": None,
        "caption_spread": None,
    }  # fmt: skip
    said = pooled_sentence(over_all, "m", 0.95, repeated_findings(both))
    assert said.endswith("100 images); of each class it says the same as weather: rain.")


def test_a_title_says_of_how_many_findings_a_row_of_the_table_stands() -> None:
    """ "1 of 1" above a line that says "2 findings" seemed to contradict it."""
    (both,) = groups_of(row("fog", -0.3, "against"), row("clear", 0.3, "for"))
    (one,) = groups_of(row("fog", -0.3, "against"), row("clear", 0.3))
    assert findings_table([(both, ())]).title == "Strongest findings (2 in 1 group)"
    assert findings_table([(one, ())]).title == "Strongest findings (1)"


def test_what_one_caption_a_class_shows_over_all_classes_says_so() -> None:
    whole = {"classifier": "m", "attribute": "weather", "bias_class": "fog", "classes": 3, "n": 150, "correct": 90,
             "phi": -0.1, "phi_low": -0.15, "phi_high": -0.05, "verdict": "against", "basis": "captions",
             "captions": 3, "caption_spread": math.nan}  # fmt: skip
    assert "150 images, on unverified captions, on one caption a class)." in pooled_sentence(whole, "m", 0.95)
    assert "on one caption" not in pooled_sentence(whole | {"captions": 15, "caption_spread": 0.02}, "m", 0.95)
    of_labels = whole | {"basis": "labels", "captions": None, "caption_spread": None}
    assert "150 images)." in pooled_sentence(of_labels, "m", 0.95)


def test_accuracy_of_a_class_is_over_its_images_each_counted_once(tmp_path: Path) -> None:
    recipe = Recipe(classifiers=("m",), accuracy={("m", "bus", "snow"): 0.25}, images_per_cell=20, pictures=False)
    run = make_run(tmp_path / "run", recipe)
    doubled = pa.concat_tables([run.draws, run.draws])
    given = taken(run.captions, doubled, run.predictions, {"m"})
    assert given["m"]["bus"].names.total() == 9 * 20
    (article,) = overview_article(ranked(run.scores), {"m": "M"}, given, 0.95, {})
    map_of_m = article.blocks[-1]
    _, accuracy, taken_for, *_ = next(row.cells for row in map_of_m.lines if row.cells[0].text == "bus")
    wrong = 180 - given["m"]["bus"].names["bus"]
    assert accuracy.text == f"{100 * (1 - wrong / 180):.0f}\u202f%"
    assert taken_for.text in ("boat", "umbrella")
    assert taken_for.lines[0].endswith(f"of {wrong} wrong")
    attributes = dict.fromkeys(group.attribute for group in ranked(run.scores))
    assert [column.name for column in map_of_m.columns[3:]] == list(attributes)


def test_findings_of_all_classifiers_share_one_table() -> None:
    found = groups_of(
        row("fog", -0.3, "against", classifier="x"), row("clear", 0.1, "none", classifier="x"),
        row("fog", -0.1, classifier="y"), row("clear", 0.4, "for", classifier="y"),
    )  # fmt: skip
    (details,) = found_cells(found, {"x": "X", "y": "Y"}, {}, "Accuracy")
    (table,) = details.blocks
    assert [column.name for column in table.columns[2:]] == ["X", "Y"]
    assert [[cell.shade.split(" ")[0] for cell in row.cells[2:]] for row in table.rows] == [
        ["none", "for"], ["against", "undetermined"],
    ]  # fmt: skip
    assert [row.data["verdict"] for row in table.rows] == ["none\nfor", "against\nundetermined"]
    seen = lines(details)
    assert seen.index("clear") < seen.index("fog")


def test_one_effect_over_the_classes_is_one_sentence_with_its_classes_beneath() -> None:
    cells = [
        cell
        for target, value, phi in (("bus", "fog_A", -0.1), ("car", "Fog A", -0.2), ("van", "fog a", 0.0))
        for cell in cells_of(pa.Table.from_pylist([row(value, phi, target_class=target)], tables.SCORES))
    ]
    whole = {"classifier": "m", "attribute": "weather", "bias_class": "fog_A", "classes": 3, "n": 150, "correct": 90,
             "phi": -0.1, "phi_low": -0.15, "phi_high": -0.05, "verdict": "against"}  # fmt: skip
    (article,) = pooled_article(pa.Table.from_pylist([whole], tables.POOLED), cells, {"m": "M"}, 0.95)
    line, findings = article.blocks
    (told,) = findings.rows
    assert told.sentence.startswith("Over 3 classes, M does less well when weather is fog_A (φ\u00a0−0.10")
    assert told.beneath == ["car −0.20 ◇, bus −0.10 ◇, van 0.00 ◇"]
    assert "1 finding, 0 clear" in line.text


def test_of_two_values_that_differ_alike_the_one_that_is_worse_leads() -> None:
    rows = [
        {"bias_class": "clear", "phi": 0.5, "verdict": "for"},
        {"bias_class": "fog", "phi": -0.49999999999999994, "verdict": "against"},
        {"bias_class": "day", "phi": 0.6, "verdict": "for"},
    ]
    assert [row["bias_class"] for row in strongest_pooled(rows)] == ["day", "fog", "clear"]


def test_what_does_not_count_is_counted_by_reason(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", Recipe(bad_images=4, rejected=5, shown={}, pictures=False))
    looked = [{"caption_id": "c", "image_id": f"i{n}", "rank": n, "source": "retrieve"} for n in range(7)]
    pool = pa.concat_tables([run.draws, pa.Table.from_pylist(looked, tables.DRAWS)])
    told = drops(run.rejected, pool, run.draws, run.images, cells_of(run.scores))
    numbers = Counter({what: number for number, what, _ in told})
    assert numbers["captions"] == 2
    assert numbers["images that a caption’s search gave"] == 7
    assert numbers["images"] == 4
    assert numbers["near-duplicates of another image of the cell"] == sum(
        score["repeats"]
        for score in run.scores.to_pylist()
        if score["classifier"] == run.scores["classifier"][0].as_py()
    )


def test_names_in_attributes_of_the_page_are_escaped_and_shown(tmp_path: Path) -> None:
    evil = '"><script>alert(1)</script>\u202e'
    accuracy = {("m", evil, "fog"): 0.2, ("n", "bus", "fog"): 0.2}
    recipe = Recipe(
        classes=(evil, "bus"), attributes={"weather": ("fog", "clear")}, classifiers=("m", "n"), accuracy=accuracy,
        images_per_cell=60, pictures=False,
    )  # fmt: skip
    html = Path(write_report(make_run(tmp_path / "run", recipe))).read_text()
    assert html.count("<script") == html.count("</script") == 2  # the page's own, and its data
    assert "\u202e" not in html
    assert 'data-class="&#34;&gt;&lt;script&gt;' in html


def test_the_page_of_many_classifiers_and_cells_stays_small(tmp_path: Path) -> None:
    classifiers = tuple(f"classifier {i}" for i in range(6))
    attributes = {f"attribute {a}": tuple(f"{a}{v}" for v in "abcde") for a in range(5)}
    classes = tuple(f"class {i}" for i in range(10))
    accuracy = {(name, target, f"{a}a"): 0.2 for name in classifiers for target in classes for a in range(5)}
    recipe = Recipe(
        classes=classes, attributes=attributes, classifiers=classifiers, accuracy=accuracy, images_per_cell=15,
        pictures=False,
    )  # fmt: skip
    run: Run = make_run(tmp_path / "run", recipe)
    html = Path(write_report(run)).read_text()
    assert len(html) < 2_500_000
    assert 'class="turn spec"' in html
