"""Keys of tenants: c2b_PREFIX_SECRET. The ledger keeps the prefix and the SHA-256 of the secret.

A secret has 190 random bits, so even a fast hash of it cannot be searched. It is shown once, at its creation. The
module knows no HTTP; the API decides which route needs which scope.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from sqlalchemy import or_, select, tuple_, update

from c2b_ray.endpoint.ledger import audit_log, tables
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError, Transaction, is_id, locked, new_id
from c2b_ray.errors import ConfigError, InputError

Scope = Literal["submit", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_LETTERS = string.ascii_letters + string.digits
_TEXT = re.compile(r"c2b_([A-Za-z0-9]{8})_([A-Za-z0-9]{32})")
_NOBODY = hashlib.sha256(b"").hexdigest()
USED_SECONDS = 60.0
"""Seconds between two writes of a key's `last_used`, at least."""
_REMEMBERED = 10_000

_keys = tables.keys.c


@dataclass(frozen=True)
class Key:
    """A key without its secret. `expires`, `revoked`: when it stops or stopped working, in seconds since 1970."""

    id: str
    tenant_id: str
    name: str
    prefix: str
    scopes: tuple[Scope, ...]
    created: float
    expires: float | None
    revoked: float | None
    last_used: float | None

    def allows(self, scope: Scope) -> bool:
        return scope in self.scopes


@dataclass(frozen=True)
class NewKey:
    """A new key and its text, c2b_…, which cannot be shown again."""

    key: Key
    text: str

    def __repr__(self) -> str:
        return f"NewKey({self.key!r})"


_COLUMNS = [_keys[field.name] for field in fields(Key)]


def create(
    db: Database,
    tenant_id: str,
    name: str,
    scopes: Collection[str] = ("submit", "read"),
    expires_in: float | None = None,
    actor: str = "operator",
) -> NewKey:
    """Creates a key. `expires_in`: seconds; None for a key that never expires.

    Raises ConfigError for an invalid field, InputError for an unknown tenant.
    """
    check(name, scopes, expires_in)
    with db.transaction() as tx:
        if tx.execute(select(tables.tenants.c.id).where(tables.tenants.c.id == tenant_id)).first() is None:
            raise InputError(f"{tenant_id}: no such tenant")
        expires = None if expires_in is None else tx.now + expires_in
        new = _inserted(tx, tenant_id, name, [scope for scope in SCOPES if scope in scopes], expires)
        data = {"name": name, "scopes": list(new.key.scopes), "expires": expires}
        audit_log.append(tx, audit_log.Entry(actor, "key.create", tenant_id, new.key.id, data))
    return new


def check(name: str, scopes: Collection[str], expires_in: float | None) -> None:
    """Raises ConfigError if a key cannot have these values."""
    if not (0 < len(name) <= 200 and name.isprintable()):
        raise ConfigError("name", "expected 1 to 200 printable characters")
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        given = repr(unknown[0][:50]) if unknown else "none"
        raise ConfigError("scopes", f"expected some of {', '.join(SCOPES)}, not {given}")
    if expires_in is not None and not 0 < expires_in < 100 * 365 * 86_400:
        raise ConfigError("expires_in", f"expected seconds, above 0 and below 100 years, not {expires_in:g}")


def verify(db: Database, text: str) -> Key | None:
    """Returns the key of a text; None if there is no such key, or it has expired or was revoked. Unknown and wrong keys
    take the same time."""
    return _verified(db, text)[0]


class KeyRing:
    """Verifies keys and caches them: in each process that has seen a key, it works up to `seconds` after its
    revocation. Wrong keys are not cached. It is safe to use from several threads."""

    def __init__(self, db: Database, seconds: float = 2.0) -> None:
        self._db, self._seconds = db, seconds
        self._known: dict[str, tuple[Key, float]] = {}
        self._touched: dict[str, float] = {}
        self._renewing: dict[str, float] = {}
        self._generation = 0
        self._lock = threading.Lock()

    def verify(self, text: str) -> Key | None:
        """Like the function `verify`; also records the time of use, once a minute."""
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
        started, generation = time.monotonic(), self._generation
        cached = self._known.get(digest)
        if cached is not None and started < cached[1] and not self._renews(digest, started, cached[1]):
            return cached[0]
        key, now = _verified(self._db, text)
        with self._lock:
            self._known.pop(digest, None)
            if key is None:
                return None
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            if generation != self._generation:  # it may have been revoked since it was read
                return key
            lifetime = self._seconds if key.expires is None else min(self._seconds, key.expires - now)
            self._known[digest] = key, started + lifetime
            is_due = started - self._touched.get(key.id, -USED_SECONDS) >= USED_SECONDS
            if is_due:
                self._touched[key.id] = started
        if is_due:
            with suppress(DatabaseDownError):  # reading goes on while the database cannot be written
                used(self._db, key.id)
        return key

    def _renews(self, digest: str, now: float, until: float) -> bool:
        """Returns whether this thread should read the key again. One thread does so in the second half of the cached
        time; otherwise all threads would at its end."""
        if until - now > self._seconds / 2:
            return False
        with self._lock:
            if self._renewing.get(digest) == until:
                return False
            if len(self._renewing) >= _REMEMBERED:
                self._renewing.clear()
            self._renewing[digest] = until
        return True

    def forget(self) -> None:
        """Empties the cache, so that a key revoked in this process stops working here at once."""
        with self._lock:
            self._generation += 1
            self._known.clear()


def used(db: Database, key_id: str) -> None:
    with db.transaction() as tx:
        tx.execute(update(tables.keys).where(_keys.id == key_id).values(last_used=tx.now))


def listed(
    db: Database, tenant_id: str | None, after: tuple[float, str] | None = None, limit: int | None = None
) -> list[Key]:
    """Returns keys by creation, also expired and revoked ones, of a tenant, or of all where `tenant_id` is None.
    `after`: (time, id) of the key after which to begin; `limit`: the most keys."""
    statement = select(*_COLUMNS).order_by(_keys.created, _keys.id).limit(limit)
    if after is not None:
        statement = statement.where(tuple_(_keys.created, _keys.id) > tuple_(*after))
    if tenant_id is not None:
        statement = statement.where(_keys.tenant_id == tenant_id)
    with db.reading() as tx:
        return [_key(row) for row in tx.execute(statement)]


def get(db: Database, tenant_id: str | None, key_id: str) -> Key | None:
    """Returns a key; None if the tenant has no such key. `tenant_id` None: any tenant."""
    if not is_id(key_id):
        return None
    with db.reading() as tx:
        row = tx.execute(select(*_COLUMNS).where(_keys.id == key_id)).first()
    return None if row is None or tenant_id not in (None, row.tenant_id) else _key(row)


def working(db: Database, key_id: str) -> Key | None:
    """Returns the key; None if it does not exist, was revoked or has expired."""
    with db.reading() as tx:
        row = tx.execute(select(*_COLUMNS, db.clock().label("now")).where(_keys.id == key_id)).first()
    if row is None or row.revoked is not None or (row.expires is not None and row.expires <= row.now):
        return None
    return _key(row[:-1])


def why_not_working(db: Database, key_id: str) -> str | None:
    """Returns why a key no longer works, in words that follow "the key"; None if it works."""
    with db.reading() as tx:
        row = tx.execute(select(_keys.expires, _keys.revoked).where(_keys.id == key_id)).first()
        if row is None:
            return "was deleted"
        if row.revoked is not None:
            return "was revoked"
        return "has expired" if row.expires is not None and row.expires <= tx.now else None


def spent(db: Database, key_ids: Collection[str]) -> set[str]:
    """Returns those of the key ids whose keys no longer work."""
    works = _keys.revoked.is_(None), or_(_keys.expires.is_(None), _keys.expires > db.clock())
    with db.reading() as tx:
        return set(key_ids) - set(tx.execute(select(_keys.id).where(_keys.id.in_(key_ids), *works)).scalars())


def revoke(db: Database, tenant_id: str | None, key_id: str, actor: str = "operator") -> Key | None:
    """Revokes a key and returns it; None if the tenant has no such key. A key that was revoked before stays as it
    is."""
    key = get(db, tenant_id, key_id)
    if key is None or key.revoked is not None:
        return key
    with db.transaction() as tx:
        change = update(tables.keys).where(_keys.id == key_id, _keys.revoked.is_(None)).values(revoked=tx.now)
        row = tx.execute(change.returning(*_COLUMNS)).first()
        if row is not None:
            audit_log.append(tx, audit_log.Entry(actor, "key.revoke", row.tenant_id, key_id))
    return key if row is None else _key(row)


def rotate(
    db: Database, tenant_id: str | None, key_id: str, grace_seconds: float = 86_400.0, actor: str = "operator"
) -> NewKey | None:
    """Creates a key with the name, scopes and expiry of this one, which works for another `grace_seconds`.

    Returns None if the tenant has no such key; raises InputError if the key no longer works.
    """
    if not 0 <= grace_seconds < 100 * 365 * 86_400:
        raise ConfigError("grace_seconds", f"expected seconds, from 0 to below 100 years, not {grace_seconds:g}")
    if not is_id(key_id):
        return None
    with db.transaction() as tx:
        row = tx.execute(locked(tx, select(*_COLUMNS).where(_keys.id == key_id))).first()
        if row is None or tenant_id not in (None, row.tenant_id):
            return None
        old_key, end = _key(row), tx.now + grace_seconds
        if old_key.revoked is not None or (old_key.expires is not None and old_key.expires <= tx.now):
            raise InputError(f"{key_id} no longer works; create a key instead")
        ends = end if old_key.expires is None else min(end, old_key.expires)
        tx.execute(update(tables.keys).where(_keys.id == key_id).values(expires=ends))
        new = _inserted(tx, old_key.tenant_id, old_key.name, list(old_key.scopes), old_key.expires)
        data = {"new": new.key.id, "old_expires": ends}
        audit_log.append(tx, audit_log.Entry(actor, "key.rotate", old_key.tenant_id, key_id, data))
    return new


def _inserted(tx: Transaction, tenant_id: str, name: str, scopes: list[Scope], expires: float | None) -> NewKey:
    prefix, secret = _random(8), _random(32)
    values: dict[str, Any] = {"id": new_id("key"), "tenant_id": tenant_id, "name": name, "prefix": prefix}
    values |= {"hash": _hash(secret), "scopes": scopes, "created": tx.now, "expires": expires}
    row = tx.execute(tables.keys.insert().values(values).returning(*_COLUMNS)).one()
    return NewKey(_key(row), f"c2b_{prefix}_{secret}")


def _verified(db: Database, text: str) -> tuple[Key | None, float]:
    """Returns the key, and the time of the look-up by the database's clock."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None, 0.0
    prefix, secret = match.groups()
    with db.reading() as tx:
        row = tx.execute(select(*_COLUMNS, _keys.hash, db.clock().label("now")).where(_keys.prefix == prefix)).first()
    matches = hmac.compare_digest(_hash(secret), _NOBODY if row is None else row.hash)
    if row is None or not matches or row.revoked is not None or (row.expires is not None and row.expires <= row.now):
        return None, 0.0
    return _key(row[:-2]), row.now


def _key(row: Any) -> Key:
    values = dict(zip((field.name for field in fields(Key)), row, strict=True))
    return Key(**{**values, "scopes": tuple(values["scopes"])})


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
