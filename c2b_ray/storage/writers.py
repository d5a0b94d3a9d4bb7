"""Allows one writer of a directory at a time: by a file lock on a local disk, by a lease on an object store."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pyarrow import fs

from c2b_ray.errors import BusyRunError, RunError, StorageError
from c2b_ray.storage import files, refusal, resolve, s3
from c2b_ray.storage.s3 import patiently

# One writer at a time on an object store, which has no locks: an object that its holder renews.


NAME = ".lease"
BEAT_S = 10.0
LAPSE_S = 60.0
CONFLICT = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
GONE = ("NoSuchKey", "404")

_log = logging.getLogger(__name__)
_held: set[str] = set()
"""The tokens of this process's leases. The process may outlive a lease that a store did not let it give back."""


@dataclass(frozen=True)
class _Seen:
    """A lease as read. `age`: seconds since it was renewed."""

    etag: str
    body: dict[str, Any]
    age: float


class Lease:
    """The lease below `location`, an s3:// URI."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._uri = f"{location.rstrip('/')}/{NAME}"
        self._token = uuid.uuid4().hex
        self._etag = ""
        self._renewals = 0
        self._lost = ""
        self._ended = threading.Event()
        self._beats = threading.Thread(target=self._renew, name="lease", daemon=True)

    def take(self) -> None:
        """Takes the lease; waits while it is unknown whether its holder lives. Raises RunError if the holder lives."""
        _held.add(self._token)
        try:
            self._take()
        except BaseException:
            _held.discard(self._token)
            raise
        self._beats.start()

    def _take(self) -> None:
        waited_for = ""
        while True:
            stored = self._read()
            if (
                stored is not None and stored.body.get("token") == self._token
            ):  # the store wrote it, but its answer was lost
                self._etag = stored.etag
                break
            is_alive = None if stored is None else _alive(stored.body)
            if stored is None or stored.body.get("ended") or is_alive is False or stored.age >= LAPSE_S:
                if not self._put(stored.etag if stored else ""):
                    continue  # another process was faster; the next read sees it
                if stored is not None and not stored.body.get("ended"):
                    _log.warning("%s: takes over from %s, which has died", self.location, _holder(stored))
                break
            if is_alive or (waited_for and waited_for != stored.etag):
                raise BusyRunError(
                    f"{self.location}: another process is writing here ({_holder(stored)}); wait for it to end, or "
                    "stop it"
                )
            if not waited_for:
                remaining = LAPSE_S - stored.age
                _log.warning(
                    "%s: waits up to %.0f s to see whether %s lives", self.location, remaining, _holder(stored)
                )
            waited_for = stored.etag
            time.sleep(min(BEAT_S, LAPSE_S - stored.age) + 0.5)

    def check(self) -> None:
        """Raises RunError if another process has taken over, because this one did not renew for too long."""
        if self._lost:
            raise RunError(f"{self.location}: {self._lost}; this process stops writing, what it wrote is kept")

    def give_back(self) -> None:
        self._ended.set()
        self._beats.join(BEAT_S)
        _held.discard(self._token)
        if not self._lost:
            with suppress(StorageError):  # it lapses by itself
                self._put(self._etag, ended=True)

    def _renew(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                if self._put(self._etag):
                    continue
                stored = self._read()
            except StorageError:  # once the store answers again, it says who holds the lease
                continue
            if stored is None or stored.body.get("token") != self._token:
                self._lost = f"{_holder(stored)} has taken over" if stored else f"its {NAME} was deleted"
                return
            self._etag = stored.etag

    def _put(self, etag: str, ended: bool = False) -> bool:
        """Writes the lease; returns False if the object's ETag is not `etag`, or, for an empty `etag`, if it exists."""
        self._renewals += 1  # another body, hence another ETag
        body = {"token": self._token, **_this_process(), "renewals": self._renewals, "ended": ended}
        condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}

        def request() -> Any:
            return s3.client().put_object(**self._object(), Body=json.dumps(body).encode(), **condition)

        try:
            answer = request() if ended else patiently(self._uri, request)
        except s3.refusals() as error:
            if _code(error) in (*CONFLICT, *GONE):
                return False
            raise self._storage_error(error) from error
        self._etag = answer["ETag"]
        return True

    def _read(self) -> _Seen | None:
        def request() -> tuple[Any, bytes]:
            answer = s3.client().get_object(**self._object())
            return answer, answer["Body"].read()

        try:
            answer, content = patiently(self._uri, request)
            body = json.loads(content)
        except s3.refusals() as error:
            if _code(error) in GONE:
                return None
            raise self._storage_error(error) from error
        except ValueError:
            raise RunError(f"{self._uri} is not a lease of c2b-ray; delete it if no process writes here") from None
        now = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return _Seen(answer["ETag"], body, (now - answer["LastModified"]).total_seconds())

    def _object(self) -> dict[str, str]:
        return {"Bucket": s3.bucket_of(self._uri), "Key": s3.key_of(self._uri)}

    def _storage_error(self, error: Exception) -> StorageError:
        if _code(error) in ("NotImplemented", "501"):
            return StorageError(
                f"{self.location}: {s3.endpoint_name()} has no conditional writes (If-None-Match), without which two "
                "processes could write one run; use another store, or a local directory"
            )
        return StorageError(refusal(self._uri, error) or f"{self._uri}: {s3.without_secrets(str(error))}")


@contextmanager
def held(location: str) -> Iterator[Callable[[], None]]:
    """Holds the lease below `location` during the block; yields its `check`.

    Raises RunError if another process holds it, StorageError if the store refuses.
    """
    if not location.startswith(s3.SCHEME):
        raise StorageError(f"{location}: only local directories and s3:// can be written; choose one of these")
    lease = Lease(location)
    lease.take()
    try:
        yield lease.check
    finally:
        lease.give_back()


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    return str(response.get("Error", {}).get("Code")) if isinstance(response, dict) else ""


def _this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid()), "machine": _machine()}


def _machine() -> str:
    """Returns a name for this boot of this machine and, in containers, its PID namespace; empty if there is none."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Returns when a process began, to distinguish it from a later one with the same id; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _alive(body: dict[str, Any]) -> bool | None:
    """Returns whether the holder lives; None if this machine cannot know."""
    if not body.get("machine") or body["machine"] != _machine():
        return None
    if int(body["pid"]) == os.getpid() and body["token"] not in _held:
        return False
    return bool(_started(int(body["pid"])) == body["started"])


def _holder(stored: _Seen) -> str:
    pid, host = stored.body.get("pid"), stored.body.get("host")
    return f"process {pid} on {host}, last heard of {max(0.0, stored.age):.0f} s ago"


# Allows one writer at a time in a local directory, by a lock file that the death of its process releases.


LOCK = ".lock"


@contextmanager
def only_writer(directory: str | Path, location: str, activity: str) -> Iterator[None]:
    """Holds the lock of an existing directory.

    Raises BusyRunError if another process holds it: "`location`: another process is `activity`". Raises OSError if the
    lock cannot be created.
    """
    lock = FileLock(f"{directory}/{LOCK}", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise BusyRunError(
            f"{location}: another process is {activity}; wait for it to end, or stop it", run=location
        ) from None
    try:
        yield
    finally:
        lock.release()


FILES = (LOCK, NAME)
"""The files that it leaves in the directory."""


@contextmanager
def single_writer(location: str) -> Iterator[Callable[[], None]]:
    """Yields a function that raises RunError once another process has taken over, which can happen on an object
    store."""
    filesystem, path = resolve(location)
    if not isinstance(filesystem, fs.LocalFileSystem):
        with held(location) as still_ours:
            yield still_ours
        return
    with ExitStack() as stack:
        with files.refusals(location):
            stack.enter_context(only_writer(path, location, "writing this run"))
        yield lambda: None
