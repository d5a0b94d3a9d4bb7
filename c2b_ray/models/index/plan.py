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

import math
from dataclasses import asdict, dataclass

from c2b_ray.errors import ConfigError, nearest

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
class Wish:
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


def plan(vectors: int, dimension: int, wish: Wish = Wish()) -> IndexPlan:
    """Chooses the first of flat, hnsw and ivfpq that is small enough, or the kind wished for.

    ConfigError where it does not fit into the memory, naming what would; or where there is too little to train on.
    """
    result: IndexPlan | None
    fitting = [each for kind in KINDS if (each := _planned(kind, vectors, dimension, wish)).memory <= wish.memory]
    if wish.kind is not None:
        result = next((each for each in fitting if each.kind == wish.kind), None)
        if wish.kind == "ivfpq" and vectors < IVFPQ_VECTORS:
            raise ConfigError("kind", f"ivfpq is trained on {IVFPQ_VECTORS} vectors or more, here are {vectors}: flat")
    else:
        result = next((each for each in fitting if _quick(each.kind, vectors, dimension)), None)
    if result is None:
        least = _planned(wish.kind or "ivfpq", vectors, dimension, wish).memory
        raise ConfigError(
            "memory",
            f"{vectors} vectors of {dimension} dimensions as {wish.kind or 'ivfpq'} take {spelt(least)}, the budget is "
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


def _planned(kind: str, vectors: int, dimension: int, wish: Wish) -> IndexPlan:
    if kind == "ivfpq":
        return _ivfpq(vectors, dimension, wish)
    each = 4 * dimension if kind == "flat" else dimension + 4 * 2 * LINKS + 16
    return IndexPlan(kind, _shards(vectors, each, wish), vectors * each)


def _ivfpq(vectors: int, dimension: int, wish: Wish) -> IndexPlan:
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


def _divisor(dimension: int, most: int) -> int:
    return next(size for size in range(max(1, most), 0, -1) if dimension % size == 0)


def _shards(vectors: int, each: int, wish: Wish) -> int:
    """Returns the wished number of shards; else a number at which one shard takes at most half of the budget and can be
    built in memory."""
    most = max(1, min(SHARD_BYTES, wish.memory // 2) // each)
    return min(wish.shards or math.ceil(vectors / most), max(1, vectors))
