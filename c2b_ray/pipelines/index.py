"""From a source of images to an index: read, embed, write, and build once all is there.

It knows the order of the stages; what an index looks like is `models.faiss_index`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow.compute as pc

from c2b_ray.errors import RunError, SourceError
from c2b_ray.pipelines.images import OnProgress
from c2b_ray.pipelines.sources import read
from c2b_ray.pipelines.stage import StageConfig, StageResult, read_stage, run_stage
from c2b_ray.roles import TextImageEncoder
from c2b_ray.schemas import EMBEDDINGS, content_id
from c2b_ray.steps.embed import embed
from c2b_ray.store import files

EMBED = StageConfig(schema=EMBEDDINGS, batch_size=128, rows_per_file=2048, num_cpus_per_actor=0.5)
EMBEDDED = "embeddings"


def embed_source(
    images: str, encoder: Callable[[], TextImageEncoder], made_by: dict[str, str], out: str, on_progress: OnProgress
) -> StageResult:
    """The embeddings of every image of `images` under `out`/embeddings; resumes what an earlier call left.

    `made_by` says of what and by which encoder: RunError where `out` was begun from something else, SourceError where
    no image could be used.
    """
    place = f"{out}/{EMBEDDED}"
    files.make_directory(place)
    _claim(f"{out}/begun.json", made_by)
    result = run_stage(
        read(images), embed, encoder, place, id_column="key", config=EMBED, on_progress=on_progress
    )
    errors = read_stage(place, ["error"])["error"]
    if errors.null_count == 0:
        reason = pc.mode(errors)[0]["mode"].as_py() if len(errors) else "it holds no images"
        raise SourceError(f"{images}: no image could be used; the commonest reason: {reason}")
    return result


def _claim(path: str, made_by: dict[str, str]) -> None:
    identity = {**made_by, "id": content_id(made_by)}
    if not files.exists(path):
        files.write_bytes(path, json.dumps(identity, indent=2).encode())
        return
    if json.loads(files.read_bytes(path)) != identity:
        raise RunError(f"{path} was begun from other images or another encoder; choose another --out, or delete it")
