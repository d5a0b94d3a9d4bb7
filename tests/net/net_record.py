"""Runs sessions of `c2b` and records what a user can read of them: output, errors, tables, pages, files.

What differs from one run to the next (durations, dates, versions, temporary folders) is replaced by a mark. Numbers of
tables are kept to six significant digits; pictures and other binary files by their digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from net_sessions import Session

VOLATILE_KEYS = re.compile(
    r"^(created|started|finished|began|ended|at|seconds|duration|elapsed|wall|cpu.*|.*_seconds|.*_at|.*_per_second|version|versions"
    r"|host|hostname|pid|machine|python|platform|command|environment|rates|busy|progress|time|times|cores|parts)$"
)
VOLATILE_TEXT = (
    (re.compile(r"\b\d{1,2} [A-Z][a-z]+ \d{4}(?:, \d\d:\d\d UTC)?"), "<date>"),
    (re.compile(r"│ +[\d,.]+ │ +(?:[\d.,]+ to|below) [\d.,]+ │"), "│ <rate> │ <time> │"),
    (re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{64}\b"), "<digest>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|\+00:00| UTC)?)?"), "<date>"),
    (re.compile(r"\b\d[\d,]*(?:\.\d+)?[ \u00a0\u202f]?(?:ms|s|min|h|seconds?|minutes?|hours?)\b"), "<time>"),
    (re.compile(r"│ +<time> │"), "│ <time> │"),
    (re.compile(r"\b\d[\d,]*(?:\.\d+)?(?:/s| images/s| a second)"), "<rate>"),
    (re.compile(r"\b\d[\d,]*(?:\.\d+)? ?(?:[kKMG]i?B|bytes)\b"), "<size>"),
    (re.compile(r"\bv?\d+\.\d+\.\d+(?:\.\w+)*(?:\+\w+)?\b"), "<version>"),
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
)
VOLATILE_COLUMNS = VOLATILE_KEYS
_DIGITS = 6

CHECKOUT = Path(__file__).resolve().parents[2]


def masked(text: str, folder: Path) -> str:
    """Returns `text` without what differs between two runs of the same code."""
    text = text.replace(str(CHECKOUT), "<checkout>").replace(str(folder), "<folder>").replace(folder.name, "<folder>")
    for pattern, mark in VOLATILE_TEXT:
        text = pattern.sub(mark, text)
    return text


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def play(session: Session, folder: Path) -> dict[str, Any]:
    """Runs a session's commands in `folder`, which is emptied first; returns what they print and write."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in session.files.items():
        (folder / name).write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
    result: dict[str, Any] = {"commands": {}, "files": {}}
    with _inside(folder):
        for number, command in enumerate(session.commands):
            status, out, err = _c2b(shlex.split(command))
            result["commands"][f"{number} c2b {command}"] = {
                "status": status,
                "out": masked(out, folder).splitlines(),
                "err": _settled(masked(err, folder)),
            }
    for name in session.folders:
        for path in sorted(p for p in [folder / name, *(folder / name).rglob("*")] if p.is_file()):
            result["files"][str(path.relative_to(folder))] = _file(path, folder)
    return result


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _c2b(arguments: list[str]) -> tuple[int, str, str]:
    from c2b_ray import cli

    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["c2b", *arguments]
    status: Any = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as leaving:
        status = leaving.code or 0
    finally:
        sys.argv = argv
    return (status if isinstance(status, int) else 1), out.getvalue(), err.getvalue()


_PROGRESS = re.compile(r"<time>|<rate>|it/s\]")


def _settled(text: str) -> list[str]:
    """Returns the lines of standard error without progress, whose number of lines depends on the machine's speed."""
    lines = [line.rstrip() for line in text.replace("\r", "\n").splitlines()]
    return [line for line in lines if line and not _PROGRESS.search(line)]


def _file(path: Path, folder: Path) -> Any:
    if path.suffix == ".parquet":
        return _table(pq.read_table(path), folder)
    if path.suffix == ".json":
        return _settled_json(json.loads(path.read_text(encoding="utf-8")), folder)
    if path.suffix == ".html":
        return _page(path.read_text(encoding="utf-8"), folder)
    if path.suffix in {".csv", ".md", ".txt", ".xml", ".yaml", ".jsonl"}:
        return masked(path.read_text(encoding="utf-8"), folder).splitlines()
    return digest(path.read_bytes())


def _table(table: pa.Table, folder: Path) -> dict[str, Any]:
    """Returns a table's types and its columns: short scalars as they are, long texts, lists and bytes by digest."""
    result: dict[str, Any] = {"rows": table.num_rows, "types": {f.name: str(f.type) for f in table.schema}}
    columns = {}
    for name in table.column_names:
        if VOLATILE_COLUMNS.match(name):
            continue
        values = [_settled_json(value, folder) for value in table[name].to_pylist()]
        whole = json.dumps(values, ensure_ascii=False)
        columns[name] = values if len(whole) < 4_000 else digest(whole.encode())
    return result | {"columns": columns}


def _settled_json(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {
            masked(str(key), folder): _settled_json(one, folder)
            for key, one in value.items()
            if not VOLATILE_KEYS.match(str(key))
        }
    if isinstance(value, list):
        return [_settled_json(one, folder) for one in value]
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    if isinstance(value, bytes):
        return digest(value)
    if isinstance(value, str):
        return masked(value, folder)
    return value if isinstance(value, (int, bool)) or value is None else masked(str(value), folder)


_NOT_READ = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
_PICTURE = re.compile(r'src="data:([^"]*)"')
_TAG = re.compile(r"<[^>]+>")


def _page(text: str, folder: Path) -> list[str]:
    """Returns the lines that a page's reader sees, and a digest of each of its pictures."""
    text = _NOT_READ.sub("", text)
    text = _PICTURE.sub(lambda found: f">[picture {digest(found[1].encode())}]<x ", text)
    lines = (re.sub(r"\s+", " ", line).strip() for line in html.unescape(_TAG.sub("\n", text)).splitlines())
    return [masked(line, folder) for line in lines if line]
