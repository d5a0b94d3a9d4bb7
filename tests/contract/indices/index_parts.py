"""Images with embeddings in Parquet, of which indexes are built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.roles import Floats

D = 8


def unit(n: int, seed: int = 0) -> Floats:
    vectors = np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def lists(vectors: Floats) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


def part(path: Path, first: int, vectors: Floats, **columns: pa.Array) -> Path:
    n = len(vectors)
    numbers = range(first, first + n)
    table = {
        "key": pa.array([f"folder/{i}.jpg" for i in numbers], pa.string()),
        "bytes": pa.array([b"image %d" % i for i in numbers], pa.binary()),
        "embedding": lists(vectors),
        "caption": pa.array([f"number {i}" for i in numbers], pa.string()),
    }
    pq.write_table(pa.table({**table, **columns}), path)
    return path
