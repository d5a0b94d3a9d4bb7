"""Measures how often an image generator's pictures show their prompts, by factor, and its pictures per second.

python bench/generators.py [SPEC] [--n N] [--seed S] [--grid FILE.png]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image

from c2b_ray.models import catalog
from c2b_ray.roles import GenerationRequest, ImageGenerator
from c2b_ray.world.training.generator_quality import evaluate, prompts
from c2b_ray.world.training.train import jury
from c2b_ray.world.zoo import WEIGHTS

_ACROSS, _DOWN = 12, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", nargs="?", default="world:diffusion?batch=50")
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=200_001)
    parser.add_argument("--models", type=Path, default=WEIGHTS, help="the folder of the judge, unless it is shipped")
    parser.add_argument("--grid", type=Path, help="a PNG of the first pictures; their prompts are printed")
    args = parser.parse_args()
    generator = catalog.image_generator(args.spec)
    if args.grid is not None:
        write_grid(generator, args.grid, args.seed)
    print(json.dumps(evaluate(generator, jury(args.models), args.n, args.seed), indent=1))


def write_grid(generator: ImageGenerator, file: Path, seed: int) -> None:
    """Writes the pictures row by row, in the order of the printed prompts; a failed picture stays grey."""
    texts = [query.text for query in prompts(_ACROSS * _DOWN, seed)]
    print("\n".join(texts))
    images = generator.generate([GenerationRequest(text, seed + row) for row, text in enumerate(texts)])
    shape = next(image.pixels.shape for image in images if image.pixels is not None)
    grey = np.full(shape, 128, np.uint8)
    tiles = [image.pixels if image.pixels is not None else grey for image in images]
    rows = [np.concatenate(tiles[k : k + _ACROSS], axis=1) for k in range(0, len(tiles), _ACROSS)]
    Image.fromarray(np.concatenate(rows)).save(file)


if __name__ == "__main__":
    main()
