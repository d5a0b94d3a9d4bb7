"""The second pass: finds failures that are near-duplicates of earlier ones, over all shards; no process holds them all.

    scatter G  a group of shards  → its fingerprints, by the bucket of each of their bands
    compare B  a bucket           → the earliest near-duplicate of each failure there, by the failure's group
    gather G   a group            → the results of all buckets for it, and how many failures its last captions keep

A shard that is already finished, while another one is made anew, gets its fingerprints from its rows and drops. This
module knows files and arrays of numbers, and no images beyond those that marks are computed from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.dataset import shard_files
from c2b_ray.audits.dataset.shard_files import CANDIDATES, DROPS, ENDING, REPEATS, SHARDS, PlannedCaptions, ShardFiles
from c2b_ray.audits.dataset.shard_files import DRAWS as OF_DRAWS
from c2b_ray.audits.dataset.steps.copies import NONE, CopyMarks, bucket_of, earliest_in_band, earliest_moved, moved_rows
from c2b_ray.audits.dataset.steps.fingerprint import THUMBNAIL_BYTES, WINDOW_BYTES, Hashes, bands, thumbnail, windows
from c2b_ray.audits.dataset.steps.plan import Ints, Plan
from c2b_ray.audits.dataset.steps.shard import levels_of, thumbnail_column, thumbnails_of
from c2b_ray.errors import SourceError
from c2b_ray.steps.decode import decode
from c2b_ray.storage import files
from c2b_ray.tables.dataset import CANDIDATE
from c2b_ray.tables.dataset import DROPS as DROP_ROWS

_ENTRIES = pa.schema(
    [
        ("position", pa.int64()),
        ("label", pa.int32()),
        ("hash", pa.uint64()),
        ("band", pa.int8()),
        ("id", pa.string()),
        ("thumbnail", pa.binary(THUMBNAIL_BYTES)),
    ]
)
_PAIRS = pa.schema([("position", pa.int64()), ("earliest", pa.int64()), ("id", pa.string())])
_WANTED = ["caption_number", "draw", "image_id", "fingerprint"]
_THUMBNAIL, _WINDOWS = "thumbnail", "windows"
_FAILURES = pa.schema([DROP_ROWS.field(name) for name in [*_WANTED, _THUMBNAIL, _WINDOWS]])
_INNER, _MOVED = 1, 2
"""Added to the distance, as the band of entries that are inner parts, or moved inner parts."""


class SecondPass:
    """`format`: of the dataset. Format 1 recognises near-duplicates by their fingerprints, 2 also by their thumbnails,
    3 also moved copies by their inner parts."""

    def __init__(
        self, location: ShardFiles, plan: Plan, captions: PlannedCaptions, distance: int | None, format: int
    ) -> None:
        self._files, self._plan, self._captions = location, plan, captions
        self._distance, self._format = distance, format
        self._marked = [name for name, since in ((_THUMBNAIL, 2), (_WINDOWS, 3)) if format >= since]

    def do(self, method: str, number: int, argument: Any) -> Any:
        if method == "check":
            return self.check(argument)
        if method == "sound":
            return self.unsound(*argument)
        if method == "sound_repeats":
            return [] if self._has_all_parts(argument) else [f"{REPEATS}/{argument}"]
        methods: dict[str, Callable[[int], Any]] = {
            "scatter": self.scatter,
            "compare": self.compare,
            "gather": self.gather,
            "listed": self.listed,
        }
        return methods[method](number)

    def listed(self, group: int) -> list[dict[str, Any]]:
        """Returns the manifest's entries for the shards of a group."""
        return [self._entry(number) for number in self._plan.shards_of_group(group)]

    def _entry(self, number: int) -> dict[str, Any]:
        name = f"{self._plan.name(number)}{ENDING}"
        description, drops = self._files.about(f"{DROPS}/{name}"), self._files.digest(f"{DROPS}/{name}")
        of_drops = {"reasons": description["reasons"], "bytes": drops.bytes, "sha256": drops.sha256}
        return {"name": name, **description["shard"], "drops": of_drops}

    def check(self, entries: list[dict[str, Any]]) -> list[str]:
        """Returns the files of these manifest entries that are missing or whose digest differs."""
        damaged = []
        for entry in entries:
            for folder, written in ((SHARDS, entry), (DROPS, entry["drops"])):
                name = f"{folder}/{entry['name']}"
                if not self._files.exists(name) or self._files.digest(name).sha256 != written["sha256"]:
                    damaged.append(name)
        return damaged

    def unsound(self, numbers: list[int], finished: list[int]) -> list[str]:
        """Returns the files of these shards that cannot be read, and rows whose size differs from the size in their
        drops."""
        damaged = []
        for number in numbers:
            name = f"{CANDIDATES}/{self._plan.name(number)}{OF_DRAWS}{ENDING}"
            if not self._readable(name):
                damaged.append(name)
        for number in finished:
            name = f"{self._plan.name(number)}{ENDING}"
            if not self._readable(f"{DROPS}/{name}"):
                damaged.append(f"{DROPS}/{name}")
            elif (
                files.size(self._files.at(f"{SHARDS}/{name}")) != self._files.about(f"{DROPS}/{name}")["shard"]["bytes"]
            ):
                damaged.append(f"{SHARDS}/{name}")
        return damaged

    def _readable(self, name: str) -> bool:
        try:
            self._files.read(name)
        except SourceError:
            return False
        return True

    def _has_all_parts(self, name: str) -> bool:
        """Returns whether a file of parts has its footer, which is written last."""
        try:
            shard_files.read(self._files, f"{REPEATS}/{name.removesuffix(shard_files.PARTS_ENDING)}", 0)
        except pa.ArrowException:
            return False
        return True

    @property
    def _buckets(self) -> int:
        return 0 if self._distance is None else self._plan.buckets(self._distance, self._format)

    def scatter(self, group: int) -> None:
        failures = pa.concat_tables([self._failures(number) for number in self._plan.shards_of_group(group)])
        marks, ids = self._marks(failures), failures["image_id"].combine_chunks()
        rows, hashes, band_of, bucket = self._entries(marks, failures[_WINDOWS])

        def entries(part: Ints) -> pa.Table:
            in_part = rows[part]
            columns = [marks.positions[in_part], marks.labels[in_part], hashes[part], band_of[part]]
            thumbnails = thumbnail_column(marks.thumbnails[in_part])
            return pa.table([*map(pa.array, columns), ids.take(pa.array(in_part)), thumbnails], schema=_ENTRIES)

        shard_files.put(self._files, f"{REPEATS}/entries-{group:04d}", entries, bucket, self._buckets)

    def _entries(self, marks: CopyMarks, of_windows: pa.ChunkedArray) -> tuple[Ints, Hashes, NDArray[np.int8], Ints]:
        """Returns the entries of these failures: the failure's row, a hash, its band, and the bucket."""
        assert self._distance is not None
        all_rows = np.arange(len(marks))
        rows, hashes, band_of, buckets = [], [], [], []
        for number, band in enumerate(bands(marks.hashes, self._distance + 1)):
            rows.append(all_rows)
            hashes.append(marks.hashes)
            band_of.append(np.full(len(marks), number, np.int8))
            buckets.append(bucket_of(marks.labels, band, number, self._buckets))
        if _WINDOWS in self._marked:
            moved_indices, moved, is_moved = moved_rows(levels_of(of_windows, WINDOW_BYTES).view("<u8"))
            rows.append(moved_indices)
            hashes.append(moved)
            band_of.append((self._distance + np.where(is_moved, _MOVED, _INNER)).astype(np.int8))
            buckets.append(bucket_of(marks.labels[moved_indices], moved, self._distance + _INNER, self._buckets))
        return np.concatenate(rows), np.concatenate(hashes), np.concatenate(band_of), np.concatenate(buckets)

    def compare(self, bucket: int) -> None:
        assert self._distance is not None
        parts = [
            shard_files.read(self._files, f"{REPEATS}/entries-{group:04d}", bucket)
            for group in range(self._plan.groups)
        ]
        entries = pa.concat_tables(parts).combine_chunks()
        positions, band = entries["position"].to_numpy(), entries["band"].to_numpy()
        thumbnails = thumbnails_of(entries[_THUMBNAIL])
        marks = CopyMarks(positions, entries["label"].to_numpy(), entries["hash"].to_numpy(), thumbnails)
        earliest = np.full(len(marks), NONE, np.int64)
        for number in range(self._distance + 1):
            of_band = np.flatnonzero(band == number)
            part = marks.take(of_band)
            bits = bands(part.hashes, self._distance + 1)[number]
            earliest[of_band] = earliest_in_band(part, bits, self._distance)
        of_windows = np.flatnonzero(band > self._distance)
        earliest[of_windows] = earliest_moved(marks.take(of_windows), band[of_windows] == self._distance + _MOVED)
        hit = np.flatnonzero(earliest < NONE)
        order = np.argsort(positions, kind="stable")
        rows_hit = order[np.searchsorted(positions, earliest[hit], sorter=order)]
        ids = entries["id"].combine_chunks().take(pa.array(rows_hit))
        pairs = pa.table([pa.array(positions[hit]), pa.array(earliest[hit]), ids], schema=_PAIRS)
        groups = self._plan.groups_of(positions[hit])
        shard_files.put(self._files, f"{REPEATS}/pairs-{bucket:05d}", _taken(pairs), groups, self._plan.groups)

    def gather(self, group: int) -> list[int]:
        """Returns for each shard of the group how many failures of its last caption are left without repeats."""
        parts = [
            shard_files.read(self._files, f"{REPEATS}/pairs-{bucket:05d}", group) for bucket in range(self._buckets)
        ]
        pairs = pa.concat_tables([_PAIRS.empty_table(), *parts])
        pairs = pairs.sort_by([("position", "ascending"), ("earliest", "ascending")])
        positions = pairs["position"].to_numpy()
        first = np.ones(len(positions), bool)
        first[1:] = positions[1:] != positions[:-1]
        pairs = pairs.filter(pa.array(first))
        shards = self._plan.shards_of_group(group)
        of_shard = pairs["position"].to_numpy() // self._plan.shard_draws - shards.start
        shard_files.put(self._files, f"{REPEATS}/group-{group:04d}", _taken(pairs), of_shard, len(shards))
        return [self._left_of_last(number, pairs["position"].to_numpy()) for number in shards]

    def repeats_of(self, number: int) -> dict[int, str]:
        """Returns position → id of the earliest near-duplicate, for the failures of a shard that have one."""
        group = int(self._plan.groups_of(np.array([self._plan.bounds(number)[0]]))[0])
        pairs = shard_files.read(
            self._files, f"{REPEATS}/group-{group:04d}", number - self._plan.shards_of_group(group).start
        )
        return dict(zip(pairs["position"].to_pylist(), pairs["id"].to_pylist(), strict=True))

    def _left_of_last(self, number: int, repeated: Ints) -> int:
        last = self._plan.bounds(number)[1] - 1
        caption = int(np.searchsorted(self._captions.firsts, last, side="right")) - 1
        failures = self._failures(number)
        of_last = failures["caption_number"].to_numpy() == caption
        return int((of_last & ~np.isin(self._captions.positions(failures), repeated)).sum())

    def _failures(self, number: int) -> pa.Table:
        """Returns the failures of a shard, in the order of their draws."""
        name = self._plan.name(number)
        if self._files.exists(f"{CANDIDATES}/{name}{OF_DRAWS}{ENDING}"):
            table = self._compared(f"{CANDIDATES}/{name}{OF_DRAWS}{ENDING}", "reason")
            return table.filter(pc.equal(table["reason"], CANDIDATE)).select(_FAILURES.names).cast(_FAILURES)
        drops = self._compared(f"{DROPS}/{name}{ENDING}")
        drops = drops.filter(pc.is_valid(drops["image_id"])).cast(_FAILURES)
        rows = [self._of_rows(table) for table in self._files.pieces(f"{SHARDS}/{name}{ENDING}")]
        return pa.concat_tables([*rows, drops]).sort_by([("caption_number", "ascending"), ("draw", "ascending")])

    def _compared(self, name: str, *further: str) -> pa.Table:
        """Returns the columns of the draws in a file that are compared."""
        names = [*_WANTED, *self._marked, *further]
        return self._whole(self._files.read(name, names).select(names))

    def _of_rows(self, table: pa.Table) -> pa.Table:
        """Returns the compared columns of a dataset's rows; their marks are computed from the images again."""
        columns = table.select(_WANTED)
        if self._marked:
            images = [decode(data) for data in table["image"].to_pylist()]
            makers = {_THUMBNAIL: thumbnail, _WINDOWS: windows}
            for name in self._marked:
                column = pa.array([makers[name](pixels) for pixels in images], _FAILURES.field(name).type)
                columns = columns.append_column(_FAILURES.field(name), column)
        return self._whole(columns).cast(_FAILURES)

    def _whole(self, table: pa.Table) -> pa.Table:
        """Adds blank marks where the dataset's format has none. Blank marks are equal for all rows."""
        for name in (_THUMBNAIL, _WINDOWS):
            if name not in self._marked:
                kind = _FAILURES.field(name).type
                blank = pa.repeat(pa.scalar(bytes(kind.byte_width), kind), table.num_rows)
                table = table.append_column(_FAILURES.field(name), blank)
        return table.select([*_FAILURES.names, *(name for name in table.column_names if name not in _FAILURES.names)])

    def _marks(self, failures: pa.Table) -> CopyMarks:
        labels = self._captions.label_numbers[failures["caption_number"].to_numpy()]
        thumbnails = thumbnails_of(failures[_THUMBNAIL])
        return CopyMarks(self._captions.positions(failures), labels, failures["fingerprint"].to_numpy(), thumbnails)


def _taken(table: pa.Table) -> Callable[[Ints], pa.Table]:
    return lambda rows: table.take(pa.array(rows))
