"""The directory of a dataset: held by one process during a build, and checked against its manifest."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.dataset.shard_files import (
    CANDIDATES,
    CAPTIONS,
    REPEATS,
    REPLIES,
    SHARDS,
    WORK,
    PlannedCaptions,
    ShardFiles,
)
from c2b_ray.audits.dataset.shard_files import DROPS as OF_DROPS
from c2b_ray.audits.dataset.steps.plan import Plan, caption_of
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Steps
from c2b_ray.engine.machine import cores
from c2b_ray.engine.progress import Progress, ProgressCounter
from c2b_ray.errors import C2BError, ImageError, RunError, SourceError
from c2b_ray.steps.decode import decode
from c2b_ray.storage import files, resolve, writers
from c2b_ray.storage.parts import digests
from c2b_ray.tables.dataset import DATASET_ROWS, DROPS, OLDER_ROWS

# Records the digests of a dataset's documents when its build ends, and compares them later: digests.json.


DIGESTS = "digests.json"
RECORDED = "documents"
"""The entry of the manifest that says that there is such a file."""
NOT_RECORDED = (
    f"built by an earlier release, which recorded no {DIGESTS}: whether its JSON documents have changed since cannot "
    "be told"
)


def record(location: ShardFiles, names: Sequence[str]) -> None:
    """Writes the digests of these documents, once none of them changes any more."""
    files.write_bytes(location.at(DIGESTS), _content(location, names))


def forget(location: ShardFiles) -> None:
    """Removes the digests, because the documents are about to change."""
    if location.exists(DIGESTS):
        location.remove(DIGESTS)


def problems(location: ShardFiles, manifest: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    """Yields which documents are not those that the build ended with."""
    if not location.exists(DIGESTS):
        if manifest.get(RECORDED) == DIGESTS:
            yield f"{DIGESTS}: is missing; the last build has not ended, or the file was removed"
        return
    data = files.read_bytes(location.at(DIGESTS))
    try:
        if data == _content(location, names):
            return
        recorded = json.loads(data)
        now = json.loads(_content(location, names))
        changed = [name for name in names if recorded[name] != now[name]]
    except (C2BError, ValueError, KeyError, TypeError) as error:
        yield f"{DIGESTS}: it, or a document that it lists, is damaged: {error!r}"
        return
    yield from (f"{name}: is not the file that the build ended with (sha256)" for name in changed)
    if not changed:
        yield f"{DIGESTS}: is not the file that the build wrote"


def not_recorded_note(location: ShardFiles, manifest: Mapping[str, Any]) -> str | None:
    """Returns what cannot be checked of a dataset that an earlier release built; None for others."""
    recorded = location.exists(DIGESTS) or manifest.get(RECORDED) == DIGESTS
    return None if recorded else NOT_RECORDED


def _content(location: ShardFiles, names: Sequence[str]) -> bytes:
    digests = {name: location.digest(name).sha256 for name in names}
    return json.dumps(digests, indent=1).encode()


ABOUT, MANIFEST, HISTORY = "dataset.json", "manifest.json", "history.json"
DOCUMENTS = (ABOUT, MANIFEST, HISTORY)
BUSY = "busy-"
OVER = "over-"
"""The prefix of the folder of a process that is counted and being removed."""
_FIELDS = {ABOUT: ("config", "config_hash", "plan"), MANIFEST: ("config_hash", "shards", "rows", "drops"), HISTORY: ()}
"""The fields that each document must have."""
_UNFINISHED = rf"({'|'.join(map(re.escape, (*DOCUMENTS, DIGESTS)))})\.tmp-[0-9a-f]{{8}}"


@dataclass
class DatasetBuild:
    """A build. `still_ours`: raises RunError if another process has taken over. `about`: the content of dataset.json;
    None before it is written."""

    files: ShardFiles
    still_ours: Callable[[], None]
    history: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def location(self) -> str:
        return self.files.location

    @property
    def about(self) -> dict[str, Any] | None:
        return read_document(self.files, ABOUT)

    @property
    def manifest(self) -> dict[str, Any] | None:
        return read_document(self.files, MANIFEST)

    def begin(self, about: Mapping[str, Any]) -> None:
        self._write(ABOUT, about)

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Writes the manifest, and removes files that only the build needs."""
        self._write(MANIFEST, manifest)
        self.clear()

    def clear(self) -> None:
        for folder in (CANDIDATES, REPEATS, REPLIES):
            if self.files.names(folder):
                files.remove_directory(self.files.at(folder))
        self.files.make_folders()

    def lost(self, workers: int, repeated: int) -> None:
        """Records how many workers of this process have died, and how many tasks were repeated because of it."""
        entry = self.history[self.files.writer]
        if (entry["workers_lost"], entry["repeated"]) != (workers, repeated):
            entry["workers_lost"], entry["repeated"] = workers, repeated
            self._write(HISTORY, self.history)

    def repeated(self) -> dict[str, int]:
        """Returns the counts of all builds here, and of the tasks that were under way when a process died or was
        stopped."""
        entries = self.history.values()
        return {
            "builds": len(self.history),
            "builds_ended_early": sum(entry["ended"] != "finished" for entry in entries if entry["ended"]),
            "workers_lost": sum(entry["workers_lost"] for entry in entries),
            "tasks": sum(entry["repeated"] for entry in entries),
        }

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        self.still_ours()
        data = json.dumps(document, indent=1, ensure_ascii=False).encode()
        files.write_bytes(self.files.at(name), data)

    def _begin_writing(self) -> None:
        self.history = read_document(self.files, HISTORY) or {}
        unfinished = [name for name in self.files.names(WORK) if name != self.files.writer]
        for other in unfinished:
            if not other.startswith(OVER):
                self._settle(other, "killed")
        self.files.begin_writing()
        forget(self.files)
        self.history[self.files.writer] = {"ended": None, "workers_lost": 0, "repeated": 0}
        self._write(HISTORY, self.history)
        for other in unfinished:
            self._clear_away(other)
        for name in files.entries(self.location):
            if re.fullmatch(_UNFINISHED, name):
                self.files.remove(name)

    def _end_writing(self, ending: str) -> None:
        self._settle(self.files.writer, ending)
        self._write(HISTORY, self.history)
        if ending == "finished" and all(map(self.files.exists, DOCUMENTS)):
            record(self.files, DOCUMENTS)
        self._clear_away(self.files.writer)

    def _clear_away(self, process: str) -> None:
        """Removes a process's folder. It renames the folder first, because workers that outlived the process could
        still write to it."""
        folder = self.files.at(f"{WORK}/{process}")
        if self.files.local:
            folder = self.files.at(f"{WORK}/{OVER}{uuid.uuid4().hex}")
            with files.refusals(folder):
                os.rename(resolve(self.files.at(f"{WORK}/{process}"))[1], resolve(folder)[1])
        files.remove_directory(folder)

    def _settle(self, process: str, ending: str) -> None:
        """Counts the unfinished tasks of a process, once."""
        entry = self.history.setdefault(process, {"ended": None, "workers_lost": 0, "repeated": 0})
        if entry["ended"] is None:
            notes = self.files.names(f"{WORK}/{process}")
            entry["ended"] = ending
            entry["repeated"] += sum(note.startswith(BUSY) for note in notes)


@contextmanager
def building(location: str) -> Iterator[DatasetBuild]:
    """Opens the directory for this process alone to build in. Raises RunError if another one does, or if it has other
    files."""
    files.make_directory(location)
    with writers.single_writer(location) as still_ours:
        build = DatasetBuild(ShardFiles(location.rstrip("/"), uuid.uuid4().hex), still_ours)
        if build.about is None:
            own_files = {*writers.FILES, "captions.parquet", HISTORY, MANIFEST, DIGESTS, WORK, CANDIDATES, REPEATS}
            own_files |= {"shards", "drops"}
            if other_files := [
                name for name in files.entries(location) if name not in own_files and ".tmp-" not in name
            ]:
                raise RunError(
                    f"{location} is not empty and holds no dataset ({other_files[0]} …); choose an empty --out",
                    run=location,
                )
        build._begin_writing()
        try:
            yield build
        except BaseException:
            build._end_writing("stopped")
            raise
        build._end_writing("finished")


def read_document(location: ShardFiles, name: str) -> dict[str, Any] | None:
    """Returns a JSON document of a dataset; None if it does not exist. Raises SourceError if it is damaged."""
    if not location.exists(name):
        return None
    try:
        document = json.loads(files.read_bytes(location.at(name)))
    except ValueError as error:
        raise _no_document(location, name, f"is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise _no_document(location, name, f"expected a JSON object, got {type(document).__name__}")
    if missing := [field for field in _FIELDS[name] if field not in document]:
        raise _no_document(location, name, f"lacks {', '.join(missing)}")
    if name == MANIFEST and not _lists_shards(document["shards"]):
        raise _no_document(location, name, "its list of shards is damaged")
    return document


def _lists_shards(entries: Any) -> bool:
    """Returns whether these are the entries of shards, each with its fields."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return False
    drops = [entry.get("drops") for entry in entries]
    is_whole = all({"name", "rows", "bytes", "sha256"} <= entry.keys() for entry in entries)
    return is_whole and all(
        isinstance(entry_drops, dict) and {"reasons", "bytes", "sha256"} <= entry_drops.keys() for entry_drops in drops
    )


def _no_document(location: ShardFiles, name: str, why: str) -> SourceError:
    return SourceError(f"{location.at(name)}: {why}; delete it and build again", location=location.at(name))


def manifest_problems(manifest: Mapping[str, Any], description: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a manifest says that its own list of shards, or dataset.json, contradicts."""
    draws, shards_planned = (
        description["plan"]["draws"],
        -(-description["plan"]["draws"] // description["plan"]["shard_draws"]),
    )
    entries, drops = manifest["shards"], Counter[str]()
    for entry in entries:
        drops.update(entry["drops"]["reasons"])
    if len(entries) != shards_planned:
        yield f"{MANIFEST}: lists {len(entries)} shards, of {shards_planned} in the plan"
    if any(not entry["name"].startswith(f"{number:06d}-") for number, entry in enumerate(entries)):
        yield f"{MANIFEST}: lists its shards in another order than that of their numbers"
    if sum(entry["rows"] for entry in entries) != manifest["rows"]:
        yield f"{MANIFEST}: says {manifest['rows']} rows, its shards have others in all"
    if manifest.get("draws", draws) != draws:
        yield f"{MANIFEST}: says {manifest['draws']} draws, of {draws} in the plan"
    if drops != Counter({name: count for name, count in manifest["drops"].items() if count}):
        yield f"{MANIFEST}: its counts of drops are not those of its shards"


# Checks a dataset of failures against its manifest, for `c2b dataset verify`. It changes nothing.


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
        note = not_recorded_note(self._files, self._manifest)
        notes = [] if note is None else [note]
        return VerifyResult(self._manifest["rows"], self._plan.draws, len(self._entries), problems, notes)

    def _of_documents(self) -> Iterator[str]:
        yield from manifest_problems(self._manifest, self._about)
        yield from problems(self._files, self._manifest, DOCUMENTS)
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
