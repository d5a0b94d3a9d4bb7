"""A shared audit endpoint as an object: submit, wait, read. Each method is one verb of `c2b remote`."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal
from urllib.parse import quote

import httpx

from c2b_ray.audits.audit import audits
from c2b_ray.client.http import (
    PATIENCE_SECONDS,
    BusyError,
    Http,
    NotAllowedError,
    NotNowError,
    NotThereError,
    UnreachableError,
)
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.report import words
from c2b_ray.storage.manifest import read_yaml

if TYPE_CHECKING:
    from c2b_ray.client.local_files import LocalFile, Progress

ENDED = ("finished", "failed", "cancelled")
CHUNK = 1 << 20
STEADY_SECONDS = 30.0
"""A stream that lasted so long was answered: what broke it off later, such as a proxy's limit, is a first failure."""
Format = Literal["json", "csv", "parquet"]
OnEvent = Callable[["Event"], None]


def nobody(what: str, done: int, total: int) -> None:
    """Is told of progress and shows none."""


@dataclass(frozen=True)
class Event:
    """An event of a job. `kind`: state, progress, or another kind that a run reports."""

    id: int
    kind: str
    data: dict[str, Any]


class Endpoint:
    """`url`: of the endpoint. `key`: c2b_…, of a tenant. `patience`: seconds for which a busy endpoint is tried again.

    Methods raise `c2b_ray.client.http`. Used as a context, it closes its connections at the end.
    """

    def __init__(
        self, url: str, key: str, patience: float = PATIENCE_SECONDS, transport: httpx.BaseTransport | None = None
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError("url", f"{url[:100]!r} is no URL that begins with https:// or http://")
        if not key or not key.isascii() or not key.isprintable():
            raise ConfigError("key", "expected a key of the endpoint, c2b_…")
        self._http = Http(url, key, patience, transport)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(
        self,
        kind: str,
        config: Mapping[str, Any] | str | Path,
        name: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Submits a job and returns it. `config`: the fields, or the path of a YAML file.

        `idempotency_key`: a later call with the same key and config returns the same job. Without one, only the
        attempts of this call share a key, so that a lost answer does not lead to a second job.
        """
        body = {"kind": kind, "name": name, "config": fields_of(config)}
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._object("POST", "/v1/audits", json=body, headers=headers)

    def check(self, kind: str, config: Mapping[str, Any] | str | Path) -> dict[str, Any]:
        """Returns what `submit` would do and what the job would cost. Nothing is stored."""
        return self._object(
            "POST", "/v1/audits/check", json={"kind": kind, "name": None, "config": fields_of(config)}, again=True
        )

    def get(self, job_id: str) -> dict[str, Any]:
        return self._object("GET", _job(job_id))

    def list(self, limit: int | None = None, **filters: str | None) -> Iterator[dict[str, Any]]:
        """Yields jobs, latest first, at most `limit` of them. `filters`: state, kind, name."""
        return self._pages("/v1/audits", limit, {name: value for name, value in filters.items() if value is not None})

    def cancel(self, job_id: str, purge: bool = False) -> dict[str, Any]:
        """Cancels a job and returns it. `purge`: deletes an ended job and all its data instead."""
        return self._object("DELETE", _job(job_id), params={"purge": "true"} if purge else None)

    def events(self, job_id: str, last_id: int = 0, seconds: float | None = None) -> Iterator[Event]:
        """Yields the events of a job after `last_id` until it ends, and reconnects where a connection is lost.

        It stops after about `seconds`, at most 15 s later: a stream without events sends a sign of life that often.
        """
        failures, deadline = 0, None if seconds is None else time.monotonic() + seconds
        while deadline is None or time.monotonic() < deadline:
            started = time.monotonic()
            try:
                with self._http.stream(f"{_job(job_id)}/events", {"Last-Event-ID": str(last_id)}) as answer:
                    if answer.status_code == httpx.codes.NO_CONTENT:
                        return
                    for event in _parsed(answer.iter_lines()):
                        if deadline is not None and time.monotonic() >= deadline:
                            return
                        if event is None:
                            continue
                        last_id, failures = event.id, 0
                        yield event
                        if event.kind == "state" and event.data.get("state") in ENDED:
                            return
                if self.get(job_id)["state"] in ENDED:
                    return
            except (UnreachableError, BusyError) as error:
                failures = failures + 1 if time.monotonic() - started < STEADY_SECONDS else 1
                if failures > 10:
                    raise
                time.sleep(error.retry_after or min(30.0, 0.25 * 2**failures))

    def wait(self, job_id: str, seconds: float | None = None, on_event: OnEvent | None = None) -> dict[str, Any]:
        """Waits until a job has ended, at most about `seconds`, and returns it as it is then."""
        for event in self.events(job_id, seconds=seconds):
            if on_event is not None:
                on_event(event)
        return self.get(job_id)

    def tables(self, job_id: str) -> dict[str, Any]:
        return self._object("GET", f"{_job(job_id)}/tables")

    def table(self, job_id: str, name: str, form: Format = "parquet") -> bytes:
        return self._bytes(f"{_job(job_id)}/tables/{quote(name, safe='')}", {"format": form})

    def rows(self, job_id: str, name: str) -> Iterator[dict[str, Any]]:
        """Yields the rows of a table, which are fetched a page at a time."""
        return self._pages(f"{_job(job_id)}/tables/{quote(name, safe='')}", None, {})

    def image(self, job_id: str, image_id: str) -> bytes:
        return self._bytes(f"{_job(job_id)}/images/{quote(image_id, safe='')}")

    def report(self, job_id: str) -> bytes:
        return self._bytes(f"{_job(job_id)}/report")

    def export(self, job_id: str, form: str, classifier: str | None = None) -> bytes:
        params = {} if classifier is None else {"classifier": classifier}
        return self._bytes(f"{_job(job_id)}/exports/{quote(form, safe='')}", params)

    def gate(
        self, job_id: str, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
    ) -> dict[str, Any]:
        return self._object(
            "POST", f"{_job(job_id)}/gate", json=_gates(fail_on, classifier, allow_unchecked), again=True
        )

    def gate_junit(
        self, job_id: str, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
    ) -> bytes:
        body = _gates(fail_on, classifier, allow_unchecked)
        accept = {"Accept": "application/xml"}
        return self._http.send("POST", f"{_job(job_id)}/gate", json=body, headers=accept, again=True).content

    def compare(self, a: str, b: str | None = None, accept: str = "application/json", **options: Any) -> httpx.Response:
        """Returns the comparison of B with A as `accept` wants it: application/json, text/html or application/xml
        (JUnit). `options`: classifier_a, classifier_b, fail_on, allow_unchecked."""
        params = {name: value for name, value in {"a": a, "b": b, **options}.items() if value not in (None, False)}
        return self._http.send("GET", "/v1/comparisons", params=params, headers={"Accept": accept})

    def ask(self, job_id: str, sentence: str, seconds: float | None = None, **options: Any) -> Any:
        """Asks a finished run a question and returns the answer. `options`: n, classifier, target_class, target."""
        body = {"sentence": sentence, **{name: value for name, value in options.items() if value is not None}}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        job = self._object("POST", f"{_job(job_id)}/questions", json=body, headers=headers)
        ended_job = self.wait(job["id"], seconds)
        if ended_job["state"] != "finished":
            raise NotNowError(f"the question is {ended_job['state']}: {(ended_job['failure'] or {}).get('detail', '')}")
        return self._http.json("GET", f"{_job(job['id'])}/answer")

    def upload_files(
        self,
        kind: str,
        config: Mapping[str, Any] | str | Path,
        told: Progress = nobody,
        say: Callable[[str], None] | None = None,
    ) -> dict[str, Any]:
        """Uploads the files of this machine that a config names; returns its fields, with uploads in their place, for
        `submit` and `check`. What the endpoint has already is not sent again, and what broke off goes on.

        `config`: the path of a YAML file, which relative paths are relative to, or its fields. `told`: is told of the
        progress, as `Progress`; `say`: what is sent, and how much of what may be sent. Raises ConfigError for a
        file that is missing, too large, or of a kind that no endpoint takes; nothing was sent then.
        """
        from c2b_ray.client.local_files import LocalConfig  # with Arrow, which other requests do not need

        audit = audits().get(kind)
        if audit is None:  # a kind of the endpoint's that this release does not know
            return fields_of(config)
        if isinstance(config, str | Path):
            local = LocalConfig(audit, audit.config_file.fields(config), Path(config).parent.absolute())
        else:
            local = LocalConfig(audit, config, Path.cwd())
        if local.files:
            for line in _within_limits(local.files, self._limits()):
                if say is not None:
                    say(line)
        return local.with_uploads(partial(self._sent, told=told))

    def _sent(self, file: LocalFile, told: Progress) -> str:
        """Uploads a file of a config and returns how the config names it; without the scheme, which it has already."""
        with file.as_sent(told) as path:
            entry = self.upload(path, file.kind, _name_of(file.path), told)
        return f"upload:{entry['sha256']}"

    def upload(self, path: str | Path, kind: str, name: str | None = None, told: Progress = nobody) -> dict[str, Any]:
        """Uploads a file and returns its entry. A config refers to the upload by the entry's `spec`.

        The same file is sent once. A large one is sent in parts: after an interruption the same call sends the rest.
        Raises SourceError for a file that cannot be read, that is too large, or that there is no room for.
        `told`: is told of the progress, as `Progress`.
        """
        file, shown = Path(path), name or _name_of(path)
        try:
            with file.open("rb") as stream:
                digest, size = hashlib.file_digest(stream, "sha256").hexdigest(), file.stat().st_size
            if (entry := self._uploaded(digest)) is not None and entry["kind"] == kind:
                told(shown, size, size)
                return entry
            limits = self._limits()
            if size > limits.get("bytes", size):
                raise SourceError(f"{path} has {_too_much(size, limits['bytes'])}", location=str(path))
            self._check_room(path, size)
            headers = {"X-Upload-Kind": kind, "X-Upload-Name": quote(shown)}
            part_bytes = limits.get("part_bytes")
            if part_bytes is not None and size > part_bytes:
                return self._in_parts(file, digest, part_bytes, headers, partial(told, shown))
            headers |= {
                "X-Upload-SHA256": digest,
                "Content-Type": "application/octet-stream",
                "Content-Length": str(size),
            }
            with file.open("rb") as stream:
                content = _Chunks(stream, partial(told, shown), size)
                return self._object("POST", "/v1/uploads", content=content, headers=headers, again=True)
        except OSError as error:
            raise SourceError(f"{path}: cannot be read: {error.strerror or error}", location=str(path)) from error

    def _limits(self) -> dict[str, Any]:
        """Returns the limits of uploads; empty where the endpoint does not say them, or the key may not read."""
        try:
            return self.catalog().get("uploads") or {}
        except NotAllowedError:
            return {}

    def _check_room(self, path: str | Path, size: int) -> None:
        """Raises SourceError for a file that the tenant's storage has no room for, before any of it is sent."""
        try:
            storage = self.quotas()["storage_bytes"]
        except NotAllowedError:  # the key may not read; the endpoint will say it
            return
        if size > storage["limit"] - storage["used"]:
            raise SourceError(
                f"{path} has {words.size(size)}, and of the {words.size(storage['limit'])} that the tenant may store "
                f"{words.size(storage['used'])} are used; delete uploads or jobs (c2b remote cancel JOB --purge)",
                location=str(path),
            )

    def _uploaded(self, digest: str) -> dict[str, Any] | None:
        """Returns the entry of an upload; None where there is none, or the key may not read."""
        try:
            return self._object("GET", f"/v1/uploads/{digest}")
        except (NotThereError, NotAllowedError):
            return None

    def _in_parts(
        self, file: Path, digest: str, part_bytes: int, headers: Mapping[str, str], told: Callable[[int, int], None]
    ) -> dict[str, Any]:
        """Sends the parts of a file that the endpoint does not have, and returns the upload's entry."""
        path = f"/v1/uploads/{digest}"
        try:
            there = {one["number"]: one["bytes"] for one in self._object("GET", f"{path}/parts")["parts"]}
        except (NotThereError, NotAllowedError):
            there = {}
        self._send_parts(file, path, part_bytes, there, told)
        try:
            return self._object("POST", path, headers=headers, again=True)
        except NotNowError as error:
            if error.code != "incomplete" or not there:
                raise
        self._send_parts(file, path, part_bytes, {}, told)  # parts that were there are those of another file
        return self._object("POST", path, headers=headers, again=True)

    def _send_parts(
        self, file: Path, path: str, part_bytes: int, there: Mapping[int, int], told: Callable[[int, int], None]
    ) -> None:
        """Sends the parts of a file but those that are `there`: number → bytes."""
        size = file.stat().st_size
        with file.open("rb") as stream:
            for number, start in enumerate(range(0, size, part_bytes)):
                length = min(part_bytes, size - start)
                if there.get(number) != length:
                    stream.seek(start)
                    data = stream.read(length)
                    of_part = {"X-Part-SHA256": hashlib.sha256(data).hexdigest()}
                    self._http.send("PUT", f"{path}/parts/{number}", content=data, headers=of_part, again=True)
                told(start + length, size)

    def catalog(self) -> dict[str, Any]:
        return self._object("GET", "/v1/catalog")

    def quotas(self) -> dict[str, Any]:
        return self._object("GET", "/v1/quotas")

    def _object(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        return dict(self._http.json(method, path, **options))

    def _bytes(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        return self._http.send("GET", path, params=dict(params or {})).content

    def _pages(self, path: str, limit: int | None, params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        cursor, remaining = None, limit
        while remaining is None or remaining > 0:
            query = {
                **params,
                **({"cursor": cursor} if cursor else {}),
                **({"limit": min(remaining, 200)} if remaining else {}),
            }
            page = self._object("GET", path, params=query)
            items = page["items"] if remaining is None else page["items"][:remaining]
            yield from items
            remaining, cursor = None if remaining is None else remaining - len(items), page["next"]
            if cursor is None:
                return


def fields_of(config: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Returns the fields of a config, read from its file if it is a path. Raises ConfigError if the file contains no
    mapping."""
    if not isinstance(config, str | Path):
        return dict(config)
    fields = read_yaml(config)
    if not isinstance(fields, dict):
        raise ConfigError("", "expected a mapping of fields", location=str(config))
    return fields


def _within_limits(files: Sequence[LocalFile], limits: Mapping[str, Any]) -> list[str]:
    """Returns a line for each file: how large it is, of how much. Raises ConfigError for one that is too large.

    `limits`: of an endpoint; empty of one that does not say them.
    """
    lines = []
    for file in files:
        size, most = file.size(), limits.get("bytes")
        if most is not None and size > most:
            raise ConfigError(file.field, f"{file.path} has {_too_much(size, most)}")
        limit = f" of the {words.size(most)} that an upload may have" if most else ""
        lines.append(f"{file.path}: {words.size(size)}{limit}")
    return lines


def _too_much(size: int, most: int) -> str:
    return (
        f"{words.size(size)}, and an upload may have {words.size(most)}; send less, or ask the endpoint's operator for "
        "more (`policy.upload_bytes`)"
    )


def _name_of(path: str | Path) -> str:
    """Returns the name of a file as an endpoint takes it: shorter than it may be, and printable."""
    return "".join(character for character in Path(path).name if character.isprintable())[:200] or "file"


def _job(job_id: str) -> str:
    return f"/v1/audits/{quote(job_id, safe='')}"


def _gates(fail_on: Sequence[str], classifier: str | None, allow_unchecked: bool) -> dict[str, Any]:
    selection = {} if classifier is None else {"classifier": classifier}
    return {"fail_on": list(fail_on), "allow_unchecked": allow_unchecked, **selection}


class _Chunks:
    """The bytes of a file. Each iteration starts at the beginning, because a request may be sent again."""

    def __init__(self, stream: BinaryIO, told: Callable[[int, int], None], size: int) -> None:
        self._stream, self._told, self._size = stream, told, size

    def __iter__(self) -> Iterator[bytes]:
        self._stream.seek(0)
        sent = 0
        while part := self._stream.read(CHUNK):
            yield part
            sent += len(part)
            self._told(sent, self._size)


def _parsed(lines: Iterator[str]) -> Iterator[Event | None]:
    """Yields server-sent events; None for comments and for events without an id."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            if fields.get("id", "").isdigit() and "data" in fields:
                yield Event(int(fields["id"]), fields.get("event", ""), dict(json.loads(fields["data"])))
            else:
                yield None
            fields = {}
