"""Makes the faiss indexes of a directory from its file of vectors: trained on a sample, then shard by shard.

In memory are the sample and one shard. A file gets its name once it is complete, so after a crash the same call resumes
with the first missing one. It knows no images, and does not choose the plan.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from c2b_ray.models.index.plan import LINKS, IndexPlan, Part
from c2b_ray.roles import Floats

TRAINED = "trained.faiss"
ROWS_AT_ONCE = 65536
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
