"""Builds an index from a source of images: reads them, embeds them, and builds once every embedding is there.

It knows the order of the stages and what each was made from; `models.index.build` knows what an index looks like.
Embeddings wait in `INDEX.building` until the index is whole, so that an interrupted build can continue.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from c2b_ray.engine.here import preparing
from c2b_ray.engine.images import CLASSIFY, OnProgress
from c2b_ray.engine.sources.clip_retrieval import Partition
from c2b_ray.engine.sources.files import Location
from c2b_ray.engine.stage import Rows, Runner, StageConfig, StageResult
from c2b_ray.errors import RunError, SourceError
from c2b_ray.models.index.plan import MANIFEST, IndexWishes, Manifest
from c2b_ray.roles import ImageIndex, Shape, TextImageEncoder
from c2b_ray.steps.retrieve import CaptionSearch, embed, nearest, search
from c2b_ray.storage import files, is_remote, resolve
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import RETRIEVED, SEARCHES, content_id, embeddings

MADE_BY = "made_by.json"
ERRORS = "errors.parquet"
LISTED = "source.parquet"
"""Names and sizes of the files that an index was made from, by which later changes are noticed."""


def built(out: str, made_by: dict[str, Any], listed: pa.Table) -> dict[str, Any] | None:
    """Returns the summary of the index at `out` if it is whole and has the same `made_by`; None if there is no index.

    `listed`: the source's files now (`files.sizes`). Raises RunError where the index was made from something else, or
    where files were added, removed or changed since: images cannot be added to an index.
    """
    if not all(files.exists(f"{out}/{name}") for name in (MANIFEST, MADE_BY)):  # on a store MANIFEST is put last
        return None
    summary: dict[str, Any] = json.loads(files.read_bytes(f"{out}/{MADE_BY}"))
    if summary["made_by"] != made_by:
        raise RunError(f"{out} is an index of other images or another encoder; choose another --out, or delete it")
    if files.exists(f"{out}/{LISTED}"):
        _check_source(out, made_by["images"], files.read_table(f"{out}/{LISTED}"), listed)
    return summary


def _check_source(out: str, images: str, earlier: pa.Table, now: pa.Table) -> None:
    old_sizes, new_sizes = (
        dict(zip(*(t[name].to_pylist() for name in ("name", "size")), strict=True)) for t in (earlier, now)
    )
    differences = {
        "new": sorted(new_sizes.keys() - old_sizes.keys()),
        "gone": sorted(old_sizes.keys() - new_sizes.keys()),
        "of another size": sorted(
            name for name in old_sizes.keys() & new_sizes.keys() if old_sizes[name] != new_sizes[name]
        ),
    }
    diff = [f"{len(names)} {change} (such as {names[0]!r})" for change, names in differences.items() if names]
    if diff:
        raise RunError(
            f"{images} has changed since {out} was built: files {', '.join(diff)}. An index is not added to: delete it "
            "and build it again, or choose another --out"
        )


def embed_source(
    runner: Runner,
    images: Rows,
    encoder: Callable[[], TextImageEncoder],
    made_by: dict[str, Any],
    out: str,
    on_progress: OnProgress | None = None,
    shape: Shape | None = None,
) -> None:
    """Writes the embeddings of all `images` (`sources.datasets.read`) into `out`.building; resumes an earlier call.

    `shape`: how pictures are prepared for the encoder, where another process can do that.

    Raises RunError where that call had another source, SourceError where no image can be used.
    """
    building = _building(out)
    files.make_directory(building)
    marker = f"{building}/{MADE_BY}"
    if not files.exists(marker):
        files.write_bytes(marker, json.dumps(made_by).encode())
    elif json.loads(files.read_bytes(marker)) != made_by:
        raise RunError(f"{building} was begun from other images or another encoder; delete it, or choose another --out")
    schema = embeddings(int(made_by["dimension"]))
    config = replace(CLASSIFY, schema=schema, stage="embed", rows_per_file=2048, total=images.total)
    runner.run(
        images,
        embed,
        encoder,
        building,
        id_column="key",
        config=config,
        on_progress=on_progress,
        prepare=preparing([shape], keep_bytes=True),
    )


def build(
    out: str, made_by: dict[str, Any], wish: IndexWishes, listed: pa.Table, left_out: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Builds the index at `out` from the embeddings of `embed_source`, removes these, and returns the index's summary.

    `listed`: the files that the embeddings were made from. `left_out`: reason → how many of them are no images.
    """
    building = _building(out)
    errors = read_stage(building, ["key", "error"])
    failed = errors.filter(pc.is_valid(errors["error"]))
    if failed.num_rows == errors.num_rows:
        reasons = Counter(failed["error"].to_pylist()).most_common(1)
        reason = f"{reasons[0][0]} ({reasons[0][1]:,} of {errors.num_rows:,})" if reasons else "there is none"
        raise SourceError(f"{made_by['images']}: no image can be used; the commonest reason: {reason}")
    encoder = made_by["encoder"], made_by["encoder_revision"]
    with tempfile.TemporaryDirectory(prefix="c2b-parts-") as scratch:
        folder = Path(building)
        if is_remote(building):
            folder = Path(scratch, "parts")
            files.download(building, folder)
        parts = sorted(folder.glob("part-*.parquet"))

        def more(index_folder: Path, manifest: Manifest) -> None:
            files.write_table(f"{index_folder}/{ERRORS}", failed)
            _note(index_folder, _summary(out, made_by, manifest, failed.num_rows, left_out), listed)

        write = _faiss_writer()
        manifest = _written(out, lambda destination: write(destination, *encoder, parts, wish, more=more))
    files.remove_directory(building)
    return _summary(out, made_by, manifest, failed.num_rows, left_out)


def _faiss_writer() -> Callable[..., Manifest]:
    from c2b_ray.models.index.build import write  # with faiss: an audit that has no index starts without it

    return write


def _written(out: str, write: Callable[[str], Manifest]) -> Manifest:
    """Writes an index to `out`. faiss writes to local disks only, so a remote `out` is written by way of a temporary
    directory.

    The manifest goes last, so that a reader sees a whole index or none.
    """
    if not is_remote(out):
        return write(out)
    with tempfile.TemporaryDirectory(prefix="c2b-index-") as scratch:
        built = Path(scratch, "index")
        manifest = write(str(built))
        files.upload(built, out, last=MANIFEST)
    return manifest


def import_folder(
    out: str, made_by: dict[str, Any], wish: IndexWishes, source: Sequence[Partition], listed: pa.Table
) -> dict[str, Any]:
    """Builds the index at `out` from an embedding folder's partitions. The images stay where they are."""
    if source[0].dimension != made_by["dimension"]:
        raise SourceError(
            f"{made_by['images']}: embeddings of {source[0].dimension} dimensions, {made_by['encoder']} gives "
            f"{made_by['dimension']}: name the encoder that made them"
        )
    encoder, folder = (made_by["encoder"], made_by["encoder_revision"]), source[0].images

    def more(index_folder: Path, manifest: Manifest) -> None:
        _note(index_folder, _summary(out, made_by, manifest, manifest.skipped), listed)

    settings: dict[str, Any] = {"group_rows": 16384, "images_root": folder, "more": more}
    write = _faiss_writer()
    manifest = _written(out, lambda destination: write(destination, *encoder, source, wish, **settings))
    return _summary(out, made_by, manifest, manifest.skipped)


def _summary(
    out: str, made_by: dict[str, Any], manifest: Manifest, errors: int, left_out: Mapping[str, int] | None = None
) -> dict[str, Any]:
    of_index = {"kind": manifest.kind, "shards": len(manifest.shards), "memory": manifest.plan.memory}
    counts = {"images": manifest.count, "errors": errors, "left_out": dict(left_out or {})}
    return {"index": out, **counts, **of_index, "made_by": made_by}


def _note(folder: Path, summary: dict[str, Any], listed: pa.Table) -> None:
    """Writes into an index what `built` reads of it."""
    files.write_table(f"{folder}/{LISTED}", listed)
    files.write_bytes(f"{folder}/{MADE_BY}", json.dumps(summary, indent=2).encode())


def _building(out: str) -> str:
    return f"{out.rstrip('/')}.building"


# Encodes many captions and searches the nearest images of each, into Parquet parts, resumable.


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
    marker = f"{out}/{MADE_BY}"
    if not files.exists(marker):
        files.write_bytes(marker, json.dumps(made_by).encode())
    elif json.loads(files.read_bytes(marker)) != made_by:
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
    """Writes the k nearest images of each row of `steps.retrieve.to_retrieve`, as `tables.RETRIEVED`, under `out`."""
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
            columns = ", ".join(file.schema_arrow.names)
            raise SourceError(f"{location.source}: no column {' or '.join(COLUMNS)}; it has {columns}")
    if not sum(sizes):
        raise SourceError(f"{location.source}: holds no caption")
    starts = accumulate(sizes, initial=0)
    groups = [pa.table({"group": [n], "first": [first]}) for n, first in zip(range(len(sizes)), starts, strict=False)]
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
