"""Checks whether images are still those that a run measured, by the hashes of their bytes, noted when they were
fetched.

It compares a run's notes with what a source holds now, or two runs with each other; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.engine.images import FETCH
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import RunError
from c2b_ray.steps.draw import ImageSource, Rows
from c2b_ray.storage.ids import digests
from c2b_ray.storage.parts import Parts, opened
from c2b_ray.tables import has_content

BATCH = 256
NOTED = ["image_id", "key", "content"]


def check_unchanged(
    run: C2BRun,
    wanted: Callable[[], pa.Table],
    source: Callable[[], ImageSource],
    runner: Runner,
    table: str = "images",
) -> None:
    """Raises RunError where the source now holds other bytes than the run fetched.

    `wanted`: makes the table of its images and their rows. `table`: of the run, which has a hash of each image. Files
    whose names stayed and whose pictures changed would be classified by the old pictures and reported with the new
    ones. A missing file changes nothing: the run has its bytes. Nor is an index checked that holds its images itself:
    its revision depends on their bytes, and so does the run's id of each image.
    """
    if not run.has(table):
        return
    total, changed = runner.call(partial(_changed, wanted, opened(run.location(table)), source), FETCH)
    if changed:
        raise RunError(
            f"{run.path}: {len(changed):,} of its {total:,} images are other files now than it measured, the "
            f"first is {changed[0]!r}; give another --out to audit them as they are, or put the former files back"
        )


def _changed(wanted: Callable[[], pa.Table], parts: Parts, make: Callable[[], ImageSource]) -> tuple[int, list[str]]:
    """Returns how many of the `wanted` images the parts hold, and the keys of those whose bytes no longer match, in the
    order of their rows; none where the source holds its images itself.

    It reads a part at a time: the keys of a million images take more memory than a driver on Ray otherwise needs.
    """
    source = make()
    if "error" not in source.fetch([]).column_names:
        return 0, []
    images = wanted()
    marks = digests(images["image_id"])
    order = np.argsort(marks)
    marks, rows = marks[order], images["row"].to_numpy()[order]
    total, changed = 0, []
    for noted in parts.each(NOTED):
        there = digests(noted["image_id"])
        at = np.minimum(np.searchsorted(marks, there), len(marks) - 1)
        asked = marks[at] == there if len(marks) else np.zeros(len(there), bool)
        total += int(asked.sum())
        changed += _of_part(rows[at[asked]], noted["content"].filter(pa.array(asked)), source)
    return total, [key for _, key in sorted(changed)]


def _of_part(rows: Rows, contents: pa.ChunkedArray, source: ImageSource) -> list[tuple[int, str]]:
    """Returns the rows, and their keys, whose bytes no longer match `contents`."""
    changed = []
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH].tolist()
        now, then = source.fetch(some), contents.slice(start, BATCH).to_pylist()
        for row, key, data, content in zip(some, now["key"].to_pylist(), now["bytes"].to_pylist(), then, strict=True):
            if data is not None and content is not None and not has_content(data, content):
                changed.append((row, key))
    return changed


def _differ(one: str | None, other: str | None) -> bool:
    """Tells whether two hashes belong to other bytes. Runs of different releases may have different hashes of the same
    bytes, of different lengths, which tell nothing."""
    return one is not None and other is not None and len(one) == len(other) and one != other


def check_same_images(a: C2BRun, b: C2BRun) -> None:
    """Raises RunError where images that both runs drew have other bytes in one than in the other."""
    drawn = pc.unique(b.draws["image_id"])
    of_a = {row["image_id"]: row for row in a.read("images", NOTED).to_pylist()}
    of_b = b.read("images", NOTED)
    changed = [
        row["key"]
        for row in of_b.filter(pc.is_in(of_b["image_id"], drawn)).to_pylist()
        if (other := of_a.get(row["image_id"])) is not None and _differ(row["content"], other["content"])
    ]
    if changed:
        raise RunError(
            f"{len(changed):,} images that {a.path} and {b.path} share had other bytes in one than in the other, the "
            f"first is {sorted(changed)[0]!r}: files were replaced between the two, so their answers cannot be paired; "
            "audit both classifiers in one run, or again on the same files"
        )
