"""The directory of a dataset during its build: by one process at a time, with one config, also after a crash.

    dataset.json     what is built; another config is refused
    history.json     each process that built here, and the tasks that were repeated because it or its workers died
    digests.json     the digests of these documents, and of manifest.json, when the last build had ended

It knows these documents, not how shards are made.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from c2b_ray.audits.dataset.shard_files import CANDIDATES, REPEATS, REPLIES, WORK, ShardFiles
from c2b_ray.errors import C2BError, RunError, SourceError
from c2b_ray.storage import files, resolve, writers

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


def note(location: ShardFiles, manifest: Mapping[str, Any]) -> str | None:
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
