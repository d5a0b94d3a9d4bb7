"""From a source of images to an index: read, embed, and build once every embedding is there.

It knows the order of the stages and what each was made from; what an index looks like is `models.faiss_build`'s.
Embeddings wait in `INDEX.building` until the index is whole, so that an interrupted build goes on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from c2b_ray.errors import RunError, SourceError
from c2b_ray.models import faiss_build
from c2b_ray.pipelines.images import OnProgress
from c2b_ray.pipelines.sources import read
from c2b_ray.pipelines.stage import StageConfig, read_stage, run_stage
from c2b_ray.roles import TextImageEncoder
from c2b_ray.schemas import embeddings
from c2b_ray.steps.embed import embed
from c2b_ray.store import files

MADE_BY = "made_by.json"
ERRORS = "errors.parquet"


def built(out: str, made_by: dict[str, Any]) -> dict[str, Any] | None:
    """The summary of the index at `out` where it is whole and `made_by` the same, None where there is none.

    RunError where it was made from something else.
    """
    if not files.exists(f"{out}/{MADE_BY}"):
        return None
    summary: dict[str, Any] = json.loads(files.read_bytes(f"{out}/{MADE_BY}"))
    if summary["made_by"] != made_by:
        raise RunError(f"{out} is an index of other images or another encoder; choose another --out, or delete it")
    return summary


def embed_source(
    images: str,
    encoder: Callable[[], TextImageEncoder],
    made_by: dict[str, Any],
    out: str,
    on_progress: OnProgress | None = None,
) -> None:
    """The embeddings of every image of `images` into `out`.building; resumes what an earlier call left.

    RunError where that was begun from something else, SourceError where no image can be used.
    """
    place = _building(out)
    files.make_directory(place)
    begun = f"{place}/{MADE_BY}"
    if not files.exists(begun):
        files.write_bytes(begun, json.dumps(made_by).encode())
    elif json.loads(files.read_bytes(begun)) != made_by:
        raise RunError(f"{place} was begun from other images or another encoder; delete it, or choose another --out")
    config = StageConfig(
        embeddings(int(made_by["dimension"])), batch_size=32, rows_per_file=2048, threads=0, num_cpus_per_actor=0.5
    )
    run_stage(read(images), embed, encoder, place, id_column="key", config=config, on_progress=on_progress)


def build(out: str, made_by: dict[str, Any]) -> dict[str, Any]:
    """The index at `out` from the embeddings that `embed_source` left, which are removed; returns its summary."""
    place = Path(_building(out))
    errors = read_stage(str(place), ["key", "error"])
    failed = errors.filter(pc.is_valid(errors["error"]))
    if failed.num_rows == errors.num_rows:
        reason = pc.mode(failed["error"])[0].as_py()["mode"] if failed.num_rows else "there is none"
        raise SourceError(f"{made_by['images']}: no image can be used; the commonest reason: {reason}")
    parts = sorted(place.glob("part-*.parquet"))
    manifest = faiss_build.write(out, made_by["encoder"], made_by["encoder_revision"], parts)
    files.write_table(f"{out}/{ERRORS}", failed)
    summary = {"index": out, "images": manifest.count, "errors": failed.num_rows, "made_by": made_by}
    files.write_bytes(f"{out}/{MADE_BY}", json.dumps(summary, indent=2).encode())
    shutil.rmtree(place)
    return summary


def _building(out: str) -> str:
    return f"{out.rstrip('/')}.building"
