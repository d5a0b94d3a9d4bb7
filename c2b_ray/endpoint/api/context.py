"""What every route begins with: the state of the process, the caller's key, what it allows, and the limits of requests.

A handler calls `enter` first. The call runs in the handler's thread, because its queries of the ledger may block.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
from fastapi import Request
from prometheus_client import CollectorRegistry

from c2b_ray.config.endpoint import EndpointConfig, Quotas
from c2b_ray.endpoint.api.problems import ProblemError, Signer, retry_after
from c2b_ray.endpoint.api.watch import JobWatcher
from c2b_ray.endpoint.ledger import tenants
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.quotas import QuotaDenial, Throttle
from c2b_ray.endpoint.ledger.tenants import Key, KeyRing, Scope
from c2b_ray.endpoint.operate.webhooks import UrlSigner

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


# Responses of routes: fast JSON, and, for the OpenAPI document, the errors that a route may return.
