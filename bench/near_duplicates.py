"""What the second pass of a dataset leaves out of pictures of one label: distinct scenes, and copies of pictures.

    python bench/near_duplicates.py [10000 100000] [--copies 1000] [--distance 4]

`false`: the share of distinct scenes of the embedded world (64 × 64) that are left out as near-duplicates, by their
fingerprints alone and with their thumbnails; of all numbers of scenes that are given, each the first of the last.
`copies`: the share of planted copies that are left out: saved again as JPEG, made larger, lighter or darker, and moved
by pixels, at 64 and at 256 pixels a side.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from io import BytesIO

import numpy as np
from PIL import Image

from c2b_ray.roles import Pixels
from c2b_ray.steps.dataset.fingerprint import THUMBNAIL_BYTES, alike, differing_bits, fingerprint, thumbnail
from c2b_ray.steps.dataset.repeats import NONE, Marks, earliest_repeats
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample

LABEL = "boat"
LARGE = 256


def jpeg(quality: int) -> Callable[[Pixels], Pixels]:
    def saved(pixels: Pixels) -> Pixels:
        sink = BytesIO()
        Image.fromarray(pixels).save(sink, "JPEG", quality=quality)
        return np.asarray(Image.open(sink))

    return saved


def moved(right: int, down: int) -> Callable[[Pixels], Pixels]:
    edge = max(abs(right), abs(down))

    def of(pixels: Pixels) -> Pixels:
        wide = np.pad(pixels, ((edge, edge), (edge, edge), (0, 0)), mode="edge")
        height, width = pixels.shape[:2]
        return wide[edge - down : edge - down + height, edge - right : edge - right + width]

    return of


def lighter(levels: int) -> Callable[[Pixels], Pixels]:
    return lambda pixels: np.clip(pixels.astype(np.int16) + levels, 0, 255).astype(np.uint8)


def resized(pixels: Pixels, side: int) -> Pixels:
    return np.asarray(Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC))


COPIES: dict[str, Callable[[Pixels], Pixels]] = {
    "JPEG 90": jpeg(90),
    "JPEG 75": jpeg(75),
    "JPEG 50": jpeg(50),
    "96 px": lambda pixels: resized(pixels, 96),
    "+20": lighter(20),
    "-20": lighter(-20),
    "moved 1 px": moved(1, 0),
    "moved 2 px": moved(-2, 0),
    "moved 2 px both ways": moved(2, 2),
}


def prints(pictures: list[Pixels]) -> tuple[np.ndarray, np.ndarray]:
    hashes = np.array([fingerprint(picture) for picture in pictures], np.uint64)
    levels = b"".join(thumbnail(picture) for picture in pictures)
    return hashes, np.frombuffer(levels, np.uint8).reshape(-1, THUMBNAIL_BYTES)


def left_out(hashes: np.ndarray, thumbnails: np.ndarray, distance: int) -> float:
    count = len(hashes)
    marks = Marks(np.arange(count), np.zeros(count, np.int32), hashes, thumbnails)
    return float((earliest_repeats(marks, distance) < NONE).mean())


def of_copies(pictures: list[Pixels], distance: int) -> dict[str, float]:
    hashes, small = prints(pictures)
    result = {}
    for name, change in COPIES.items():
        other, others_small = prints([np.ascontiguousarray(change(picture)) for picture in pictures])
        near = (differing_bits(hashes, other) <= distance) & alike(small, others_small)
        result[name] = round(float(near.mean()), 3)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--copies", type=int, default=1000)
    parser.add_argument("--distance", type=int, default=4)
    args = parser.parse_args()
    planted = [render(scene) for scene in sample(args.copies, 1, target_class=LABEL)]
    print("copies, 64 px", json.dumps(of_copies(planted, args.distance)), flush=True)
    large = [resized(picture, LARGE) for picture in planted]
    print(f"copies, {LARGE} px", json.dumps(of_copies(large, args.distance)), flush=True)
    scenes = sample(max(args.scenes), 0, target_class=LABEL)
    parts = [prints([render(scene) for scene in scenes[at : at + 1000]]) for at in range(0, len(scenes), 1000)]
    hashes, thumbnails = (np.concatenate(part) for part in zip(*parts, strict=True))
    for count in args.scenes:
        alone = left_out(hashes[:count], np.zeros_like(thumbnails[:count]), args.distance)
        began = time.process_time()
        both = left_out(hashes[:count], thumbnails[:count], args.distance)
        seconds = round(time.process_time() - began, 2)
        said = {"scenes": count, "fingerprints_alone": round(alone, 5), "with_thumbnails": round(both, 5)}
        print("false", json.dumps(said | {"cpu_s": seconds}), flush=True)


if __name__ == "__main__":
    main()
