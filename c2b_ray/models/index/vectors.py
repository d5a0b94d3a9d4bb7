"""The vectors of an index: made into the shards of faiss, and searched in them.

An open index gets a shortlist from the shards, searched side by side, then exact cosines from the disk. Codes rank only
coarsely, so the candidates from a shard of codes are compared again with the vectors themselves. Those are read row by
row rather than mapped: they count for nothing in this process's memory. It knows shard files, the file of float16
vectors and faiss; neither images nor the origin of a remote index.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from c2b_ray.errors import SourceError
from c2b_ray.models import devices
from c2b_ray.models.index.plan import BREADTH, LINKS, SHORTLIST, SHORTLIST_LEAST, VECTORS, IndexPlan, Manifest, Part
from c2b_ray.roles import Floats, Neighbours

QUERIES_AT_ONCE = 64
ROWS_AT_ONCE = 65536
CAN_ADVISE = hasattr(os, "posix_fadvise")  # macOS has neither this nor preadv
EXHAUSTIVE_SHARE = 4
"""All vectors are compared where the shortlist would exceed 1 / this of them, a quarter."""

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class SearchEffort:
    """Search effort; 0 and None leave it to the index. `device` is auto, cpu or gpu."""

    probes: int = 0
    shortlist: int = SHORTLIST
    device: str = "auto"


class Vectors:
    """All shards of a local directory, opened. `search` may be called from several threads."""

    def __init__(self, root: Path, manifest: Manifest, effort: SearchEffort) -> None:
        self._manifest = manifest
        self._kind = manifest.kind
        self._probes = min(manifest.plan.lists, effort.probes or manifest.plan.probes)
        self._shortlist = effort.shortlist
        threads = max(1, faiss.omp_get_max_threads() // len(manifest.shards))
        self._pool = ThreadPoolExecutor(
            len(manifest.shards), "shard", initializer=faiss.omp_set_num_threads, initargs=(threads,)
        )
        self._shards = [opened(root / shard.file, manifest, shard.rows) for shard in manifest.shards]
        if self._kind == "ivfpq":
            for shard in self._shards:
                shard.nprobe = self._probes  # what a copy on a GPU goes by
        self._shards = [on_device(shard, manifest.kind, effort.device) for shard in self._shards]
        self._stored = (
            None if self._kind == "flat" else StoredVectors(root / VECTORS, manifest.count, manifest.dimension)
        )

    def search(self, queries: Floats, k: int) -> Neighbours:
        """Searches all shards. `k` ≥ 1, at least one query."""
        depth = min(k, self._manifest.count)
        if self._stored is None:
            similarities, ids = self._candidates(queries, depth)
            ids, similarities = _nearest(ids, similarities, depth)
        else:
            starts = range(0, len(queries), QUERIES_AT_ONCE)
            parts = [self._exactly(queries[s : s + QUERIES_AT_ONCE], depth, self._stored) for s in starts]
            ids, similarities = (np.concatenate(column) for column in zip(*parts, strict=True))
        missing = ((0, 0), (0, k - depth))
        ids = np.pad(ids, missing, constant_values=-1)
        similarities = np.pad(similarities, missing, constant_values=np.nan)
        similarities[ids < 0] = np.nan
        return Neighbours(ids, similarities)

    def rows(self, ids: Ids) -> Floats:
        """Returns vectors, float32 (ids, dimension); each id has to exist."""
        if self._stored is not None:
            return self._stored.rows(ids)
        result = np.empty((len(ids), self._manifest.dimension), np.float32)
        for shard, span in zip(self._shards, self._manifest.shards, strict=True):
            positions = np.flatnonzero((ids >= span.first_id) & (ids < span.first_id + span.rows))
            if len(positions):
                result[positions] = shard.reconstruct_batch(ids[positions] - span.first_id)
        return result

    def _exactly(self, queries: Floats, k: int, stored: StoredVectors) -> tuple[Ids, Floats]:
        depth = max(SHORTLIST_LEAST, k * self._shortlist)
        if depth * EXHAUSTIVE_SHARE >= self._manifest.count:
            return exhaustive(queries, k, stored.blocks())
        _, ids = self._candidates(queries, depth)
        ids, similarities = _nearest(ids, stored.similarities(queries, ids), k)
        if len(short := np.flatnonzero(ids[:, -1] < 0)):  # its lists hold fewer
            ids[short], similarities[short] = exhaustive(queries[short], k, stored.blocks())
        return ids, similarities

    def _candidates(self, queries: Floats, depth: int) -> tuple[Floats, Ids]:
        """Returns up to `depth` candidates of each shard, side by side: similarities by its codes, and ids."""
        lists = self._lists(queries, depth) if self._kind == "ivfpq" else None
        numbers = range(len(self._shards))
        result = list(self._pool.map(lambda n: self._of_shard(n, queries, depth, lists), numbers))
        similarities, ids = (np.concatenate(column, axis=1) for column in zip(*result, strict=True))
        if ids.shape[1] > depth and self._stored is not None:  # the best of all shards
            candidates = np.argpartition(-similarities, depth - 1, axis=1)[:, :depth]
            return np.take_along_axis(similarities, candidates, axis=1), np.take_along_axis(ids, candidates, axis=1)
        return similarities, ids

    def _lists(self, queries: Floats, depth: int) -> tuple[Floats, Ids] | None:
        """Returns the lists to search, found once for all shards; None where a GPU finds its own."""
        shard = self._shards[0]
        if not isinstance(shard, faiss.IndexIVF):
            return None
        # Lists differ in size, so four times as many as would hold the shortlist if they did not.
        probes_needed = -(-4 * depth * shard.nlist // self._manifest.count)
        probes = min(shard.nlist, max(self._probes, probes_needed))
        breadth = faiss.SearchParametersHNSW(efSearch=max(BREADTH, 2 * probes))
        result: tuple[Floats, Ids] = shard.quantizer.search(queries, probes, params=breadth)
        return result

    def _of_shard(self, n: int, queries: Floats, depth: int, lists: tuple[Floats, Ids] | None) -> tuple[Floats, Ids]:
        shard, span = self._shards[n], self._manifest.shards[n]
        k = min(depth, span.rows)
        if lists is not None:
            similarities, ids = _preassigned(shard, queries, k, lists)
        elif self._kind == "hnsw":
            parameters = faiss.SearchParametersHNSW(efSearch=max(BREADTH, k))
            similarities, ids = shard.search(queries, k, params=parameters)
        else:
            similarities, ids = shard.search(queries, k)
        if self._kind != "ivfpq":  # whose ids are the index's own; the others count from 0
            ids = np.where(ids < 0, -1, ids + span.first_id)
        similarities[ids < 0] = -np.inf
        return similarities, ids


class StoredVectors:
    """The file of float16 vectors."""

    def __init__(self, path: Path, count: int, dimension: int) -> None:
        self._path, self._count, self._dimension = path, count, dimension
        self._row = 2 * dimension
        try:
            self._file = os.open(path, os.O_RDONLY)
            size = os.fstat(self._file).st_size
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}; rebuild with c2b index build") from error
        if size != count * self._row:
            raise SourceError(
                f"{path}: damaged: {size} bytes, expected {count * self._row}; rebuild with c2b index build"
            )
        if CAN_ADVISE:
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def similarities(self, queries: Floats, ids: Ids) -> Floats:
        """Returns the cosine of each query with each of its candidates; −inf where the id is −1."""
        distinct, positions = np.unique(ids, return_inverse=True)
        rows = self.rows(np.maximum(distinct, 0))
        positions = positions.reshape(ids.shape)
        result = np.stack(
            [rows[rows_of_query] @ query for rows_of_query, query in zip(positions, queries, strict=True)]
        )
        return np.where(ids < 0, np.float32(-np.inf), result)

    def rows(self, ids: Ids) -> Floats:
        """Returns vectors, float32 (ids, dimension)."""
        buffer = bytearray(len(ids) * self._row)
        view, offsets = memoryview(buffer), (ids * self._row).tolist()
        for offset in offsets if CAN_ADVISE else ():  # all are asked for before the first is waited for
            os.posix_fadvise(self._file, offset, self._row, os.POSIX_FADV_WILLNEED)
        for n, offset in enumerate(offsets):
            row = os.pread(self._file, self._row, offset)
            if len(row) != self._row:
                raise SourceError(f"{self._path}: ends early; rebuild with c2b index build")
            view[n * self._row : (n + 1) * self._row] = row
        return np.frombuffer(buffer, np.float16).reshape(len(ids), self._dimension).astype(np.float32)

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """Yields first id and vectors of each block, in order."""
        for first in range(0, self._count, ROWS_AT_ONCE):
            rows = min(ROWS_AT_ONCE, self._count - first)
            data = os.pread(self._file, rows * self._row, first * self._row)
            yield first, np.frombuffer(data, np.float16).reshape(rows, self._dimension).astype(np.float32)


def exhaustive(queries: Floats, k: int, blocks: Iterator[tuple[int, Floats]]) -> tuple[Ids, Floats]:
    """Finds the k nearest of all vectors, block by block."""
    heap = faiss.ResultHeap(len(queries), k, keep_max=True)
    for first, block in blocks:
        similarities, ids = faiss.knn(queries, block, min(k, len(block)), metric=faiss.METRIC_INNER_PRODUCT)
        heap.add_result(similarities, np.where(ids < 0, -1, ids + first))
    heap.finalize()
    return heap.I, heap.D


def opened(path: Path, manifest: Manifest, rows: int) -> Any:
    """Opens a shard, mapped into memory as far as its kind allows."""
    flags = {"ivfpq": faiss.IO_FLAG_MMAP, "hnsw": faiss.IO_FLAG_MMAP_IFC, "flat": 0}[manifest.kind]
    try:
        shard = faiss.read_index(str(path), flags)
    except (RuntimeError, ValueError) as error:
        if not path.exists():
            raise SourceError(f"{path}: no such file; rebuild with c2b index build") from error
        raise SourceError(f"{path}: damaged; rebuild with c2b index build") from error
    if (shard.d, shard.ntotal) != (manifest.dimension, rows):
        raise SourceError(
            f"{path}: {shard.ntotal} vectors of dimension {shard.d}, its manifest says {rows} of {manifest.dimension}; "
            "rebuild with c2b index build"
        )
    return shard


def on_device(shard: Any, kind: str, device: str) -> Any:
    """Moves the shard to the GPUs that this process may use, if any. Graphs stay where they are: faiss has none on a
    GPU."""
    gpus = devices.usable(faiss.get_num_gpus())
    if device == "gpu" and (not gpus or kind == "hnsw"):
        problem = "an hnsw index cannot be moved to a GPU" if gpus else "this process has no GPU, or faiss sees none"
        raise SourceError(f"device=gpu: {problem}; leave the option out, or install faiss with GPU support")
    if device == "cpu" or not gpus or kind == "hnsw":
        return shard
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True
    options.useFloat16 = True  # look-up tables of long codes fit no other way
    options.allowCpuCoarseQuantizer = True  # the graph over the centroids
    return faiss.index_cpu_to_gpus_list(shard, options, gpus)


def _preassigned(shard: Any, queries: Floats, k: int, lists: tuple[Floats, Ids]) -> tuple[Floats, Ids]:
    """Calls faiss's search of preassigned lists with any number of lists a query; its Python wrapper allows only
    `nprobe`."""
    closeness, numbers = (np.ascontiguousarray(column) for column in lists)
    similarities, ids = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    arrays = [faiss.swig_ptr(array) for array in (numbers, closeness, similarities, ids)]
    parameters = faiss.SearchParametersIVF(nprobe=numbers.shape[1])
    shard.search_preassigned_c(len(queries), faiss.swig_ptr(queries), k, *arrays, False, parameters)
    return similarities, ids


def _nearest(ids: Ids, similarities: Floats, k: int) -> tuple[Ids, Floats]:
    """Returns the k most similar of each row's candidates, nearest first, equal ones by id; −1 where there are
    fewer."""
    order = np.lexsort((ids, -similarities), axis=1)[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(similarities, order, axis=1)


# Makes the shards of a directory from its file of vectors: trained on a sample, then one after the other. In memory are
# the sample and one shard. A file gets its name once it is complete, so that after a crash the same call goes on with
# the first missing one.


TRAINED = "trained.faiss"
CONSTRUCTION_BREADTH = 80
ASSIGNMENT_BREADTH = 32
SAMPLES_PER_LIST = 50
SAMPLES_LEAST = 65536  # codes are trained on 256 centroids per byte
TWO_LEVELS = 2048
"""The number of lists from which centroids are clustered in two levels: k-means over all of them at once takes √lists
times as long."""


@dataclass(frozen=True)
class VectorFile:
    """Vectors row by row in a file of `type` (float16 or float32). Rows are copied when read; nothing stays mapped."""

    path: Path
    type: Any
    count: int
    dimension: int

    def read(self, start: int, stop: int) -> Floats:
        row = self.dimension * np.dtype(self.type).itemsize
        result = np.fromfile(self.path, self.type, (stop - start) * self.dimension, offset=start * row)
        return result.reshape(stop - start, self.dimension).astype(np.float32, copy=False)

    def sample(self, most: int) -> Floats:
        """Returns rows from across the file, the same at every call."""
        if self.count <= most:
            return self.read(0, self.count)
        rows = np.sort(np.random.default_rng(0).choice(self.count, most, replace=False))
        mapped = np.memmap(self.path, self.type, "r", shape=(self.count, self.dimension))
        return np.ascontiguousarray(mapped[rows], np.float32)


def shards(root: Path, vectors: VectorFile, plan: IndexPlan) -> tuple[Part, ...]:
    """Writes `shard-*.faiss` of `vectors` into `root`; existing ones are kept."""
    bounds = np.linspace(0, vectors.count, plan.shards + 1).astype(int).tolist()
    spans = [Part(f"shard-{n:05d}.faiss", a, b - a) for n, (a, b) in enumerate(pairwise(bounds))]
    spans = [span for span in spans if span.rows]
    for span in spans:
        if not (root / span.file).exists():
            index = _empty(root, vectors, plan)
            _fill(index, vectors, span, plan.kind)
            write_whole(index, root / span.file)
    (root / TRAINED).unlink(missing_ok=True)
    return tuple(spans)


def write_whole(index: Any, path: Path) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        faiss.write_index(index, str(temporary))
    except RuntimeError as error:  # faiss's words for what the file system refuses
        raise OSError(f"{path}: {str(error).strip().splitlines()[-1]}") from error
    os.replace(temporary, path)


def _fill(index: Any, vectors: VectorFile, span: Part, kind: str) -> None:
    for start in range(span.first_id, span.first_id + span.rows, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, span.first_id + span.rows)
        block = vectors.read(start, stop)
        if kind == "ivfpq":
            index.add_with_ids(block, np.arange(start, stop, dtype=np.int64))
        else:
            index.add(block)


def _empty(root: Path, vectors: VectorFile, plan: IndexPlan) -> Any:
    if plan.kind == "flat":
        return faiss.IndexFlatIP(vectors.dimension)
    if not (root / TRAINED).exists():
        sample = vectors.sample(max(SAMPLES_LEAST, SAMPLES_PER_LIST * plan.lists))
        index = _hnsw(sample) if plan.kind == "hnsw" else _ivfpq(sample, plan)
        write_whole(index, root / TRAINED)
    return faiss.read_index(str(root / TRAINED))


def _hnsw(sample: Floats) -> Any:
    kind = faiss.ScalarQuantizer.QT_8bit
    index = faiss.IndexHNSWSQ(sample.shape[1], kind, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = CONSTRUCTION_BREADTH
    index.train(sample)
    return index


def _ivfpq(sample: Floats, plan: IndexPlan) -> Any:
    """Trains an ivfpq index on a sample. Inner products with centroid and residual add up, so codes of residuals need
    no table per list."""
    dimension = sample.shape[1]
    coarse = faiss.IndexHNSWFlat(dimension, LINKS, faiss.METRIC_INNER_PRODUCT)
    coarse.hnsw.efConstruction = CONSTRUCTION_BREADTH
    coarse.hnsw.efSearch = ASSIGNMENT_BREADTH
    coarse.add(_centroids(sample, plan.lists))
    code_bits = 8
    index = faiss.IndexIVFPQ(coarse, dimension, plan.lists, plan.code_bytes, code_bits, faiss.METRIC_INNER_PRODUCT)
    index.quantizer_trains_alone = 1
    index.pq.cp.min_points_per_centroid = 1
    index.own_fields = True
    coarse.this.disown()
    index.train(sample)
    return index


def _centroids(sample: Floats, lists: int) -> Floats:
    if lists < TWO_LEVELS:
        return np.asarray(_clusters(sample, lists).centroids)
    # Not faiss.contrib's two_level_clustering, which fails where a first-level cluster is too small for a share.
    first = _clusters(sample, int(lists**0.5))
    owners = first.assign(sample)[1]
    ends = np.round(np.cumsum(np.bincount(owners, minlength=first.k)) / len(sample) * lists).astype(int)
    shares = np.diff(ends, prepend=0).tolist()
    result = [_clusters(sample[owners == n], share).centroids for n, share in enumerate(shares) if share]
    return np.concatenate(result)


def _clusters(sample: Floats, k: int) -> Any:
    options = {"spherical": True, "seed": 1234, "min_points_per_centroid": 1, "max_points_per_centroid": 2000}
    clusters = faiss.Kmeans(sample.shape[1], k, niter=15, gpu=faiss.get_num_gpus() > 0, **options)
    clusters.train(sample)
    return clusters
