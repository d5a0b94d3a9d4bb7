"""Builds an index from a source of images: reads them, embeds them, and builds once every embedding is there.

It knows the order of the stages and what each was made from; `models.index.build` knows what an index looks like.
Embeddings wait in `INDEX.building` until the index is whole, so that an interrupted build can continue.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.engine.fed import preparing
from c2b_ray.engine.images import CLASSIFY, OnProgress
from c2b_ray.engine.sources.clip_retrieval import Partition
from c2b_ray.engine.stage import Rows, Runner
from c2b_ray.errors import RunError, SourceError
from c2b_ray.models.index import build as faiss_build
from c2b_ray.models.index.plan import MANIFEST, IndexWishes, Manifest
from c2b_ray.roles import Shape, TextImageEncoder
from c2b_ray.steps.embed import embed
from c2b_ray.storage import files, is_remote
from c2b_ray.storage.parts import read_stage
from c2b_ray.tables import embeddings

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


def _check_source(out: str, images: str, then: pa.Table, now: pa.Table) -> None:
    before, after = (dict(zip(*(t[name].to_pylist() for name in ("name", "size")), strict=True)) for t in (then, now))
    differences = {
        "new": sorted(after.keys() - before.keys()),
        "gone": sorted(before.keys() - after.keys()),
        "of another size": sorted(name for name in before.keys() & after.keys() if before[name] != after[name]),
    }
    said = [f"{len(names)} {how} (such as {names[0]!r})" for how, names in differences.items() if names]
    if said:
        raise RunError(
            f"{images} has changed since {out} was built: files {', '.join(said)}. An index is not added to: delete it "
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
    begun = f"{building}/{MADE_BY}"
    if not files.exists(begun):
        files.write_bytes(begun, json.dumps(made_by).encode())
    elif json.loads(files.read_bytes(begun)) != made_by:
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

        def more(where: Path, manifest: Manifest) -> None:
            files.write_table(f"{where}/{ERRORS}", failed)
            _note(where, _summary(out, made_by, manifest, failed.num_rows, left_out), listed)

        manifest = _written(out, lambda where: faiss_build.write(where, *encoder, parts, wish, more=more))
    files.remove_directory(building)
    return _summary(out, made_by, manifest, failed.num_rows, left_out)


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

    def more(where: Path, manifest: Manifest) -> None:
        _note(where, _summary(out, made_by, manifest, manifest.skipped), listed)

    settings: dict[str, Any] = {"group_rows": 16384, "images_root": folder, "more": more}
    manifest = _written(out, lambda where: faiss_build.write(where, *encoder, source, wish, **settings))
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
