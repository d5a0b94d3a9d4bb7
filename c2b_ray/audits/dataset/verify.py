"""Checks a dataset of failures against its manifest, for `c2b dataset verify`. It changes nothing.

Each file is read once, each image decoded. Ids are compared a share of them at a time, so that memory does not grow
with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.dataset import directory
from c2b_ray.audits.dataset.directory import ABOUT, DOCUMENTS, MANIFEST, manifest_problems, read_document
from c2b_ray.audits.dataset.shard_files import DROPS as OF_DROPS
from c2b_ray.audits.dataset.shard_files import SHARDS, ShardFiles
from c2b_ray.audits.dataset.shards.planned import CAPTIONS, PlannedCaptions
from c2b_ray.audits.dataset.steps.plan import Plan, caption_of
from c2b_ray.audits.kit.events import Listener
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.machine import cores
from c2b_ray.engine.progress import Progress, ProgressCounter
from c2b_ray.errors import C2BError, ImageError, SourceError
from c2b_ray.steps.decode import decode
from c2b_ray.storage.parts import digests
from c2b_ray.tables.dataset import DATASET_ROWS, DROPS, OLDER_ROWS

IDS_AT_ONCE = 1_000_000
MOST_LISTED = 20
"""The most problems of one file that are listed one by one."""


@dataclass(frozen=True)
class VerifyResult:
    """`problems`: each names a file and what is wrong with it; empty where the dataset is whole. `notes`: what cannot
    be told."""

    rows: int
    draws: int
    shards: int
    problems: list[str]
    notes: list[str] = field(default_factory=list)


def verify(location: str, listener: Listener | None = None) -> VerifyResult:
    """Raises SourceError where there is no dataset, or one whose build has not ended."""
    dataset_files = ShardFiles(location.rstrip("/"))
    description, manifest = read_document(dataset_files, ABOUT), read_document(dataset_files, MANIFEST)
    if description is None or manifest is None:
        missing = ABOUT if description is None else MANIFEST
        raise SourceError(
            f"{location}: no {missing}: no dataset is there, or its build has not ended; run c2b dataset build again",
            location=location,
        )
    return _Check(dataset_files, description, manifest, Steps(listener)).run()


class _Check:
    def __init__(self, there: ShardFiles, about: dict[str, Any], manifest: dict[str, Any], steps: Steps) -> None:
        self._files, self._about, self._manifest, self._steps = there, about, manifest, steps
        size = about["plan"]
        self._plan = Plan("", size["draws"], size["shard_draws"], 1)
        self._entries: list[dict[str, Any]] = manifest["shards"]

    def run(self) -> VerifyResult:
        problems = list(self._of_documents())
        captions = None if problems else PlannedCaptions(self._files)
        with self._steps.step("verify shards") as on_progress, ThreadPoolExecutor(cores()) as pool:
            teller = ProgressCounter(on_progress, 0, len(self._entries))
            numbered = range(len(self._entries))
            for lines in pool.map(lambda number: list(self._of_shard(number, captions)), numbered):
                problems += lines
                teller.wrote(1, len(lines))
        if not problems:
            with self._steps.step("compare ids") as on_progress:
                problems += self._repeated_ids(on_progress)
        note = directory.note(self._files, self._manifest)
        notes = [] if note is None else [note]
        return VerifyResult(self._manifest["rows"], self._plan.draws, len(self._entries), problems, notes)

    def _of_documents(self) -> Iterator[str]:
        yield from manifest_problems(self._manifest, self._about)
        yield from directory.problems(self._files, self._manifest, DOCUMENTS)
        listed = {entry["name"] for entry in self._entries}
        for folder in (SHARDS, OF_DROPS):
            for name in self._files.names(folder):
                if name not in listed:
                    yield f"{folder}/{name}: is not listed in {MANIFEST}"
        try:
            if self._files.digest(CAPTIONS).sha256 != self._about["captions_sha256"]:
                yield f"{CAPTIONS}: is another file than the dataset was built of"
        except C2BError as error:
            yield f"{CAPTIONS}: {error}"

    def _of_shard(self, number: int, captions: PlannedCaptions | None) -> Iterator[str]:
        entry = self._entries[number]
        damaged = False
        for folder, written in ((SHARDS, entry), (OF_DROPS, entry["drops"])):
            name = f"{folder}/{entry['name']}"
            try:
                digest = self._files.digest(name)
            except C2BError as error:
                yield f"{name}: {error}"
                damaged = True
                continue
            if digest.sha256 != written["sha256"]:
                damaged = True
                size = f"{digest.bytes} bytes, of {written['bytes']}"
                why = size if digest.bytes != written["bytes"] else "other bytes"
                yield f"{name}: {why}: it is not the file that {MANIFEST} lists (sha256)"
        if not damaged:
            try:
                yield from self._of_contents(number, entry, captions)
            except (C2BError, pa.ArrowException) as error:
                yield f"{SHARDS}/{entry['name']}: cannot be read: {error}"

    def _of_contents(self, number: int, entry: dict[str, Any], captions: PlannedCaptions | None) -> Iterator[str]:
        drops = self._files.read(f"{OF_DROPS}/{entry['name']}")
        if not drops.schema.equals(DROPS):
            yield f"{OF_DROPS}/{entry['name']}: has other columns than a table of drops"
            return
        rows, problem_count, draw_pairs = 0, 0, [_pairs(drops)]
        for table in self._files.pieces(f"{SHARDS}/{entry['name']}"):
            if not any(map(table.schema.equals, (DATASET_ROWS, OLDER_ROWS))):
                yield f"{SHARDS}/{entry['name']}: has other columns than a dataset's rows"
                return
            rows += table.num_rows
            draw_pairs.append(_pairs(table))
            for image_id, data in zip(table["image_id"].to_pylist(), table["image"].to_pylist(), strict=True):
                try:
                    decode(data)
                except ImageError as error:
                    problem_count += 1
                    if problem_count <= MOST_LISTED:
                        yield f"{SHARDS}/{entry['name']}: image {image_id} cannot be decoded: {error}"
        if rows != entry["rows"]:
            yield f"{SHARDS}/{entry['name']}: has {rows:,} rows, of {entry['rows']:,}"
        if captions is not None and not _complete(np.concatenate(draw_pairs), captions, self._plan.bounds(number)):
            yield f"{SHARDS}/{entry['name']}: its rows and drops are not, once each, the draws of its plan"

    def _repeated_ids(self, on_progress: Any) -> list[str]:
        shares = max(1, -(-self._manifest["rows"] // IDS_AT_ONCE))
        problems: list[str] = []
        for share in range(shares):
            marks_of_share = [np.zeros(0, "S12")]
            for entry in self._entries:
                marks = digests(self._files.read(f"{SHARDS}/{entry['name']}", ["image_id"])["image_id"])
                first = marks.view(np.uint8).reshape(-1, 12)[:, :4].copy().view(np.uint32)[:, 0]
                marks_of_share.append(marks[first % shares == share])
            marks = np.concatenate(marks_of_share)
            repeated = len(marks) - len(np.unique(marks))
            if repeated:
                problems.append(f"{SHARDS}: {repeated} rows have the image_id of another row")
            on_progress(Progress(share + 1, 0, 0, shares, 0.0, share + 1))
        return problems


def _pairs(table: pa.Table) -> Any:
    return np.stack([table["caption_number"].to_numpy().astype(np.int64), table["draw"].to_numpy()], axis=1)


def _complete(draw_pairs: Any, captions: PlannedCaptions, bounds: tuple[int, int]) -> bool:
    planned_pairs = np.stack(caption_of(captions.firsts, np.arange(*bounds)), axis=1)
    return bool(np.array_equal(draw_pairs[np.lexsort((draw_pairs[:, 1], draw_pairs[:, 0]))], planned_pairs))
