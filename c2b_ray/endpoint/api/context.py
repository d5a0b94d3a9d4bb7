"""What every route begins with: the state of the process, the caller's key, what it allows, and the limits of requests.

A handler calls `enter` first. The call runs in the handler's thread, because its queries of the ledger may block. The
process signs the cursors of lists and the URLs of artifacts by a secret that all replicas share.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import math
import os
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import anyio
from fastapi import Request
from prometheus_client import CollectorRegistry

from c2b_ray.config.endpoint import SECRET_VARIABLE, EndpointConfig, Quotas
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, retry_after
from c2b_ray.endpoint.api.watch import JobWatcher
from c2b_ray.endpoint.ledger import tenants
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.quotas import QuotaDenial, Throttle
from c2b_ray.endpoint.ledger.tenants import Key, KeyRing, Scope

# Cursors: the position where a list continues, signed so that a client cannot forge one.


T = TypeVar("T")
LONGEST_CURSOR = 1000
"""Characters of a cursor. It is part of a URL, whose length servers limit."""
_TAG = 16


class Signer:
    """Makes and opens cursors. `secret`: the same in all replicas of an endpoint."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"cursor" + secret).digest()

    def seal(self, position: Any, *about: object) -> str:
        """Returns the cursor of `position`, a JSON value. `about`: the list, its tenant and its filters."""
        payload = json.dumps(position, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._tag(payload, about) + payload).rstrip(b"=").decode()

    def following(self, position: Any, *about: object) -> str | None:
        """Returns the cursor of the next page, which begins at `position`; None where that is None."""
        return None if position is None else self.seal(position, *about)

    def open(self, cursor: str | None, *about: object) -> Any:
        """Returns the position, a tuple for a list; None for no cursor. Raises a problem if this endpoint did not make
        it for this list."""
        if cursor is None:
            return None
        try:
            sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        except ValueError as error:
            raise _bad_cursor() from error
        tag, payload = sealed[:_TAG], sealed[_TAG:]
        if len(cursor) > LONGEST_CURSOR or not hmac.compare_digest(tag, self._tag(payload, about)):
            raise _bad_cursor()
        position = json.loads(payload)
        return tuple(position) if isinstance(position, list) else position

    def _tag(self, payload: bytes, context: tuple[object, ...]) -> bytes:
        bound = json.dumps([str(part) for part in context]).encode()
        return hmac.digest(self._secret, len(bound).to_bytes(4) + bound + payload, "sha256")[:_TAG]


@dataclass(frozen=True)
class Pages:
    """The pages of a list, of at most `limit` items. `about`: the list, its tenant and its filters."""

    signer: Signer
    limit: int
    about: tuple[object, ...]

    def after(self, cursor: str | None) -> Any:
        """Returns the position after which a page begins; None for the first page. Raises 400 for another's cursor."""
        return self.signer.open(cursor, *self.about)

    def page(self, items_found: Sequence[T], body: Callable[[T], Any], position: Callable[[T], Any]) -> dict[str, Any]:
        """Returns a page as JSON. `items_found`: its items, and one more where there is a next page."""
        items = items_found[: self.limit]
        has_next = len(items_found) > self.limit
        following = self.signer.seal(position(items[-1]), *self.about) if has_next else None
        return {"items": [body(item) for item in items], "next": following}


def _bad_cursor() -> ProblemError:
    detail = "the cursor does not belong to this list; start without a cursor"
    return ProblemError(400, "bad_cursor", detail, [FieldError("cursor", detail)])


def endpoint_secret(folder: str) -> bytes:
    """Returns the secret that replicas sign with: from the environment, otherwise from a file in the endpoint's folder,
    which is created if it is missing."""
    if text := os.environ.get(SECRET_VARIABLE):
        return text.encode()
    path = Path(folder) / "secret"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"secret.{secrets.token_hex(4)}")
    if not path.exists():
        with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
            stream.write(secrets.token_hex(32))
        try:
            os.link(temporary, path)  # atomic: the file is complete, and the first of two processes wins
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    return path.read_bytes()


# Signed URLs of artifacts: whoever has one may GET that path of that tenant until it expires, without a key.


_SIGNATURE = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{43})")


CLOCKS_APART_S = 60.0
"""Seconds by which the clocks of replicas may differ."""


class UrlSigner:
    """Signs URLs. `secret`: the same in all replicas of an endpoint. `clock`: returns seconds since 1970. `longest`:
    seconds that no URL lives longer than; one that seems to was made before the clock was set back."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time, longest: float = math.inf) -> None:
        self._secret = hashlib.sha256(b"artifact" + secret).digest()
        self._clock, self._longest = clock, longest

    def url(self, path: str, tenant_id: str, seconds: float) -> tuple[str, int]:
        """Returns the path with its signature, and its expiry in seconds since 1970."""
        expires = int(self._clock() + seconds)
        return f"{quote(path)}?signature={expires}.{tenant_id}.{self._mac(path, tenant_id, expires)}", expires

    def tenant(self, path: str, signature: str) -> str | None:
        """Returns the tenant whose path was signed; None if the signature is wrong or has expired."""
        match = _SIGNATURE.fullmatch(signature)
        if match is None:
            return None
        expires, tenant_id, mac = int(match[1]), match[2], match[3]
        is_valid = hmac.compare_digest(mac, self._mac(path, tenant_id, expires))
        remaining = expires - self._clock()
        return tenant_id if is_valid and 0 < remaining <= self._longest + CLOCKS_APART_S else None

    def _mac(self, path: str, tenant_id: str, expires: int) -> str:
        bound = f"GET\n{expires}\n{tenant_id}\n{path}".encode(errors="surrogatepass")
        return base64.urlsafe_b64encode(hmac.digest(self._secret, bound, "sha256")).rstrip(b"=").decode()


# A short-lived cache of tenants' rows in the ledger, which each request would otherwise read again.


OPERATORS = "operators"
"""The tenant whose admin keys administer the whole endpoint; other admin keys administer only their tenant."""
_MOST = 10_000


class TenantCache:
    """The cache. It is safe to use from several threads."""

    def __init__(self, db: Database, defaults: Quotas, seconds: float) -> None:
        self._db, self._defaults, self._seconds = db, defaults, seconds
        self._known: dict[str, tuple[Quotas, bool, float]] = {}
        self._renewing: dict[str, float] = {}
        self._lock = threading.Lock()

    def limits(self, tenant_id: str) -> Quotas:
        return self._of(tenant_id)[0]

    def operates(self, tenant_id: str) -> bool:
        """Returns whether the tenant is that of the operators."""
        return self._of(tenant_id)[1]

    def forget(self) -> None:
        with self._lock:
            self._known.clear()
            self._renewing.clear()

    def _renews(self, tenant_id: str, until: float, now: float) -> bool:
        """Returns whether this thread should read the row again. One thread does so in the second half of the cached
        time; otherwise all threads would at its end."""
        if until - now > self._seconds / 2:
            return False
        with self._lock:
            first = self._renewing.get(tenant_id) != until
            self._renewing[tenant_id] = until
        return first

    def _of(self, tenant_id: str) -> tuple[Quotas, bool, float]:
        cached = self._known.get(tenant_id)
        now = time.monotonic()
        if cached is None or now >= cached[2] or self._renews(tenant_id, cached[2], now):
            tenant = tenants.get(self._db, tenant_id)
            limits = self._defaults if tenant is None else tenant.limits(self._defaults)
            cached = limits, tenant is not None and tenant.name == OPERATORS, now + self._seconds
            with self._lock:
                if len(self._known) >= _MOST:
                    self._known.clear()
                self._known[tenant_id] = cached
        return cached


# Limits attempts with wrong keys: counts them by address and by the key that they name, and answers 429 beyond a
# rate.


_PREFIX = len("c2b_12345678")
_ROWS = 4096
"""The number of counts by key. Prefixes share them at random, which affects only senders of wrong keys."""
_NETWORK = 64
"""Bits of an IPv6 address that a client cannot change freely."""


class WrongKeys:
    """Counts wrong keys. `a_minute`: how many one address, or one prefix, may send on average; `at_once`: how many in a
    burst."""

    def __init__(self, throttle: Throttle, a_minute: float, at_once: int) -> None:
        self._throttle, self._rate, self._burst = throttle, a_minute / 60, at_once

    def count(self, address: str | None, text: str) -> None:
        """Counts one wrong key. Raises ProblemError 429 if there were too many."""
        prefix = int.from_bytes(hashlib.sha256(text[:_PREFIX].encode(errors="replace")).digest()[:8]) % _ROWS
        try:
            for name in (f"wrong:address:{_network(address)}", f"wrong:prefix:{prefix}"):
                self._throttle.take(name, self._rate, self._burst)
        except QuotaDenial as denied:
            wait = retry_after(denied.retry_after)
            detail = f"too many wrong keys; try again in {math.ceil(denied.retry_after)} s"
            raise ProblemError(429, "too_many_wrong_keys", detail, headers=wait) from denied


def _network(address: str | None) -> str:
    try:
        parsed = ipaddress.ip_address(address or "")
    except ValueError:  # a socket in the file system has no address
        return "none"
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed.packed, _NETWORK), strict=False))


# Limits uploads: how many of one tenant a replica receives at the same time, and the threads that check them.


OF_A_TENANT = 4
_THREADS = 4
_WAIT_SECONDS = 5


class UploadSlots:
    """How many uploads one replica receives at a time."""

    def __init__(self) -> None:
        self.threads = anyio.CapacityLimiter(_THREADS)
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, tenant_id: str) -> Iterator[None]:
        """Holds a slot during the block. Raises 429 if the tenant already uses all of its slots."""
        with self._lock:
            if self._taken[tenant_id] >= OF_A_TENANT:
                detail = f"{OF_A_TENANT} uploads of this tenant are in progress; wait for one of them to end"
                raise ProblemError(429, "too_many_uploads", detail, headers=retry_after(_WAIT_SECONDS))
            self._taken[tenant_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[tenant_id] -= 1
                if not self._taken[tenant_id]:
                    del self._taken[tenant_id]


@dataclass(frozen=True)
class Context:
    """The state of one process of the API. `config.storage_root` contains `tenants/<id>/runs/<job id>`."""

    config: EndpointConfig
    db: Database
    keys: KeyRing
    throttle: Throttle
    wrong_keys: WrongKeys
    tenants: TenantCache
    signer: Signer
    links: UrlSigner
    watch: JobWatcher
    upload_slots: UploadSlots
    metrics: CollectorRegistry

    def tenant_root(self, tenant_id: str) -> str:
        return f"{self.config.storage_root.rstrip('/')}/tenants/{tenant_id}"

    def run_path(self, tenant_id: str, job_id: str) -> str:
        return f"{self.tenant_root(tenant_id)}/runs/{job_id}"


def context_of(request: Request) -> Context:
    context: Context = request.scope["app"].state.context
    return context


# Authentication: the key of a request, what it allows, and how many requests its tenant may send.


@dataclass(frozen=True)
class Caller:
    """The sender of a request. `tenant_id`: the tenant whose data it may see."""

    key: Key
    tenant_id: str

    @property
    def actor(self) -> str:
        """The actor of entries in the audit log."""
        return self.key.id


def enter(request: Request, scope: Scope) -> tuple[Context, Caller]:
    """Checks the key of a request and returns who calls.

    Raises 401 without a working key, 403 if the key lacks the scope, and 429 if the tenant sends too many requests or
    the address too many wrong keys.
    """
    context = context_of(request)
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    key = verified(request, context, text.strip()) if scheme.lower() == "bearer" else None
    if key is None:
        raise _unauthenticated(bool(text))
    return context, admitted(request, context, key, scope)


def verified(request: Request, context: Context, text: str) -> Key | None:
    """Returns the key of a text; None for a wrong one. Raises 429 after too many wrong ones."""
    key = context.keys.verify(text)
    if key is None:
        context.wrong_keys.count(request.client.host if request.client else None, text)
    return key


def admitted(request: Request, context: Context, key: Key, scope: Scope) -> Caller:
    """Does what `enter` does for a key that was verified otherwise, such as by a page's session."""
    request.scope["state"]["key_id"] = key.id
    _throttle(request, context, key.tenant_id)
    if not key.allows(scope):
        detail = f"this key may not {scope}: it has the scopes {', '.join(key.scopes)}"
        raise ProblemError(403, "missing_scope", detail)
    return Caller(key, key.tenant_id)


def enter_operator(request: Request) -> tuple[Context, Caller, str | None]:
    """Does what `enter` does with the scope admin. The third value is the tenant that the caller administers; None for
    operators, who administer all."""
    context, caller = enter(request, "admin")
    return context, caller, None if context.tenants.operates(caller.tenant_id) else caller.tenant_id


def enter_artifact(request: Request) -> tuple[Context, str]:
    """Returns whose artifact may be read: by a key with the scope read, or without a key by a signed URL."""
    signature = request.query_params.get("signature")
    if signature is None or "authorization" in request.headers:
        context, caller = enter(request, "read")
        return context, caller.tenant_id
    context = context_of(request)
    tenant_id = context.links.tenant(request.scope["path"], signature)
    if tenant_id is None:
        detail = (
            "the signature does not fit this URL or has expired; get a new URL with a key, from the audit's `signed`"
        )
        raise ProblemError(401, "not_authenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="c2b-ray"'})
    _throttle(request, context, tenant_id)
    return context, tenant_id


def _throttle(request: Request, context: Context, tenant_id: str) -> None:
    """Raises 429 if the tenant sends too many requests."""
    state = request.scope["state"]
    state["tenant_id"] = tenant_id
    limits = context.tenants.limits(tenant_id)
    allowance = context.throttle.take(f"requests:{tenant_id}", limits.requests_per_second, limits.burst)
    state["headers"] |= {
        "RateLimit-Limit": str(allowance.limit),
        "RateLimit-Remaining": str(allowance.remaining),
        "RateLimit-Reset": str(max(0, math.ceil(allowance.reset))),
    }


def _unauthenticated(key_was_sent: bool) -> ProblemError:
    detail = (
        "the key is unknown, expired or revoked"
        if key_was_sent
        else "send a key in the header Authorization, by the scheme Bearer"
    )
    parameters = ', error="invalid_token"' if key_was_sent else ""
    return ProblemError(
        401, "not_authenticated", detail, headers={"WWW-Authenticate": f'Bearer realm="c2b-ray"{parameters}'}
    )
