"""Looks at the images of a run once more, to embed or describe them. Reading and resuming are left to `stage`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from c2b_ray.pipelines.images import CLASSIFY, VERIFY, OnProgress, Wanted, images_wanted
from c2b_ray.pipelines.stage import Rows, Runner, StageConfig
from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.schemas.evaluate import SAID, SEEN
from c2b_ray.steps.evaluate.looking import describe_mistakes, embed_seen
from c2b_ray.steps.in_place import Load, with_reading
from c2b_ray.store.parts import opened

EMBED: StageConfig = replace(CLASSIFY, schema=SEEN, stage="embed")
DESCRIBE: StageConfig = replace(VERIFY, schema=SAID)


@dataclass(frozen=True)
class Images:
    """A run's images: the directory of their parts, and the source of those whose bytes these do not hold."""

    parts: str
    source: Load | None


def embed_images(
    runner: Runner, images: Images, wanted: pa.Table, encoder: Callable[[], TextImageEncoder], out: str, on: OnProgress
) -> None:
    """Writes the embeddings of the `wanted` images (`image_id`, `look_id`), as parts of `SEEN`."""
    step, role = with_reading(embed_seen, encoder, images.source)
    rows, config = _rows(images.parts, wanted), _of(EMBED, wanted)
    runner.run(rows, step, role, out, id_column="look_id", config=config, on_progress=on)


def describe_images(
    runner: Runner, images: Images, wanted: pa.Table, captioner: Callable[[], Captioner], out: str, on: OnProgress
) -> None:
    """Writes captions of the `wanted` images (`image_id`, `look_id`, `label`), as parts of `SAID`."""
    step, role = with_reading(describe_mistakes, captioner, images.source)
    rows, config = _rows(images.parts, wanted), _of(DESCRIBE, wanted)
    runner.run(rows, step, role, out, id_column="look_id", config=config, on_progress=on)


def _of(config: StageConfig, wanted: pa.Table) -> StageConfig:
    return replace(config, total=wanted.num_rows)


def _rows(images: str, wanted: pa.Table) -> Rows:
    parts = opened(images)
    blocks = [pa.table({"name": [name]}) for name in parts.names()]
    expand = partial(images_wanted, parts=parts, wanted=Wanted.by_image(wanted))
    ids = wanted["look_id"]
    return Rows(blocks, expand, wanted.num_rows, lambda: iter([ids]))
