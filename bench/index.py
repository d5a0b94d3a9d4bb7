"""Measures the image index on synthetic vectors: its build, recall, memory and speed.

    python bench/index.py build   --out D [--vectors 10000000] [--kind K] [--memory 4GiB]   a killed build continues
    python bench/index.py truth   --out D                     exact neighbours of the queries, block by block
    python bench/index.py measure --out D [--probes 256]      recall, memory, latency, throughput
    python bench/index.py flat    --out D                     throughput of flat search of a part, scaled to all

Vectors are unit-norm draws around 20,000 centres, which are themselves draws around 1,000 topics; a centre's share of
the vectors is log-normal (σ = 1). The noise has a decaying spectrum (variance of direction i ∝ 1/i, in a random basis),
of norm 1 around topics and 0.8 around centres, and white noise of norm 0.3 is added: real embeddings vary along few
directions, and a vector's neighbours come from several clusters. Queries are new draws of the same distribution. No
photograph or caption was embedded, so the gap between text and image embeddings of real encoders is missing.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa

from c2b_ray.models import catalog
from c2b_ray.models.index import build as faiss_build
from c2b_ray.models.index import plan as faiss_plan
from c2b_ray.models.index.faiss_index import FaissIndex
from c2b_ray.models.index.vectors import StoredVectors, exhaustive
from c2b_ray.roles import Floats

DIMENSION = 512
TOPICS, CENTRES = 1000, 20_000
CHUNK = 250_000
SEED = 100_000
QUERIES, K = 1000, 20
FLAT_VECTORS = 1_000_000


class World:
    """The distribution of the vectors."""

    def __init__(self, dimension: int = DIMENSION) -> None:
        rng = np.random.default_rng(SEED)
        self._dimension = dimension
        spread = 1 / np.sqrt(np.arange(1, dimension + 1))
        basis = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
        self._spread = ((spread / np.linalg.norm(spread))[:, None] * basis).astype(np.float32)
        topics = self._noise(rng, TOPICS)
        self.centres = topics[rng.integers(0, TOPICS, CENTRES)] + self._noise(rng, CENTRES)
        shares = rng.lognormal(sigma=1, size=CENTRES)
        self._shares = np.cumsum(shares / shares.sum())

    def _noise(self, rng: np.random.Generator, n: int) -> Floats:
        return rng.standard_normal((n, self._dimension), dtype=np.float32) @ self._spread

    def draw(self, n: int, seed: int) -> Floats:
        rng = np.random.default_rng([SEED, seed])
        owners = np.minimum(np.searchsorted(self._shares, rng.random(n)), CENTRES - 1)
        white = rng.standard_normal((n, self._dimension), dtype=np.float32) * np.float32(0.3 / self._dimension**0.5)
        found = self.centres[owners] + np.float32(0.8) * self._noise(rng, n) + white
        return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


@dataclass
class Chunk:
    """A source for the index: a number of draws, without images."""

    number: int
    rows: int
    world: World

    @property
    def name(self) -> str:
        return f"chunk-{self.number}"

    def read(self, most: int) -> Iterator[tuple[pa.Table, Floats]]:
        print(f"{time.strftime('%X')} {self.name}", flush=True)
        vectors = self.world.draw(self.rows, self.number)
        for start in range(0, self.rows, most):
            block = vectors[start : start + most]
            keys = [f"{self.number}/{start + i}" for i in range(len(block))]
            place = {"file": pa.nulls(len(block), pa.string())}
            place |= {name: pa.nulls(len(block), pa.int64()) for name in ("offset", "size")}
            yield pa.table({"key": keys, **place, "metadata": ["{}"] * len(block)}), block


def chunks(vectors: int, world: World) -> list[Chunk]:
    return [Chunk(n, min(CHUNK, vectors - first), world) for n, first in enumerate(range(0, vectors, CHUNK))]


def build(out: Path, vectors: int, wish: faiss_plan.IndexWishes) -> None:
    began, sources = time.monotonic(), chunks(vectors, World())
    manifest = faiss_build.write(out, "none:synthetic", "1", sources, wish, group_rows=16384, images_root=str(out))
    note(out, "build", seconds=time.monotonic() - began, peak_rss=peak(), plan=manifest.plan.__dict__)


def truth(out: Path) -> None:
    index = FaissIndex(str(out))
    queries = World().draw(QUERIES, 10**6)
    stored = StoredVectors(out / "vectors.f16", index.count, index.dimension)
    began = time.monotonic()
    ids, similarities = exhaustive(queries, 100, stored.blocks())
    np.savez(out / "truth.npz", ids=ids, similarities=similarities)
    ranks = {f"similarity_of_rank_{rank}": float(similarities[:, rank - 1].mean()) for rank in (1, 20, 100)}
    note(out, "truth", seconds=time.monotonic() - began, **ranks)


def measure(out: Path, probes: int | None, shortlist: int | None) -> None:
    asked = {"probes": probes, "shortlist": shortlist}
    options = "?" + "&".join(f"{name}={value}" for name, value in asked.items() if value)
    began = time.monotonic()
    index = catalog.index(f"faiss:{out}{options}")
    opening = time.monotonic() - began
    queries, exact = World().draw(QUERIES, 10**6), np.load(out / "truth.npz")["ids"][:, :K]
    index.search(queries[:500], K)  # reads the lists and rows that queries need from the disk
    single = []
    for query in queries[500:800]:
        began = time.monotonic()
        index.search(query[None], K)
        single.append(time.monotonic() - began)
    began = time.monotonic()
    found = index.search(queries, K).ids
    batched = QUERIES / (time.monotonic() - began)
    recall = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(found, exact, strict=True)])
    status = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    note(
        out,
        "measure",
        **asked,
        recall=float(recall),
        opening_s=opening,
        **{f"single_p{q}_ms": float(np.percentile(single, q)) * 1e3 for q in (50, 95, 99)},
        batched_per_second=batched,
        peak_rss=peak(),
        anonymous=status["RssAnon"].strip(),
        mapped=status["RssFile"].strip(),
        shards_bytes=sum(file.stat().st_size for file in out.glob("shard-*")),
    )


def flat(out: Path) -> None:
    """Measures faiss's flat search of the first vectors, in float32 in memory; scales the time to all vectors."""
    index = FaissIndex(str(out))
    portion = min(FLAT_VECTORS, index.count)
    vectors = np.memmap(out / "vectors.f16", np.float16, "r", shape=(index.count, DIMENSION))
    exact = faiss.IndexFlatIP(DIMENSION)
    for start in range(0, portion, 65536):
        exact.add(np.asarray(vectors[start : min(start + 65536, portion)], np.float32))
    queries = World().draw(QUERIES, 10**6)
    began = time.monotonic()
    exact.search(queries, K)
    seconds = (time.monotonic() - began) * index.count / portion
    note(out, "flat", portion=portion, scaled_batched_per_second=QUERIES / seconds)


def peak() -> str:
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB"


def note(out: Path, stage: str, **values: object) -> None:
    line = json.dumps({"stage": stage, **values})
    print(line, flush=True)
    with open(out.parent / f"{out.name}.results.jsonl", "a", encoding="utf-8") as file:
        file.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["build", "truth", "measure", "flat"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vectors", type=int, default=10_000_000)
    parser.add_argument("--kind", choices=faiss_plan.KINDS)
    parser.add_argument("--memory", type=faiss_plan.memory, default="4GiB")
    parser.add_argument("--shards", type=int)
    parser.add_argument("--threads", type=int, help="number of faiss threads while building")
    parser.add_argument("--probes", type=int)
    parser.add_argument("--shortlist", type=int, help="candidates compared exactly for each neighbour")
    args = parser.parse_args()
    if args.threads:
        faiss.omp_set_num_threads(args.threads)
    if args.stage == "build":
        build(args.out, args.vectors, faiss_plan.IndexWishes(args.kind, args.memory, args.shards))
    elif args.stage == "truth":
        truth(args.out)
    elif args.stage == "measure":
        measure(args.out, args.probes, args.shortlist)
    else:
        flat(args.out)


if __name__ == "__main__":
    main()
