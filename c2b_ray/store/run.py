"""A run directory: its tables, its manifest, and the rule that one process writes it.

    RUN/run.json           what was asked, by which models, when, how long each step took, what was counted, and of a
                           finished run its tables (`manifest`)
        proposals.parquet  rejected.parquet  captions.parquet  draws.parquet  scores.parquet
        pooled.parquet                         the scores of each value over all classes together
        pool.parquet                           what was looked at, drawn or not; rank is the order of looking
        confirmation.parquet                   draws that confirm findings, where the audit asks for them,
        confirmation_pool.parquet              and what was looked at for them
        calibration.parquet                    where images were verified
        agreement.parquet                      where they come from two sources
        intersections.parquet                  where pairs of attributes were asked for
        images/  verifications/  predictions/  Parquet parts
        report.html

It knows the names and schemas of the tables, not how they come about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray import schemas
from c2b_ray.errors import RunError, SourceError
from c2b_ray.filesystems import absent_bucket
from c2b_ray.store import files, listing, writer
from c2b_ray.store.manifest import FORMAT, Manifest, checked, differences, merged, parse

MANIFEST = "run.json"
CLASSIFIER = "classifier "
"""What precedes a classifier's name among the manifest's models."""

TABLES: dict[str, pa.Schema] = {
    "proposals": schemas.PROPOSALS,
    "rejected": schemas.REJECTED,
    "captions": schemas.CAPTIONS,
    "draws": schemas.DRAWS,
    "pool": schemas.DRAWS,
    "confirmation": schemas.DRAWS,
    "confirmation_pool": schemas.DRAWS,
    "images": schemas.IMAGES,
    "verifications": schemas.VERIFICATIONS,
    "calibration": schemas.CALIBRATION,
    "predictions": schemas.PREDICTIONS,
    "scores": schemas.SCORES,
    "pooled": schemas.POOLED,
    "agreement": schemas.AGREEMENT,
    "intersections": schemas.INTERSECTIONS,
}
DIRECTORIES = ("images", "verifications", "predictions")
_LEFTOVER = re.compile(rf"(?:run\.json|report\.html|(?:{'|'.join(TABLES)})\.parquet)\.tmp-[0-9a-f]{{8}}")
_COSINE = 1.01
"""The largest that is one: half precision, and what an index compresses, round so far beyond 1."""


class Run:
    """A run at `path`. Tables come as Arrow; a table that was not written yet is an empty one of its schema."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path).rstrip("/")
        self._still_ours: Callable[[], None] = lambda: None
        self._ended = False

    def __repr__(self) -> str:
        return f"Run({self.path!r})"

    def location(self, name: str) -> str:
        return f"{self.path}/{name}"

    @property
    def record(self) -> Manifest:
        """The manifest, typed. RunError where it is damaged or of another format."""
        return parse(files.read_bytes(self.location(MANIFEST)), self.location(MANIFEST))

    @property
    def manifest(self) -> dict[str, Any]:
        """`record` as a mapping of what is set."""
        return self.record.as_dict()

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.record.config)

    @property
    def report(self) -> str:
        return self.location("report.html")

    def update(self, changes: Mapping[str, Any]) -> None:
        """Merges `changes` into the manifest; nested mappings are merged one level deep.

        A run that becomes `finished` lists its tables as they are at that moment.
        """
        before = self.manifest
        if merged(before, changes) == before:
            return
        self.begin_writing()
        manifest = merged(self.manifest, changes)
        if changes.get("status") == "finished":
            written = {name: schema.names[0] for name, schema in TABLES.items() if self.has(name)}
            tables = {name: listing.listed(self, name, column) for name, column in written.items()}
            manifest["tables"] = {name: entry.model_dump(exclude_none=True) for name, entry in tables.items()}
        self._write_manifest(manifest)

    def begin_writing(self) -> None:
        """Marks a run that had ended as `running`: to be called before anything is written into its directories.

        `write` and `update` do so by themselves, unless what they write is there already. So a rerun that is refused
        before it changes anything leaves a finished run finished.
        """
        if self._ended:
            kept = {key: value for key, value in self.manifest.items() if key not in ("finished", "failure", "tables")}
            self._write_manifest({**kept, "status": "running"})
            self._ended = False

    def check(self) -> None:
        """RunError where a finished run lacks a table that it listed, or has another in its place."""
        record = self.record
        if record.status == "finished":
            listing.check_missing(self, record)
            listing.check_changed(self, record)
            listing.check_added(self, record, iter(TABLES))

    def in_parts(self, name: str) -> bool:
        return name in DIRECTORIES

    def has(self, name: str) -> bool:
        if name in DIRECTORIES:
            return any(entry.startswith("part-") for entry in files.entries(self.location(name)))
        return files.exists(self.location(f"{name}.parquet"))

    def write(self, name: str, table: pa.Table) -> None:
        self._still_ours()
        location = self.location(f"{name}.parquet")
        data = files.encoded_table(table.select(TABLES[name].names).cast(TABLES[name]))
        if self._ended and files.exists(location) and files.read_bytes(location) == data:
            return
        self.begin_writing()
        files.write_bytes(location, data)

    def read(self, name: str, columns: list[str] | None = None) -> pa.Table:
        schema = TABLES[name]
        if not self.has(name):
            table = schema.empty_table()
            return table.select(columns) if columns else table
        place = name if name in DIRECTORIES else f"{name}.parquet"
        table = files.read_table(self.location(place), columns)
        if missing := [column for column in columns or schema.names if column not in table.column_names]:
            raise RunError(
                f"{self.location(place)}: no column {', '.join(missing)}: a table of another kind or release; run the "
                "c2b audit anew, into another --out",
                location=self.location(place),
                run=self.path,
            )
        return table

    @property
    def proposals(self) -> pa.Table:
        return self.read("proposals")

    @property
    def rejected(self) -> pa.Table:
        return self.read("rejected")

    @property
    def captions(self) -> pa.Table:
        return self.read("captions")

    @property
    def draws(self) -> pa.Table:
        draws = self.read("draws")
        cosines = draws["similarity"].drop_null()
        if not pc.all(pc.less_equal(pc.abs(cosines), _COSINE), min_count=0).as_py():
            raise RunError(
                f"{self.location('draws.parquet')}: a similarity outside [-1, 1]: the table or the index that it came "
                "from is damaged; rebuild the index and run the c2b audit anew",
                location=self.location("draws.parquet"),
                run=self.path,
            )
        return draws

    @property
    def images(self) -> pa.Table:
        return self.read("images")

    @property
    def predictions(self) -> pa.Table:
        """Those of the weights that the manifest names: a run that went on with others keeps the earlier ones too."""
        found = self.read("predictions")
        current = [
            pc.and_(
                pc.equal(found["classifier"], name.removeprefix(CLASSIFIER)),
                pc.equal(found["revision"], model["revision"]),
            )
            for name, model in self.manifest.get("models", {}).items()
            if name.startswith(CLASSIFIER)
        ]
        return found.filter(reduce(pc.or_, current)) if current else found

    @property
    def verifications(self) -> pa.Table:
        """Those of the verifier's weights that the manifest names, as for predictions."""
        found = self.read("verifications")
        verifier = self.manifest.get("models", {}).get("verifier")
        return found if verifier is None else found.filter(pc.equal(found["revision"], verifier["revision"]))

    @property
    def calibration(self) -> pa.Table:
        return self.read("calibration")

    @property
    def scores(self) -> pa.Table:
        return self.read("scores")

    @property
    def agreement(self) -> pa.Table:
        return self.read("agreement")

    @property
    def intersections(self) -> pa.Table:
        return self.read("intersections")

    def failures(self) -> pa.Table:
        """The images that were answered wrong: a table of `schemas.FAILURES`, a row per classifier, cell and image."""
        # Here, because reading a run needs no more than its tables.
        from c2b_ray.steps.failures import failures

        images = self.read("images", ["image_id", "key", "content", "fingerprint"])
        return failures(self.captions, self.draws, images, self.predictions)

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        self._still_ours()
        checked(dict(manifest), self.location(MANIFEST))
        text = json.dumps(manifest, indent=2, ensure_ascii=False, sort_keys=False)
        files.write_bytes(self.location(MANIFEST), text.encode())


def load_run(path: str | Path) -> Run:
    """A run that exists. SourceError where there is none at `path`; RunError where it is not a run of this format, or
    where it finished and its tables are no longer those that it finished with."""
    run = Run(path)
    if not files.exists(run.location(MANIFEST)):
        raise SourceError(absent_bucket(path) or f"{path}: no run there (expected {MANIFEST}); c2b audit makes one")
    run.check()
    return run


@contextmanager
def open_run(path: str | Path, run_id: str, config: Mapping[str, Any]) -> Iterator[Run]:
    """A new run at `path`, or the unfinished or finished one with the same id, for this process alone to write.

    It is `running` until it is updated to `finished`; one that ended before is so again from its first change.

    RunError where `path` holds another run or other files, or where another process writes it; StorageError where
    the file system refuses.
    """
    run = Run(path)
    files.make_directory(path)
    with writer.single_writer(run.path) as still_ours:
        run._still_ours = still_ours
        for name in files.entries(path):
            if _LEFTOVER.fullmatch(name):  # of a writer that was killed; there is no other one now
                files.remove_file(run.location(name))
        if files.exists(run.location(MANIFEST)):
            manifest = run.manifest
            if manifest["run_id"] != run_id:
                changed = differences(manifest["config"], config)
                raise RunError(
                    f"{path} holds another run (its {changed} differs); choose another --out, or delete it",
                    run=run.path,
                )
            if manifest["status"] != "running":
                listing.check_changed(run, run.record)
                run._ended = True
        else:
            others = [name for name in files.entries(path) if name not in writer.FILES]
            if others:
                raise RunError(f"{path} is not empty and holds no run ({others[0]} …); choose an empty --out")
            now = datetime.now(UTC).isoformat(timespec="seconds")
            run._write_manifest(
                {"format": FORMAT, "run_id": run_id, "status": "running", "created": now, "config": dict(config)}
            )
        yield run
