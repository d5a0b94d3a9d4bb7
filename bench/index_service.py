"""Times one caption through warm Serve apps, and many through Ray Data, with the world's encoder and synthetic vectors.

    python bench/index_service.py --out D [--vectors 200000] [--captions 20000]

The index holds draws of `index.World` in the encoder's dimension, without images: the neighbours mean nothing, and only
times are measured. The encoder is tiny; a real one takes longer.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from index import World, chunks

from c2b_ray.audits.index import search_many
from c2b_ray.engine.cluster import ensure_ray
from c2b_ray.models import catalog
from c2b_ray.models.index import build as faiss_build
from c2b_ray.models.index.plan import IndexWishes
from c2b_ray.serving.ensure import ensure
from c2b_ray.world import caption, sample

ENCODER = "world:clip"
K = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vectors", type=int, default=200_000)
    parser.add_argument("--captions", type=int, default=20_000)
    args = parser.parse_args()
    index = args.out / "index"
    if not index.exists():
        encoder = catalog.encoder(ENCODER)
        sources = chunks(args.vectors, World(encoder.dimension))
        faiss_build.write(index, ENCODER, encoder.revision, sources, IndexWishes("ivfpq"), images_root=str(args.out))
    texts = [caption(scene, seed) for seed, scene in enumerate(sample(args.captions, 100_000))]
    (args.out / "captions.txt").write_text("\n".join(texts))
    with ensure_ray():
        print(json.dumps(one_by_one(str(index), texts[:300])), flush=True)
        began = time.monotonic()
        result = search_many(str(index), str(args.out / "captions.txt"), str(args.out / "answers"), K)
        seconds = time.monotonic() - began
        print(json.dumps({"captions": result.rows, "seconds": seconds, "of_which_searching": result.seconds}))


def one_by_one(path: str, texts: list[str]) -> dict[str, float]:
    served = ensure(encoder=ENCODER, index=True)
    try:
        encoder, index = served.encoder, served.index(path)
        assert encoder is not None
        seconds = []
        for text in texts:
            began = time.monotonic()
            found = index.search(encoder.encode_texts([text]), K)
            keys = index.metadata(found.ids[0].tolist())["key"]
            seconds.append(time.monotonic() - began)
            assert len(keys) == K
    finally:
        served.stop()
    warm = np.array(seconds[100:]) * 1e3
    return {f"caption_p{q}_ms": float(np.percentile(warm, q)) for q in (50, 95, 99)}


if __name__ == "__main__":
    main()
