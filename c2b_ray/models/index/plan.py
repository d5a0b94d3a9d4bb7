"""Chooses the kind of index for a number of vectors and an amount of memory. Pure arithmetic: it knows neither faiss
nor files.

    flat    every vector compared with every query, exactly. While all of them can be read within some 30 ms.
    hnsw    a graph of neighbours over int8 codes: a query in a millisecond, but all of it is in memory (about 800 bytes
            a vector of 512 dimensions), and building takes a core about a millisecond a vector.
    ivfpq   vectors in lists around centroids, as codes of a byte for every four dimensions: 136 bytes a vector of 512
            dimensions. Codes rank coarsely, so both of these kinds give a shortlist only: its vectors are read in
            float16 from the disk and compared exactly.

Memory is what a searching process holds; the float16 vectors on the disk, read row by row, are no part of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.storage.manifest import parse_json

KINDS = ("flat", "hnsw", "ivfpq")
MEMORY = 4 * 2**30

FLAT_BYTES = 256 * 2**20
"""Bytes that a core reads in about 30 ms."""

HNSW_VECTORS = 1_000_000
"""The number of vectors beyond which two cores take most of an hour to build a graph."""

IVFPQ_VECTORS = 1000
"""The least number of vectors on which codes can be trained."""

LINKS = 32  # of a node of a graph; twice as many at its lowest level
BREADTH = 64  # of the walk through a graph; widened to the shortlist
SHORTLIST = 10  # candidates compared exactly for each neighbour asked for …
SHORTLIST_LEAST = 200  # … and at least so many
DIMENSIONS_PER_BYTE = (4, 8, 16)
SHARD_BYTES = 2**30
"""The size of a shard, which is in memory while it is built."""

_UNITS = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40, "kb": 10**3, "mb": 10**6, "gb": 10**9}


@dataclass(frozen=True)
class IndexPlan:
    """A planned index. `memory`: bytes needed for search. `lists`, `probes` (lists searched) and `code_bytes` are for
    ivfpq."""

    kind: str
    shards: int
    memory: int
    lists: int = 0
    probes: int = 0
    code_bytes: int = 0


@dataclass(frozen=True)
class IndexWishes:
    """The user's wishes for an index; None leaves a setting to the plan. `memory` is in bytes."""

    kind: str | None = None
    memory: int = MEMORY
    shards: int | None = None

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise ConfigError("kind", f"{self.kind!r} is no kind of index; {nearest(self.kind, KINDS)}")
        if self.shards is not None and self.shards < 1:
            raise ConfigError("shards", f"{self.shards} shards; at least 1")

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def plan(vectors: int, dimension: int, wish: IndexWishes = IndexWishes()) -> IndexPlan:
    """Chooses the first of flat, hnsw and ivfpq that is small enough, or the kind wished for.

    ConfigError where it does not fit into the memory, naming what would; or where there is too little to train on.
    """
    result: IndexPlan | None
    candidates = [
        candidate for kind in KINDS if (candidate := _planned(kind, vectors, dimension, wish)).memory <= wish.memory
    ]
    if wish.kind is not None:
        result = next((candidate for candidate in candidates if candidate.kind == wish.kind), None)
        if wish.kind == "ivfpq" and vectors < IVFPQ_VECTORS:
            raise ConfigError("kind", f"ivfpq is trained on {IVFPQ_VECTORS} vectors or more, here are {vectors}: flat")
    else:
        result = next((candidate for candidate in candidates if _quick(candidate.kind, vectors, dimension)), None)
    if result is None:
        need = _planned(wish.kind or "ivfpq", vectors, dimension, wish).memory
        raise ConfigError(
            "memory",
            f"{vectors} vectors of {dimension} dimensions as {wish.kind or 'ivfpq'} take {spelt(need)}, the budget is "
            f"{spelt(wish.memory)}; raise it{', or choose another kind' if wish.kind else ''}",
        )
    return result


def memory(text: str) -> int:
    """Parses `4GiB`, `500 MB` or `1073741824` into bytes; raises ConfigError for anything else."""
    number = text.strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = _UNITS.get(text.strip().lower()[len(number) :].strip())
    try:
        size = float(number) * (unit or math.nan)
    except ValueError:
        size = math.nan
    if not 0 < size < math.inf:
        raise ConfigError("memory", f"{text!r} is no amount of memory; expected something like 4GiB or 500MB")
    return int(size)


def spelt(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{max(1, math.ceil(size / 2**20))} MiB"


def _quick(kind: str, vectors: int, dimension: int) -> bool:
    if kind == "flat":
        return vectors * dimension * 4 <= FLAT_BYTES or vectors < IVFPQ_VECTORS
    return kind == "ivfpq" or vectors <= HNSW_VECTORS


def _planned(kind: str, vectors: int, dimension: int, wish: IndexWishes) -> IndexPlan:
    if kind == "ivfpq":
        return _ivfpq(vectors, dimension, wish)
    bytes_per_vector = 4 * dimension if kind == "flat" else dimension + 4 * 2 * LINKS + 16
    return IndexPlan(kind, _shards(vectors, bytes_per_vector, wish), vectors * bytes_per_vector)


def _ivfpq(vectors: int, dimension: int, wish: IndexWishes) -> IndexPlan:
    """Plans ivfpq with the largest codes that fit.

    Lists: the power of two below 4√n, so that finding the lists costs a query about as much as looking into them; 40
    vectors or more to train each of them on. One list in 64 is searched, at least 64: with 16 of 1,024, a seventh of
    the nearest 20 was missed.
    """
    lists = 2 ** int(math.log2(max(1.0, min(4 * math.sqrt(vectors), vectors / 40))))
    probes = min(lists, max(64, lists // 64))
    sizes = [_divisor(dimension, dimension // per_byte) for per_byte in DIMENSIONS_PER_BYTE]
    needs = {size: vectors * (size + 8) + lists * (4 * dimension + 8 * LINKS) for size in sizes}
    size = next((size for size in sizes if needs[size] <= wish.memory), sizes[-1])
    return IndexPlan("ivfpq", _shards(vectors, size + 8, wish), needs[size], lists, probes, size)


def _divisor(dimension: int, limit: int) -> int:
    return next(size for size in range(max(1, limit), 0, -1) if dimension % size == 0)


def _shards(vectors: int, bytes_per_vector: int, wish: IndexWishes) -> int:
    """Returns the wished number of shards; else a number at which one shard takes at most half of the budget and can be
    built in memory."""
    vectors_per_shard = max(1, min(SHARD_BYTES, wish.memory // 2) // bytes_per_vector)
    return min(wish.shards or math.ceil(vectors / vectors_per_shard), max(1, vectors))


# The manifest of an index directory: format 2, and format 1 from before there were shards.


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
        first_ids = np.cumsum([0, *(part.rows for part in parts)]).tolist()
        if [*(part.first_id for part in parts), manifest.count] != first_ids:
            raise SourceError(f"{path}/{MANIFEST}: its {name} do not add up to {manifest.count} images")


def _is_inside(file: str) -> bool:
    """Tells whether a name stays below the index: a received manifest must not name other files of the machine."""
    return bool(file) and not file.startswith("/") and ".." not in file.split("/") and "\\" not in file
