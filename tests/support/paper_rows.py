"""The tables docs/papers/*.csv: their rows, and the number that a row's command gives when it runs again.

    python tests/support/paper_rows.py wiles c2b --lane audits

runs all rows of these papers with this lane and prints their numbers. docs/papers/README.md describes the format.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import math
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs/papers"
COLUMNS = (
    "item", "row", "quantity", "there", "unit", "follows", "here", "command", "where", "why",
    "run", "read", "tolerance", "lane",
)  # fmt: skip
LANES = ("unit", "audits", "dear")
OUT = "OUT"  # in `run` and `read`: a fresh directory
STDOUT = "stdout"
SECONDS = 600
NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)")

Row = dict[str, str]


def papers() -> list[str]:
    return sorted(path.stem for path in DOCS.glob("*.csv"))


def rows_of(paper: str) -> list[Row]:
    """Reads a table. ValueError where the file's columns are not those of the format."""
    with (DOCS / f"{paper}.csv").open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{paper}.csv has the columns {reader.fieldnames}, expected {list(COLUMNS)}")
        return list(reader)


def number_of(text: str) -> float | None:
    return float(text) if NUMBER.fullmatch(text) else None


def tolerance_of(row: Row) -> float:
    """Returns how far a rerun may deviate from `here`: the row's tolerance, else half a unit of its last digit."""
    if row["tolerance"]:
        return float(row["tolerance"])
    mantissa, _, exponent = row["here"].lower().partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def rerun(row: Row, out: Path) -> float:
    """Runs the row's command and returns its number. CalledProcessError where the command fails."""
    said = "".join(_said(command.replace(OUT, str(out))) for command in row["run"].split(" && "))
    value = float(NUMBER.findall(said)[-1]) if row["read"] == STDOUT else read_number(out, row["read"])
    return value * 100 if row["unit"] == "%" and row["read"] != STDOUT else value


def agrees(row: Row, value: float) -> bool:
    here = float(row["here"])
    if math.isnan(here) or math.isinf(here):
        return str(here) == str(value)
    return abs(value - here) <= tolerance_of(row) * (1 + 1e-9)


def _said(command: str) -> str:
    words = shlex.split(command)
    if words[:2] == ["python", "-c"] and len(words) == 3:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(words[2], "<row>", "exec"), {"__name__": "__row__"})
        return said.getvalue()
    start = {"c2b": [sys.executable, "-m", "c2b_ray"], "python": [sys.executable]}[words[0]]
    done = subprocess.run([*start, *words[1:]], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise RuntimeError(f"{command}: exit status {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def read_number(out: Path, where: str) -> float:
    """Reads `FILE?column=value&…#column` (one row of a Parquet or CSV table) or `FILE#/json/pointer`."""
    file, _, fragment = where.partition("#")
    name, _, query = file.partition("?")
    path = out / name
    if path.suffix == ".json":
        return float(_pointed(json.loads(path.read_text(encoding="utf-8")), fragment))
    table = pa.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)
    wanted = dict(parse_qsl(query, keep_blank_values=True))
    hits = [row for row in table.to_pylist() if all(_text(row[name]) == text for name, text in wanted.items())]
    if len(hits) != 1:
        raise LookupError(f"{where}: {len(hits)} rows of {table.num_rows} match; expected one")
    return float(hits[0][unquote(fragment)])


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _pointed(value: Any, pointer: str) -> Any:
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        value = value[int(name)] if isinstance(value, list) else value[name]
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("papers", nargs="*", default=papers())
    parser.add_argument("--lane", choices=LANES, default="audits")
    chosen = parser.parse_args()
    print("| row | here | rerun |\n|---|---|---|")
    for paper in chosen.papers:
        for row in rows_of(paper):
            if row["lane"] == chosen.lane:
                with tempfile.TemporaryDirectory() as directory:
                    value = rerun(row, Path(directory) / "out")
                mark = "" if agrees(row, value) else " DIFFERS"
                name = f"{paper}, {row['item']} {row['row']}: {row['quantity']}"
                print(f"| {name} | {row['here']} | {value:.6g}{mark} |", flush=True)


if __name__ == "__main__":
    main()
