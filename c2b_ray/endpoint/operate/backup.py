"""Copies a ledger to a folder of JSON lines, one file per table, all of one moment; and restores a ledger from it.

    manifest.json    written last: revision, rows and SHA-256 of each file, the head of the audit log, the storage
    <table>.jsonl    a line with the names of columns, then one line per row
    storage/…        the storage's files, if they were copied; otherwise the manifest names their path

A copy does not depend on the database: one of SQLite can be restored into PostgreSQL. It can be made while the endpoint
runs. It contains hashes of keys and the secrets of webhooks, so only its owner may read the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs
from sqlalchemy import Table, func, insert, select, text, update

from c2b_ray import __version__
from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.ledger import audit_log, migrations, tables
from c2b_ray.endpoint.ledger.database import Database, Transaction
from c2b_ray.errors import InputError, StorageError
from c2b_ray.storage import files, resolve
from c2b_ray.storage.manifest import read_json
from c2b_ray.storage.s3 import file_info

# Copies the storage of an endpoint to a folder and back, with the SHA-256 of each file. It knows no ledger.


FOLDER, LIST = "storage", "storage.jsonl"
_PART = 2**20


def copy_out(root: str, folder: Path) -> dict[str, Any]:
    """Copies all files below `root` to `folder`/storage; returns their number, their bytes and the SHA-256 of their
    list.

    A file that disappears before it is read, such as a temporary one, is left out.
    """
    filesystem = resolve(root)[0]
    lines, total = [], 0
    for name, path in _files(root):
        try:
            size, sha256 = _copied(filesystem, path, fs.LocalFileSystem(), str(folder / FOLDER / name))
        except FileNotFoundError:
            continue
        lines.append(json.dumps([name, size, sha256]))
        total += size
    data = "".join(f"{line}\n" for line in lines).encode()
    (folder / LIST).write_bytes(data)
    return {"files": len(lines), "bytes": total, "sha256": hashlib.sha256(data).hexdigest()}


def check(folder: Path, record: dict[str, Any], root: str) -> None:
    """Raises InputError if the copy has no storage, a file of it has changed, or `root` holds other files of tenants.

    Files of the copy itself may be there, from a restoration that was interrupted.
    """
    if not record.get("copied"):
        raise InputError(
            f"{folder}: the copy has no storage, which is at {record.get('root')}; leave out --with-storage"
        )
    if hashlib.sha256((folder / LIST).read_bytes()).hexdigest() != record.get("sha256"):
        raise InputError(f"{folder / LIST}: it differs from the file that was written; nothing was restored")
    extra_files = {name for name, _ in _files(root)} - {name for name, _, _ in _listed(folder)}
    if any(name.startswith("tenants/") for name in extra_files):
        raise InputError(f"{root}: other files of tenants are there; restore into an empty storage")
    for name, _, sha256 in _listed(folder):
        path = folder / FOLDER / name
        if not path.is_file() or files.sha256(path)[0] != sha256:
            raise InputError(f"{path}: it differs from the file that was copied; nothing was restored")


def copy_in(folder: Path, root: str) -> None:
    """Copies the files back, after `check`."""
    filesystem, base = resolve(root)
    with files.refusals(root):
        for name, _, _ in _listed(folder):
            _copied(fs.LocalFileSystem(), str(folder / FOLDER / name), filesystem, f"{base.rstrip('/')}/{name}")


def _files(root: str) -> list[tuple[str, str]]:
    """Returns (name below `root`, path) of each file there."""
    filesystem, base = resolve(root)
    with files.answers(root):
        infos = file_info(filesystem, fs.FileSelector(base, recursive=True, allow_not_found=True))
    start = base.rstrip("/") + "/"
    return [(info.path.removeprefix(start), info.path) for info in infos if info.type == fs.FileType.File]


def _listed(folder: Path) -> list[tuple[str, int, str]]:
    entries = [tuple(json.loads(line)) for line in (folder / LIST).read_text(encoding="utf-8").splitlines()]
    for name, _, _ in entries:
        if name.startswith("/") or ".." in name.split("/"):
            raise InputError(f"{folder / LIST}: {name[:200]!r} is not a path below a storage")
    return entries


def _copied(source: fs.FileSystem, path: str, target: fs.FileSystem, destination: str) -> tuple[int, str]:
    """Copies a file; returns its bytes and SHA-256."""
    digest, size = hashlib.sha256(), 0
    with source.open_input_stream(path) as stream:
        if isinstance(target, fs.LocalFileSystem):
            target.create_dir(destination.rpartition("/")[0])
        with target.open_output_stream(destination) as output:
            while part := stream.read(_PART):
                output.write(part)
                digest.update(part)
                size += len(part)
    return size, digest.hexdigest()


FORMAT = 1
MANIFEST = "manifest.json"
FENCES = 1_000_000
"""Added to the fences of open jobs, to fence off runners of the lost ledger that may still work."""
_AT_ONCE = 2000
_EMPTY = (tables.tenants, tables.jobs, tables.keys, tables.audit_log)


def backup(db: Database, config: EndpointConfig, out: Path, *, with_storage: bool = False) -> dict[str, Any]:
    """Makes a copy and returns its manifest. `out` must not exist, or be empty; it appears once it is complete.

    The ledger is read first, so that the storage never lacks files of a run that ends meanwhile; it may hold more than
    the rows say.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not an empty folder; name a new folder")
    migrations.require_current(db)
    partial = out.with_name(f"{out.name}.partial-{os.getpid()}")
    with _whole_or_gone(partial, out):
        partial.mkdir(parents=True, mode=0o700)
        manifest = _written_ledger(db, partial)
        manifest["storage"] = {"root": config.storage_root, "copied": with_storage}
        if with_storage:
            manifest["storage"] |= copy_out(config.storage_root, partial)
        _write(partial / MANIFEST, [json.dumps(manifest, indent=1)])
        if out.exists():
            out.rmdir()
        partial.rename(out)
    return manifest


def restore(db: Database, config: EndpointConfig, source: Path, *, with_storage: bool = False) -> dict[str, Any]:
    """Restores a copy and returns its manifest. It checks every file before it changes anything.

    Jobs that ran are queued again, under fences that no earlier runner has. Raises InputError if the folder is no
    complete copy of this version, or if the ledger, or with `with_storage` the storage, is not empty.
    """
    manifest = _checked(source)
    if with_storage:
        check(source, manifest["storage"], config.storage_root)
        copy_in(source, config.storage_root)  # before the ledger: its rows complete the restoration
    migrations.prepare(db)
    with db.transaction() as tx:
        if tx.locks_rows:
            tx.execute(text("SET LOCAL statement_timeout = 0"))
            tx.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        for table in _EMPTY:
            if tx.scalar(select(func.count()).select_from(table)):
                raise InputError(f"the ledger has rows in {table.name} already; restore into an empty database")
        for table in tables.metadata.sorted_tables:
            if table is tables.audit_head:
                tx.execute(table.delete())
            _insert(tx, table, source / f"{table.name}.jsonl")
        _release_holds(tx)
        head = manifest["audit_head"]
        audit_log.append(tx, audit_log.Entry("operator", "ledger.restore", None, None, {"head": head}))
    broken = audit_log.verify(db)
    if broken is not None:
        raise InputError(f"the audit log of the copy is broken at entry {broken.seq}: {broken.reason}")
    return manifest


@contextmanager
def _whole_or_gone(partial: Path, out: Path) -> Iterator[None]:
    """Removes an unfinished copy, which holds hashes of keys and fills the disk, where anything goes wrong."""
    try:
        with files.refusals(out):
            yield
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, StorageError):
            problem = str(error).partition(";")[0]
            raise StorageError(f"{problem}; nothing of the copy was kept", location=str(out)) from error
        raise


def _written_ledger(db: Database, folder: Path) -> dict[str, Any]:
    with db.snapshot() as tx:
        head = tx.execute(select(tables.audit_head.c.seq, tables.audit_head.c.hash)).one()
        written = {}
        for table in tables.metadata.sorted_tables:
            rows, sha256 = _write(folder / f"{table.name}.jsonl", _lines(tx, table))
            written[table.name] = {"rows": rows - 1, "sha256": sha256}
        created = db.now(tx.connection)
    return {
        "format": FORMAT,
        "version": __version__,
        "revision": migrations.newest(),
        "created": created,
        "audit_head": f"{head.seq}:{head.hash}",
        "tables": written,
    }


def _lines(tx: Transaction, table: Table) -> Iterator[str]:
    yield json.dumps([column.name for column in table.columns])
    streamed = tx.connection.execution_options(stream_results=True, yield_per=_AT_ONCE)
    for row in streamed.execute(select(*table.columns)):
        yield json.dumps(list(row), separators=(",", ":"))


def _write(path: Path, lines: Iterator[str] | list[str]) -> tuple[int, str]:
    """Writes the lines; returns their number and the SHA-256 of the file."""
    digest, count = hashlib.sha256(), 0
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as stream:
        for line in lines:
            data = line.encode() + b"\n"
            stream.write(data)
            digest.update(data)
            count += 1
        stream.flush()
        os.fsync(stream.fileno())
    return count, digest.hexdigest()


def _checked(source: Path) -> dict[str, Any]:
    if not (source / MANIFEST).is_file():
        raise InputError(f"{source}: there is no {MANIFEST}: it is not a copy of a ledger, or an incomplete one")
    manifest: dict[str, Any] = read_json(source / MANIFEST)
    if manifest.get("format") != FORMAT or manifest.get("revision") != migrations.newest():
        raise InputError(
            f"{source}: it was made by version {manifest.get('version')} with tables at revision "
            f"{manifest.get('revision')}; restore it with that version, then run: c2b endpoint migrate"
        )
    for table in tables.metadata.sorted_tables:
        path, expected = source / f"{table.name}.jsonl", manifest["tables"].get(table.name, {})
        sha256 = files.sha256(path)[0] if path.is_file() else None
        if sha256 is None or sha256 != expected.get("sha256"):
            raise InputError(f"{path}: it differs from the file that was written; nothing was restored")
    return manifest


def _insert(tx: Transaction, table: Table, path: Path) -> None:
    with path.open(encoding="utf-8") as lines:
        names = json.loads(next(lines))
        rows: list[dict[str, Any]] = []
        for line in lines:
            rows.append(dict(zip(names, json.loads(line), strict=True)))
            if len(rows) == _AT_ONCE:
                tx.execute(insert(table), rows)
                rows = []
        if rows:
            tx.execute(insert(table), rows)


def _release_holds(tx: Transaction) -> None:
    """Releases what was held before the copy: jobs wait for new runners, leases for new holders."""
    jobs = tables.jobs.c
    waits = {"state": "queued", "owner": None, "lease_until": None, "granted": None, "yield_requested": False}
    tx.execute(update(tables.jobs).where(tables.OPEN).values(fence=jobs.fence + FENCES))
    tx.execute(update(tables.jobs).where(tables.OPEN).values(waits))
    fence = tables.leases.c.fence + FENCES
    tx.execute(update(tables.leases).values(owner="", until=0.0, fence=fence))
    if tx.locks_rows:  # the ids were written without the sequence
        last = "(SELECT coalesce(max(id), 1) FROM events)"
        tx.execute(text(f"SELECT setval(pg_get_serial_sequence('events', 'id'), {last})"))
