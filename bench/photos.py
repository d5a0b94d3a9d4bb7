"""Makes a folder of JPEGs as large and as grainy as photographs, for the benchmarks of speed.

    python bench/photos.py FOLDER [--n N] [--pictures FOLDER] [--seed S]

Each JPEG is a random crop of a picture, enlarged to 500 × 375 or 375 × 500, with added grain, at quality 90. It has
about 67 kB, like photographs of that size. The pictures come from the world's renderer, or from a folder of real ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from c2b_ray.world import render, sample

LONG, SHORT, GRAIN, QUALITY = 500, 375, 6.0, 90


def photos(n: int, seed: int, pictures: str | None = None) -> Iterator[bytes]:
    random = np.random.default_rng(seed)
    if pictures is None:
        sources = [Image.fromarray(render(scene)) for scene in sample(min(n, 500), seed)]
    else:
        sources = [Image.open(file).convert("RGB") for file in sorted(Path(pictures).glob("*.jpg"))]
    for i in range(n):
        yield photo(sources[i % len(sources)], random)


def photo(source: Image.Image, random: np.random.Generator) -> bytes:
    width, height = (LONG, SHORT) if random.random() < 0.75 else (SHORT, LONG)
    share = random.uniform(0.75, 1) * min(source.width / width, source.height / height)
    across, down = width * share, height * share
    left, top = random.uniform(0, source.width - across), random.uniform(0, source.height - down)
    box = (left, top, left + across, top + down)
    pixels = np.asarray(source.resize((width, height), Image.Resampling.BICUBIC, box=box), np.float32)
    grainy = pixels + random.normal(0, GRAIN, (height, width, 1)).astype(np.float32)
    stream = BytesIO()
    Image.fromarray(np.clip(grainy, 0, 255).astype(np.uint8)).save(stream, "JPEG", quality=QUALITY)
    return stream.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--pictures")
    parser.add_argument("--seed", type=int, default=100_101)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for i, data in enumerate(photos(args.n, args.seed, args.pictures)):
        (args.folder / f"{i:05d}.jpg").write_bytes(data)


if __name__ == "__main__":
    main()
