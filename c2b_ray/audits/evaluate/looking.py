"""Looks at the images of a run once more, to embed or describe them. Reading and resuming are left to `stage`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from c2b_ray.engine.images import CLASSIFY, VERIFY, OnProgress, RowsByImage, images_wanted
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.roles import Captioner, TextImageEncoder
from c2b_ray.steps import encoded
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.fetch import Load, with_reading
from c2b_ray.storage.parts import opened
from c2b_ray.tables import content_id
from c2b_ray.tables.evaluate import SAID, SEEN

# Embeds images, and captions them by a captioner. It knows roles and files' bytes.


def look_id(image_id: str, label: str, what: str, revision: str) -> str:
    return content_id("look", image_id, label, what, revision)


def embed_seen(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `SEEN`. `rows`: `look_id`, `image_id`, `bytes`, `error`."""
    vectors, errors = encoded.embedded(rows, encoder)
    columns = {
        "look_id": rows["look_id"],
        "image_id": rows["image_id"],
        "vector": pa.array(vectors, SEEN.field("vector").type),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns, SEEN)


def describe_mistakes(rows: pa.Table, captioner: Captioner) -> pa.Table:
    """Returns a table of `SAID`. `rows`: as for `embed_seen`, and the `label` that the caption must name."""
    known, labels = rows["error"].to_pylist(), rows["label"].to_pylist()
    pixels, undecoded = decode_batch(encoded.files_of(rows))
    at = [row for row, image in enumerate(pixels) if image is not None]
    replies = captioner.caption([image for image in pixels if image is not None], [labels[row] for row in at])
    said = dict(zip(at, replies, strict=True))
    rows_of = [
        {
            "look_id": look,
            "image_id": image,
            "caption": said[row].text if row in said else None,
            "error": said[row].error if row in said else known[row] or undecoded[row],
        }
        for row, (look, image) in enumerate(zip(rows["look_id"].to_pylist(), rows["image_id"].to_pylist(), strict=True))
    ]
    return pa.Table.from_pylist(rows_of, SAID)


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
    expand = partial(images_wanted, parts=parts, wanted=RowsByImage.by_image(wanted))
    ids = wanted["look_id"]
    return Rows(blocks, expand, wanted.num_rows, lambda: iter([ids]))
