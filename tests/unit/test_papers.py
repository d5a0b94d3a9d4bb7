"""The tables of what papers print and what is measured here: whole, and naming commands that exist."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from c2b_ray.cli.commands import app

DOCS = Path(__file__).parents[2] / "docs/papers"
WILES = {
    *(f"Table {n}" for n in range(1, 8)), *(f"Figure {n}" for n in range(1, 17)), "Equation 1", "Equation 2",
}  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    with (DOCS / "wiles.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_table_figure_and_equation_has_its_rows(rows):
    assert {row["item"] for row in rows} >= WILES
    assert all(None not in row and None not in row.values() for row in rows)
    assert sum(row["item"] == "Table 3" for row in rows) == 3 * 36
    assert all(row["here"] and row["why"] and row["where"] for row in rows)


def test_commands_exist(rows):
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    known = {command.name for command in app.registered_commands} | set(groups)
    known |= {
        f"{name} {command.name or command.callback.__name__}"
        for name, group in groups.items()
        for command in group.registered_commands
    }
    named = {row["command"].removeprefix("c2b ") for row in rows}
    assert named <= known


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
