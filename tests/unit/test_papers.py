"""The tables of what papers print and what is measured here: whole, of one form, naming commands that exist; and a
random row gives its number again."""

from __future__ import annotations

import os
import random

import paper_rows
import pytest

from c2b_ray.cli.commands import app

PAPERS = ("wiles", "c2b", "bgps", "ramos", "li_xu")
WILES = {
    *(f"Table {n}" for n in range(1, 8)), *(f"Figure {n}" for n in range(1, 17)), "Equation 1", "Equation 2",
}  # fmt: skip


def commands():
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    known = {command.name for command in app.registered_commands} | set(groups)
    return known | {
        f"{name} {command.name or command.callback.__name__}"
        for name, group in groups.items()
        for command in group.registered_commands
    }


def test_every_paper_has_its_table():
    assert set(paper_rows.papers()) == set(PAPERS)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_row_has_the_form_that_the_readme_gives(paper):
    known = commands()
    for row in paper_rows.rows_of(paper):
        says = f"{paper}: {row['item']} {row['row']} {row['quantity']}"
        assert None not in row, f"{says}: more fields than columns"
        assert None not in row.values(), f"{says}: fewer fields than columns"
        assert all(row[name] for name in ("item", "quantity", "here", "where", "why")), says
        assert row["command"].removeprefix("c2b ") in known, f"{says}: no command {row['command']}"
        number = paper_rows.number_of(row["here"])
        assert number is not None or row["here"] in ("not measured", "not a number"), f"{says}: here {row['here']}"
        assert row["lane"] in ("", *paper_rows.LANES), says
        if row["lane"]:
            assert number is not None, f"{says}: nothing to rerun"
            assert row["read"], says
            assert all(one.startswith(("c2b ", "python ")) for one in row["run"].split(" && ")), says
        if row["lane"] == "unit":
            assert row["run"].startswith("python -c "), f"{says}: a unit row runs in the tests' own process"


@pytest.mark.parametrize("paper", PAPERS)
def test_a_random_row_of_each_paper_gives_its_number_again(paper, capsys):
    seed = int(os.environ.get("C2B_PAPERS_SEED", random.randrange(10**6)))
    row = random.Random(seed).choice([row for row in paper_rows.rows_of(paper) if row["lane"] == "unit"])
    with capsys.disabled():
        print(f"\nC2B_PAPERS_SEED={seed}: {paper}, {row['item']} {row['row']}: {row['quantity']}")
    value = paper_rows.rerun(row, None)
    assert paper_rows.agrees(row, value), f"{row['run']} gave {value}, the table says {row['here']}"


def test_a_rerun_reads_tables_and_documents(tmp_path):
    (tmp_path / "a.csv").write_text("method,share,note\nc2b,0.25,\nb2t,0.125,x\n")
    (tmp_path / "a.json").write_text('{"a/b": [1, {"c": 2.5}]}')
    assert paper_rows.read_number(tmp_path, "a.csv?method=b2t#share") == 0.125
    assert paper_rows.read_number(tmp_path, "a.json#/a~1b/1/c") == 2.5
    with pytest.raises(LookupError, match="2 rows"):
        paper_rows.read_number(tmp_path, "a.csv#share")


@pytest.mark.parametrize(
    ("here", "value", "agrees"),
    [("0.25", 0.2549, True), ("0.25", 0.2551, False), ("1.08e-5", 1.084e-5, True), ("1.08e-5", 1.09e-5, False),
     ("17", 17.4, True), ("nan", float("nan"), True), ("0", 0.4, True), ("inf", 3.0, False)],
)  # fmt: skip
def test_a_rerun_agrees_within_the_rounding_of_the_table(here, value, agrees):
    assert paper_rows.agrees({"here": here, "tolerance": ""}, value) is agrees


@pytest.fixture(scope="module")
def rows():
    return paper_rows.rows_of("wiles")


def test_every_table_figure_and_equation_has_its_rows(rows):
    assert {row["item"] for row in rows} >= WILES
    assert sum(row["item"] == "Table 3" for row in rows) == 3 * 36


def rounded(printed):
    """The least and the most that a printed number may stand for."""
    half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    return float(printed) - half, float(printed) + half


def test_printed_ratios_are_within_the_rounding_of_the_printed_rates(rows):
    """So that no number was copied wrong."""
    numbers = {(row["item"], row["row"], row["quantity"]): row["there"] for row in rows}
    checked = 0
    for (item, row, quantity), there in numbers.items():
        kind, _, what = quantity.rpartition(", ")
        sides = [numbers.get((item, row, f"{kind}, {name}"), "") for name in ("baseline", "caption")]
        if what == "ratio" and all(sides):
            (low0, high0), (low1, high1), (least, most) = rounded(sides[0]), rounded(sides[1]), rounded(there)
            assert low1 / high0 <= most, row
            assert least <= high1 / low0, row
            checked += 1
    assert checked == 3 + 3 + 2 + 26


def test_c2b_has_every_item_and_its_printed_shares_sum_to_a_hundred():
    rows = paper_rows.rows_of("c2b")
    wanted = {f"Table {n}" for n in range(1, 5)} | {f"Figure {n}" for n in range(1, 7)}
    wanted |= {f"Equation {n}" for n in range(1, 6)} | {f"Appendix {letter}" for letter in "CDFGIJK"} | {"Section 3.5"}
    assert {row["item"] for row in rows} >= wanted
    sums, gaps = {}, {}
    for row in rows:
        what, _, direction = row["quantity"].partition(", ")
        if row["item"] in ("Table 1", "Table 2") and what in ("HIT", "FH", "MISS") and row["there"]:
            key = (row["item"], row["row"], direction)
            sums[key] = sums.get(key, 0.0) + float(row["there"])
            gaps[key] = gaps.get(key, 0.0) + {"HIT": 1, "FH": -1, "MISS": 0}[what] * float(row["there"])
    assert len(sums) == 2 * (3 + 12)
    assert all(abs(total - 100) < 0.025 for total in sums.values())
    said = {(r["item"], r["row"], r["quantity"].partition(", ")[2]): r["follows"] for r in rows if r["follows"]}
    assert {key: f"{gap:.2f}" for key, gap in gaps.items()} == said
