"""Tenants, who have jobs, keys and uploads; their keys; and the sessions of the web pages that were signed out.

A key is c2b_PREFIX_SECRET. The ledger keeps the prefix and the SHA-256 of the secret. A secret has 190 random bits, so
even a fast hash of it cannot be searched. It is shown once, at its creation. The API decides which route needs which
scope.
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

from pydantic import ValidationError
from sqlalchemy import Column, ColumnElement, delete, exc, or_, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from c2b_ray.config.endpoint import Quotas
from c2b_ray.config.reading import first_problem
from c2b_ray.endpoint.ledger import audit_log, tables
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError, Transaction, is_id, locked, new_id, record
from c2b_ray.errors import ConfigError, InputError, RunError

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")


class ExistsError(InputError):
    """There is a tenant of this name."""


@dataclass(frozen=True)
class Tenant:
    """A tenant. `weight`: its share of the machines relative to other tenants' weights. `quotas`: fields that replace
    defaults."""

    id: str
    name: str
    weight: float
    quotas: dict[str, Any]
    created: float

    def limits(self, defaults: Quotas) -> Quotas:
        """Returns the tenant's quotas; `defaults` are the endpoint's."""
        if not self.quotas:
            return defaults
        return defaults.model_copy(update=_valid(self.quotas).model_dump(include=set(self.quotas)))


_COLUMNS = [tables.tenants.c[field.name] for field in fields(Tenant)]


def tenant_columns() -> list[Column[Any]]:
    """Returns the columns in the order of `Tenant`'s fields."""
    return list(_COLUMNS)


def create(
    db: Database, name: str, *, weight: float = 1.0, quotas: dict[str, Any] | None = None, actor: str = "operator"
) -> Tenant:
    """Creates a tenant. Raises ExistsError if the name is taken, ConfigError for an invalid name, weight or quota."""
    check_name(name)
    _check_weight(weight)
    _valid(quotas or {})
    try:
        with db.transaction() as tx:
            tenant = Tenant(new_id("tenant"), name, weight, quotas or {}, tx.now)
            tx.execute(tables.tenants.insert().values(vars(tenant)))
            audit_log.append(tx, audit_log.Entry(actor, "tenant.create", tenant.id, tenant.id, {"name": name}))
    except exc.IntegrityError as error:
        raise ExistsError(f"a tenant {name!r} exists") from error
    return tenant


def check_name(name: str) -> None:
    """Raises ConfigError if the text is no valid name of a tenant."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "name", f"{name[:100]!r} is not a valid name of a tenant: expected at most 64 of a-z, 0-9, '.', '_', '-'"
        )


def change(
    db: Database,
    tenant_id: str,
    *,
    weight: float | None = None,
    quotas: dict[str, Any] | None = None,
    actor: str = "operator",
) -> Tenant | None:
    """Changes the values that are not None. Returns None if there is no such tenant."""
    values: dict[str, Any] = {}
    if weight is not None:
        _check_weight(weight)
        values["weight"] = weight
    if quotas is not None:
        _valid(quotas)
        values["quotas"] = quotas
    if not values:
        return get(db, tenant_id)
    statement = update(tables.tenants).where(tables.tenants.c.id == tenant_id).values(values).returning(*_COLUMNS)
    with db.transaction() as tx:
        row = tx.execute(statement).first()
        if row is not None:
            audit_log.append(tx, audit_log.Entry(actor, "tenant.change", tenant_id, tenant_id, values))
    return None if row is None else record(Tenant, row)


def remove(db: Database, tenant_id: str, actor: str = "operator") -> bool:
    """Deletes a tenant and all its rows for good; returns whether it existed.

    The audit log keeps its entries, which hold ids and no contents. Raises RunError while jobs of the tenant wait or
    run. The caller deletes the tenant's files on the store.
    """
    jobs, hooks = tables.jobs.c, tables.webhooks.c
    with db.transaction() as tx:
        row = tx.execute(locked(tx, select(tables.tenants.c.id).where(tables.tenants.c.id == tenant_id))).first()
        if row is None:
            return False
        if tx.execute(select(jobs.id).where(tables.OPEN, jobs.tenant_id == tenant_id).limit(1)).first() is not None:
            raise RunError(f"{tenant_id}: jobs wait or run; cancel them first")
        of_jobs = select(jobs.id).where(jobs.tenant_id == tenant_id)
        of_hooks = select(hooks.id).where(hooks.tenant_id == tenant_id)
        tx.execute(delete(tables.events).where(tables.events.c.job_id.in_(of_jobs)))
        tx.execute(delete(tables.job_classifiers).where(tables.job_classifiers.c.job_id.in_(of_jobs)))
        tx.execute(delete(tables.deliveries).where(tables.deliveries.c.webhook_id.in_(of_hooks)))
        for table in (tables.webhooks, tables.uploads, tables.usage, tables.idempotency, tables.jobs, tables.keys):
            tx.execute(delete(table).where(table.c.tenant_id == tenant_id))
        tx.execute(delete(tables.tenants).where(tables.tenants.c.id == tenant_id))
        audit_log.append(tx, audit_log.Entry(actor, "tenant.remove", tenant_id, tenant_id))
    return True


def get(db: Database, tenant_id: str) -> Tenant | None:
    return _one(db, tables.tenants.c.id == tenant_id)


def by_name(db: Database, name: str) -> Tenant | None:
    return _one(db, tables.tenants.c.name == name)


def every(db: Database, after: str | None = None, limit: int | None = None) -> list[Tenant]:
    """Returns all tenants by name, for operators. `after`: the name after which to begin; `limit`: the most tenants."""
    statement = select(*_COLUMNS).order_by(tables.tenants.c.name).limit(limit)
    if after is not None:
        statement = statement.where(tables.tenants.c.name > after)
    with db.reading() as tx:
        return [record(Tenant, row) for row in tx.execute(statement)]


def _one(db: Database, condition: ColumnElement[bool]) -> Tenant | None:
    with db.reading() as tx:
        row = tx.execute(select(*_COLUMNS).where(condition)).first()
    return None if row is None else record(Tenant, row)


def _check_weight(weight: float) -> None:
    if not 0 < weight <= 1000:
        raise ConfigError("weight", f"{weight:g} is out of range: expected above 0 and at most 1000")


def _valid(quotas: dict[str, Any]) -> Quotas:
    try:
        return Quotas.model_validate(quotas)
    except ValidationError as error:
        raise first_problem(error, None, Quotas) from error


# Sessions of the web pages that were signed out early: copies of their cookies no longer work.


_ended = tables.ended_sessions.c


def end_session(db: Database, session: str, until: float) -> None:
    """Ends a session. `session`: its secret name. `until`: when it would have ended by itself. A second call has no
    effect."""
    with db.transaction() as tx:
        insert = postgresql.insert if tx.locks_rows else sqlite.insert
        values = {"id": _hash_of(session), "until": until}
        tx.execute(insert(tables.ended_sessions).values(values).on_conflict_do_nothing())


def session_has_ended(db: Database, session: str) -> bool:
    """Returns whether the session was signed out, in this or any other process of the endpoint."""
    with db.reading() as tx:
        return tx.scalar(select(_ended.until).where(_ended.id == _hash_of(session))) is not None


def forget_sessions(db: Database, before: float) -> int:
    """Deletes the rows of sessions that would have ended before this time anyway; returns how many."""
    with db.transaction() as tx:
        return tx.execute(delete(tables.ended_sessions).where(_ended.until < before)).rowcount


def _hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


# Keys of tenants.


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


_KEY_COLUMNS = [_keys[field.name] for field in fields(Key)]


def create_key(
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
    check_key(name, scopes, expires_in)
    with db.transaction() as tx:
        if tx.execute(select(tables.tenants.c.id).where(tables.tenants.c.id == tenant_id)).first() is None:
            raise InputError(f"{tenant_id}: no such tenant")
        expires = None if expires_in is None else tx.now + expires_in
        new = _inserted(tx, tenant_id, name, [scope for scope in SCOPES if scope in scopes], expires)
        data = {"name": name, "scopes": list(new.key.scopes), "expires": expires}
        audit_log.append(tx, audit_log.Entry(actor, "key.create", tenant_id, new.key.id, data))
    return new


def check_key(name: str, scopes: Collection[str], expires_in: float | None) -> None:
    """Raises ConfigError if a key cannot have these values."""
    if not (0 < len(name) <= 200 and name.isprintable()):
        raise ConfigError("name", "expected 1 to 200 printable characters")
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        wrong = repr(unknown[0][:50]) if unknown else "none"
        raise ConfigError("scopes", f"expected some of {', '.join(SCOPES)}, not {wrong}")
    if expires_in is not None and not 0 < expires_in < 100 * 365 * 86_400:
        raise ConfigError("expires_in", f"expected seconds, above 0 and below 100 years, not {expires_in:g}")


def verify_key(db: Database, text: str) -> Key | None:
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
                set_key_used(self._db, key.id)
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


def set_key_used(db: Database, key_id: str) -> None:
    with db.transaction() as tx:
        tx.execute(update(tables.keys).where(_keys.id == key_id).values(last_used=tx.now))


def list_keys(
    db: Database, tenant_id: str | None, after: tuple[float, str] | None = None, limit: int | None = None
) -> list[Key]:
    """Returns keys by creation, also expired and revoked ones, of a tenant, or of all where `tenant_id` is None.
    `after`: (time, id) of the key after which to begin; `limit`: the most keys."""
    statement = select(*_KEY_COLUMNS).order_by(_keys.created, _keys.id).limit(limit)
    if after is not None:
        statement = statement.where(tuple_(_keys.created, _keys.id) > tuple_(*after))
    if tenant_id is not None:
        statement = statement.where(_keys.tenant_id == tenant_id)
    with db.reading() as tx:
        return [_key(row) for row in tx.execute(statement)]


def get_key(db: Database, tenant_id: str | None, key_id: str) -> Key | None:
    """Returns a key; None if the tenant has no such key. `tenant_id` None: any tenant."""
    if not is_id(key_id):
        return None
    with db.reading() as tx:
        row = tx.execute(select(*_KEY_COLUMNS).where(_keys.id == key_id)).first()
    return None if row is None or tenant_id not in (None, row.tenant_id) else _key(row)


def working_key(db: Database, key_id: str) -> Key | None:
    """Returns the key; None if it does not exist, was revoked or has expired."""
    with db.reading() as tx:
        row = tx.execute(select(*_KEY_COLUMNS, db.clock().label("now")).where(_keys.id == key_id)).first()
    if row is None or row.revoked is not None or (row.expires is not None and row.expires <= row.now):
        return None
    return _key(row[:-1])


def why_key_fails(db: Database, key_id: str) -> str | None:
    """Returns why a key no longer works, in words that follow "the key"; None if it works."""
    with db.reading() as tx:
        row = tx.execute(select(_keys.expires, _keys.revoked).where(_keys.id == key_id)).first()
        if row is None:
            return "was deleted"
        if row.revoked is not None:
            return "was revoked"
        return "has expired" if row.expires is not None and row.expires <= tx.now else None


def spent_keys(db: Database, key_ids: Collection[str]) -> set[str]:
    """Returns those of the key ids whose keys no longer work."""
    works = _keys.revoked.is_(None), or_(_keys.expires.is_(None), _keys.expires > db.clock())
    with db.reading() as tx:
        return set(key_ids) - set(tx.execute(select(_keys.id).where(_keys.id.in_(key_ids), *works)).scalars())


def revoke_key(db: Database, tenant_id: str | None, key_id: str, actor: str = "operator") -> Key | None:
    """Revokes a key and returns it; None if the tenant has no such key. A key that was revoked before stays as it
    is."""
    key = get_key(db, tenant_id, key_id)
    if key is None or key.revoked is not None:
        return key
    with db.transaction() as tx:
        change = update(tables.keys).where(_keys.id == key_id, _keys.revoked.is_(None)).values(revoked=tx.now)
        row = tx.execute(change.returning(*_KEY_COLUMNS)).first()
        if row is not None:
            audit_log.append(tx, audit_log.Entry(actor, "key.revoke", row.tenant_id, key_id))
    return key if row is None else _key(row)


def rotate_key(
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
        row = tx.execute(locked(tx, select(*_KEY_COLUMNS).where(_keys.id == key_id))).first()
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
    values |= {"hash": _hash_of(secret), "scopes": scopes, "created": tx.now, "expires": expires}
    row = tx.execute(tables.keys.insert().values(values).returning(*_KEY_COLUMNS)).one()
    return NewKey(_key(row), f"c2b_{prefix}_{secret}")


def _verified(db: Database, text: str) -> tuple[Key | None, float]:
    """Returns the key, and the time of the look-up by the database's clock."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None, 0.0
    prefix, secret = match.groups()
    with db.reading() as tx:
        row = tx.execute(
            select(*_KEY_COLUMNS, _keys.hash, db.clock().label("now")).where(_keys.prefix == prefix)
        ).first()
    matches = hmac.compare_digest(_hash_of(secret), _NOBODY if row is None else row.hash)
    if row is None or not matches or row.revoked is not None or (row.expires is not None and row.expires <= row.now):
        return None, 0.0
    return _key(row[:-2]), row.now


def _key(row: Any) -> Key:
    values = dict(zip((field.name for field in fields(Key)), row, strict=True))
    return Key(**{**values, "scopes": tuple(values["scopes"])})


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
