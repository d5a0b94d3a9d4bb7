"""A random number of each paper's table, made again by its own command."""

from __future__ import annotations

import os
import random

import paper_rows
import pytest

ROWS = {paper: [row for row in paper_rows.rows_of(paper) if row["lane"] == "audits"] for paper in paper_rows.papers()}


@pytest.mark.parametrize("paper", [paper for paper, rows in ROWS.items() if rows])
def test_a_random_row_gives_its_number_again(paper, tmp_path, capsys):
    seed = int(os.environ.get("C2B_PAPERS_SEED", random.randrange(10**6)))
    row = random.Random(seed).choice(ROWS[paper])
    with capsys.disabled():
        print(f"\nC2B_PAPERS_SEED={seed}: {paper}, {row['item']} {row['row']}: {row['quantity']}")
    value = paper_rows.rerun(row, tmp_path / "out")
    assert paper_rows.agrees(row, value), f"{row['run']} gave {value}, the table says {row['here']}"
