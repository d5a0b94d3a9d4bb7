"""Encodes many captions and searches the nearest images of each, into Parquet parts, resumable.

It knows files of captions; reading rows, writing and resuming are left to `stage`, and the search to `steps.retrieve`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.sources.files import Location
from c2b_ray.engine.stage import Rows, Runner, StageConfig, StageResult
from c2b_ray.errors import RunError, SourceError
from c2b_ray.roles import ImageIndex, TextImageEncoder
from c2b_ray.steps.retrieve import CaptionSearch, nearest, search
from c2b_ray.storage import files, resolve
from c2b_ray.tables import RETRIEVED, SEARCHES, content_id

MADE_BY = "made_by.json"
COLUMNS = ("caption", "text")
ROWS_AT_ONCE = 4096
SEARCHED_AT_ONCE = 256
RETRIEVE = StageConfig(RETRIEVED, stage="search", rows_per_file=4096)
CONFIG = StageConfig(SEARCHES, stage="search", rows_per_file=8192)


def search_captions(
    runner: Runner,
    captions: Rows,
    finder: Callable[[], CaptionSearch],
    made_by: dict[str, Any],
    out: str,
    on_progress: OnProgress | None = None,
) -> StageResult:
    """Writes the nearest images of every caption (`read_captions`) into parts under `out`.

    `made_by` names what the answers depend on, `k` among it. Raises RunError where `out` was begun with another
    `made_by`.
    """
    files.make_directory(out)
    begun = f"{out}/{MADE_BY}"
    if not files.exists(begun):
        files.write_bytes(begun, json.dumps(made_by).encode())
    elif json.loads(files.read_bytes(begun)) != made_by:
        raise RunError(
            f"{out} holds answers to other captions, or of another index; choose another --out, or delete it"
        )
    step = partial(search, k=int(made_by["k"]))
    config = replace(CONFIG, total=captions.total)
    return runner.run(captions, step, finder, out, id_column="caption_id", config=config, on_progress=on_progress)


def finder_of(encoder: Callable[[], TextImageEncoder], index: Callable[[], ImageIndex]) -> CaptionSearch:
    return CaptionSearch(encoder(), index())


def retrieve(
    runner: Runner,
    searches: pa.Table,
    finder: Callable[[], CaptionSearch],
    k: int,
    out: str,
    on_progress: OnProgress | None = None,
) -> StageResult:
    """Writes the k nearest images of each row of `steps.retrieve.to_retrieve`, as `schemas.RETRIEVED`, under `out`."""
    rows, config = Rows.of(searches, SEARCHED_AT_ONCE), replace(RETRIEVE, total=searches.num_rows)
    step = partial(nearest, k=k)
    return runner.run(rows, step, finder, out, id_column="retrieval_id", config=config, on_progress=on_progress)


def read_captions(source: str) -> Rows:
    """Returns `caption_id`, `row` (0-based) and `caption` of a text file (one caption per line) or Parquet file.

    Raises SourceError where the file has none.
    """
    filesystem, path = resolve(source)
    folder, _, name = path.rpartition("/")
    location = Location(source, filesystem, folder)
    if not name.endswith((".parquet", ".pq", ".txt")):
        raise SourceError(f"{source}: expected captions in a .txt file, one a line, or in a .parquet file")
    try:
        return _of_lines(source) if name.endswith(".txt") else _of_table(location, name)
    except FileNotFoundError as error:
        raise SourceError(f"{source}: no such file") from error
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise SourceError(f"{source}: cannot be read: {error}") from error


def _of_lines(source: str) -> Rows:
    lines = files.read_bytes(source).decode("utf-8-sig").splitlines()
    rows = [(number, line.strip()) for number, line in enumerate(lines) if line.strip()]
    if not rows:
        raise SourceError(f"{source}: holds no caption")
    return Rows([_rows(rows[a : a + ROWS_AT_ONCE]) for a in range(0, len(rows), ROWS_AT_ONCE)], total=len(rows))


def _of_table(location: Location, name: str) -> Rows:
    """Reads the footer only; row groups are read where blocks are expanded."""
    with location.open(name) as stream, pq.ParquetFile(stream) as file:
        sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        column = next((name for name in COLUMNS if name in file.schema_arrow.names), None)
        if column is None:
            there = ", ".join(file.schema_arrow.names)
            raise SourceError(f"{location.source}: no column {' or '.join(COLUMNS)}; it has {there}")
    if not sum(sizes):
        raise SourceError(f"{location.source}: holds no caption")
    firsts = accumulate(sizes, initial=0)
    groups = [pa.table({"group": [n], "first": [first]}) for n, first in zip(range(len(sizes)), firsts, strict=False)]
    return Rows(groups, partial(_of_groups, location=location, name=name, column=column), sum(sizes))


def _of_groups(groups: pa.Table, location: Location, name: str, column: str) -> Iterator[pa.Table]:
    for group in groups.to_pylist():
        first = group["first"]
        with location.open(name) as stream, pq.ParquetFile(stream) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group["group"]], columns=[column]):
                texts = batch.column(0).cast(pa.string()).to_pylist()
                yield _rows([(first + n, text or "") for n, text in enumerate(texts)])
                first += len(texts)


def _rows(rows: Sequence[tuple[int, str]]) -> pa.Table:
    numbers, texts = [number for number, _ in rows], [text for _, text in rows]
    ids = [content_id("search", number, text) for number, text in rows]
    return pa.table({"caption_id": ids, "row": pa.array(numbers, pa.int64()), "caption": pa.array(texts, pa.string())})
