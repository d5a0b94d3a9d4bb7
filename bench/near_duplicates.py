"""Measures which pictures the second pass of a dataset drops: distinct scenes of one label, and copies.

    python bench/near_duplicates.py [10000 100000] [--copies 1000] [--distance 4]

`false`: the share of distinct scenes of the embedded world (64 × 64) that are dropped as near-duplicates, by their
fingerprints alone, with their thumbnails, and as moved copies, for each given number of scenes. `cpu_ms`: CPU per image
for its marks, and in the second pass for comparisons.

`copies`: the share of planted copies that are dropped: saved again as JPEG, enlarged, lighter or darker, and moved by
some pixels, at 64 and at 256 pixels a side.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image

from c2b_ray.audits.dataset.steps.copies import NONE, CopyMarks, earliest_moved, earliest_repeats, moved_rows
from c2b_ray.audits.dataset.steps.fingerprint import (
    MOVED_LARGEST_DIFFERENCE,
    MOVED_MEAN_DIFFERENCE,
    alike,
    differing_bits,
    fingerprint,
    thumbnail,
    windows,
)
from c2b_ray.roles import Pixels
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
    "moved 1 px both ways": moved(-1, 1),
    "moved 1 px, JPEG 90": lambda pixels: jpeg(90)(np.ascontiguousarray(moved(0, 1)(pixels))),
    "moved 2 px": moved(-2, 0),
    "moved 2 px both ways": moved(2, 2),
}


@dataclass(frozen=True)
class Prints:
    """The marks of n pictures: hashes (n,), thumbnails (n, bytes) and windows (n, 1 + moves)."""

    hashes: np.ndarray
    thumbnails: np.ndarray
    windows: np.ndarray

    @classmethod
    def of(cls, pictures: list[Pixels]) -> Prints:
        hashes = np.array([fingerprint(picture) for picture in pictures], np.uint64)
        levels = b"".join(thumbnail(picture) for picture in pictures)
        inner = b"".join(windows(picture) for picture in pictures)
        count = len(pictures)
        return cls(
            hashes, *(np.frombuffer(data, kind).reshape(count, -1) for data, kind in ((levels, "u1"), (inner, "<u8")))
        )

    @classmethod
    def joined(cls, parts: list[Prints]) -> Prints:
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in ("hashes", "thumbnails", "windows"))
        )


def left_out(prints: Prints, count: int, distance: int) -> np.ndarray:
    marks = CopyMarks(np.arange(count), np.zeros(count, np.int32), prints.hashes[:count], prints.thumbnails[:count])
    repeated: np.ndarray = earliest_repeats(marks, distance) < NONE
    return repeated


def left_out_as_moved(prints: Prints, count: int) -> np.ndarray:
    rows, hashes, is_moved = moved_rows(prints.windows[:count])
    marks = CopyMarks(rows, np.zeros(len(rows), np.int32), hashes, prints.thumbnails[rows])
    repeated = np.zeros(count, bool)
    repeated[rows[earliest_moved(marks, is_moved) < NONE]] = True
    return repeated


def of_copies(pictures: list[Pixels], distance: int) -> dict[str, float]:
    one, result = Prints.of(pictures), {}
    for name, change in COPIES.items():
        other = Prints.of([np.ascontiguousarray(change(picture)) for picture in pictures])
        near = (differing_bits(one.hashes, other.hashes) <= distance) & alike(one.thumbnails, other.thumbnails)
        moves = (other.windows[:, 1:] == one.windows[:, :1]) & (other.windows[:, 1:] != other.windows[:, :1])
        limits = MOVED_MEAN_DIFFERENCE, MOVED_LARGEST_DIFFERENCE
        near |= moves.any(axis=1) & alike(one.thumbnails, other.thumbnails, *limits)
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
    scenes, parts, seconds = sample(max(args.scenes), 0, target_class=LABEL), [], 0.0
    for at in range(0, len(scenes), 1000):
        pictures = [render(scene) for scene in scenes[at : at + 1000]]
        began = time.process_time()
        parts.append(Prints.of(pictures))
        seconds += time.process_time() - began
    prints = Prints.joined(parts)
    print("marks", json.dumps({"cpu_ms": round(seconds / len(scenes) * 1000, 3)}), flush=True)
    blank = Prints(prints.hashes, np.zeros_like(prints.thumbnails), prints.windows)
    for count in args.scenes:
        began = time.process_time()
        both = left_out(prints, count, args.distance)
        then = time.process_time()
        as_moved = left_out_as_moved(prints, count)
        ended = time.process_time()
        said = {
            "scenes": count,
            "fingerprints_alone": round(float(left_out(blank, count, args.distance).mean()), 5),
            "with_thumbnails": round(float(both.mean()), 5),
            "and_as_moved_copies": round(float((both | as_moved).mean()), 5),
            "cpu_ms": round((then - began) / count * 1000, 4),
            "cpu_ms_moved": round((ended - then) / count * 1000, 4),
        }
        print("false", json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
