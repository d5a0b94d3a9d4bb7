"""RESULTS.md is what results.csv gives, its commands name files that exist, and no bench is left that nothing names."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "bench"


@pytest.fixture(scope="module")
def results():
    spec = importlib.util.spec_from_file_location("bench_results", BENCH / "results.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their annotations up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_page_is_what_the_table_gives(results):
    assert results.PAGE.read_text(encoding="utf-8") == results.page(results.read_table()), "python bench/results.py"


def test_no_measurement_has_two_rows(results):
    whats = [row.what for row in results.read_table()]
    assert sorted({what for what in whats if whats.count(what) > 1}) == []


def test_files_that_commands_name_exist(results):
    named = {
        path
        for row in results.read_table()
        for path in re.findall(r"\b(?:bench|tests|docs|k8s)/[\w/.]+\w", row.command)
    }
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_options_that_commands_give_a_bench_are_options_of_it(results):
    given = {
        (name, option)
        for row in results.read_table()
        for name, rest in re.findall(r"python (bench/\w+\.py)([^`;]*)", row.command)
        for option in re.findall(r"--[a-z][\w-]*", rest)
    }
    texts = {bench.stem: bench.read_text(encoding="utf-8") for bench in BENCH.glob("*.py")}
    sources = {}
    for name in {name for name, _ in given}:
        text = texts[Path(name).stem]
        imported = [other for other in texts if re.search(rf"^(from|import) {other}\b", text, re.MULTILINE)]
        sources[name] = "\n".join([text, *(texts[other] for other in imported)])
    assert len(given) > 50
    assert (
        sorted(
            (name, option)
            for name, option in given
            if f'"{option}"' not in sources[name] and f'"{option.replace("--no-", "--")}"' not in sources[name]
        )
        == []
    )


def test_every_row_names_a_command_or_says_how_else_its_numbers_came(results):
    """`by hand`: no command prints them; a row of what was not run has none."""
    said = re.compile(r"`|by hand|kept outside the project")
    assert [
        row.what for row in results.read_table() if not said.search(row.command) and "not run" not in row.reached
    ] == []


def test_every_bench_is_named_by_a_result_a_document_a_test_or_another_bench():
    listed = subprocess.run(
        ["git", "ls-files", "--", "bench", "docs", "tests", "c2b_ray", "*.md", "pyproject.toml"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    texts = {
        path: (ROOT / path).read_text(encoding="utf-8")
        for path in listed
        if path.endswith((".py", ".md", ".csv", ".tsv", ".toml")) and (ROOT / path).is_file()
    }
    unnamed = []
    for bench in sorted(BENCH.glob("*.py")):
        own = f"bench/{bench.name}"
        used = re.compile(rf"\bbench/{bench.stem}\.py\b|^(from|import) {bench.stem}\b", re.MULTILINE)
        if not any(used.search(text) for path, text in texts.items() if path != own):
            unnamed.append(bench.name)
    assert unnamed == []


ROWS = r"""
## Latest

| what | asked | reached | command |
|---|---|---|---|
| false findings, \|φ\| = 0 | ≤ .05 | **.02** | `python bench/size.py` (3 CPU-s), 2 cores, 2026-11-27 |
| old | – | 2 | `python bench/size.py --old`; one H200, 2026-11-28 |
| generated | – | 2 | `python bench/size.py` | 2 cores | 2026-11-27 |
"""


def test_rows_written_by_hand_are_taken_in(results):
    assert results.rows_by_hand(ROWS) == [
        results.Row(
            "Latest",
            "false findings, |φ| = 0",
            "≤ .05",
            "**.02**",
            "`python bench/size.py` (3 CPU-s)",
            "2 cores",
            "2026-11-27",
        ),
        results.Row("Latest", "old", "–", "2", "`python bench/size.py --old`", "H200", "2026-11-28"),
    ]


def test_a_measurement_that_is_repeated_replaces_its_row(results):
    old = results.Row("Audits", "old", "–", "1", "`python bench/size.py`", "2 cores", "2026-11-26")
    assert [(row.section, row.reached) for row in results.joined([old], results.rows_by_hand(ROWS))] == [
        ("Audits", "2"),
        ("Latest", "**.02**"),
    ]


def test_a_row_without_a_date_is_refused(results):
    with pytest.raises(ValueError, match="'speed' names no date"):
        results.rows_by_hand("| speed | – | 2 | `python bench/size.py` |")
