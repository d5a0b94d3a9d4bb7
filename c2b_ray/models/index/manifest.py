"""The manifest of an index directory: format 2, and format 1 from before there were shards.

    manifest.json           this
    shard-*.faiss           faiss indexes of consecutive ids
    vectors.f16             the embeddings, float16, row by row; none where the shards hold them exactly (flat)
    rows.arrow              key and metadata of every image, by id: an Arrow IPC file to be mapped into memory
    images/part-*.parquet   id, key, bytes (or where the bytes are) and the source's own columns, sorted by id

It knows no faiss. Format 1 is a single flat shard called vectors.faiss, and no rows.arrow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from c2b_ray.errors import SourceError
from c2b_ray.filesystems.documents import parse_json
from c2b_ray.models.index.plan import KINDS, IndexPlan

FORMAT = 2
MANIFEST = "manifest.json"
VECTORS = "vectors.f16"
ROWS = "rows.arrow"
IMAGES = "images"
_OF_BOTH = (
    "format", "encoder", "encoder_revision", "dimension", "count", "skipped", "kind", "revision", "group_rows",
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One file of the index: the ids first_id, …, first_id + rows − 1."""

    file: str
    first_id: int
    rows: int


@dataclass(frozen=True)
class Manifest:
    """`encoder` is a spec; `skipped` counts the rows of the source that had no bytes or no embedding.

    `images_root`: the folder of the images where they are not inside the parts.
    """

    format: int
    encoder: str
    encoder_revision: str
    dimension: int
    count: int
    skipped: int
    kind: str
    revision: str
    group_rows: int
    parts: tuple[Part, ...]
    plan: IndexPlan
    shards: tuple[Part, ...]
    images_root: str | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str, path: str) -> Manifest:
        """Parses a manifest. Raises SourceError where `text` is not the manifest of an index that this version
        reads."""
        try:
            manifest = _read(parse_json(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            detail = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SourceError(
                f"{path}/{MANIFEST} is no index manifest ({detail}); rebuild with c2b index build"
            ) from error
        if manifest.format not in (1, FORMAT) or manifest.kind not in KINDS:
            raise SourceError(
                f"{path}: an index of format {manifest.format!r} and kind {manifest.kind!r}, expected format {FORMAT} "
                f"and kind {' or '.join(KINDS)}; rebuild with c2b index build"
            )
        _check(manifest, path)
        return manifest


def _read(fields: Mapping[str, Any]) -> Manifest:
    parts = _parts(fields["parts"])
    first = {name: fields[name] for name in _OF_BOTH}
    if fields["format"] == 1:
        return Manifest(
            **first, parts=parts, plan=IndexPlan("flat", 1, 0), shards=(Part("vectors.faiss", 0, fields["count"]),)
        )
    if fields["format"] != FORMAT:
        return Manifest(**first, parts=parts, plan=IndexPlan("", 0, 0), shards=())
    plan, shards = IndexPlan(**fields["plan"]), _parts(fields["shards"])
    return Manifest(**first, parts=parts, plan=plan, shards=shards, images_root=fields["images_root"])


def _parts(fields: list[dict[str, Any]]) -> tuple[Part, ...]:
    return tuple(Part(str(p["file"]), int(p["first_id"]), int(p["rows"])) for p in fields)


def _check(manifest: Manifest, path: str) -> None:
    sizes = (manifest.dimension, manifest.count, manifest.group_rows)
    if any(not isinstance(size, int) or size < 1 for size in sizes):
        raise SourceError(
            f"{path}/{MANIFEST}: dimension, count and group_rows are {sizes}; all are numbers and must be above 0"
        )
    root = manifest.images_root
    if root is not None and (not isinstance(root, str) or not root.strip("/")):
        raise SourceError(
            f"{path}/{MANIFEST}: images_root is {root!r}, expected the folder of the images; run c2b index import again"
        )
    for name, parts in (("parts", manifest.parts), ("shards", manifest.shards)):
        for part in parts:
            if not _is_inside(part.file):
                raise SourceError(
                    f"{path}/{MANIFEST}: its {name} name {part.file!r}, which is no file of the index; rebuild with "
                    "c2b index build"
                )
        firsts = np.cumsum([0, *(part.rows for part in parts)]).tolist()
        if [*(part.first_id for part in parts), manifest.count] != firsts:
            raise SourceError(f"{path}/{MANIFEST}: its {name} do not add up to {manifest.count} images")


def _is_inside(file: str) -> bool:
    """Tells whether a name stays below the index: a received manifest must not name other files of the machine."""
    return bool(file) and not file.startswith("/") and ".." not in file.split("/") and "\\" not in file
