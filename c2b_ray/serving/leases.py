"""Leases of the apps that runs started for themselves: an app ends with its last user, however that user ends.

A detached actor keeps the book of leases. A user is a lease of a Ray job, which is a driver process: Ray notices its
death, also by SIGKILL or with its node, and a driver that only hangs keeps its apps. The book is kept in the cluster's
key-value store, so that it outlives the actor. It knows names of apps and jobs, and nothing of models.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve.exceptions import RayServeException

NAME, NAMESPACE, KEY = "app-leases", "c2b-ray", "app-leases"
REAP_EVERY_S = 5.0
IDLE_S = 60.0
_ATTEMPTS = 5


@dataclass(frozen=True)
class Lease:
    """One user: the Ray job of a driver, and the number of the user within it."""

    job: str
    number: str = field(default_factory=lambda: uuid4().hex)


class AppUsers:
    """The users of each app. `delete` ends an app and returns once it has ended; `save` stores what `book` returns.

    Methods may be called from several threads at once.
    """

    def __init__(
        self, delete: Callable[[str], None], save: Callable[[dict[str, list[list[str]]]], None], kept: dict[str, Any]
    ) -> None:
        self._delete = delete
        self._save = save
        self._users = {app: {Lease(*lease) for lease in leases} for app, leases in kept.items()}
        self._ending: set[str] = set()
        self._changed = threading.Condition()

    def take(self, app: str, lease: Lease) -> bool:
        """Adds a user. Returns True where it is the only one and so has to start the app. Waits while the app ends."""
        with self._changed:
            self._changed.wait_for(lambda: app not in self._ending)
            users = self._users.setdefault(app, set())
            first = not users - {lease}
            users.add(lease)
            self._save(self.book())
            return first

    def give_back(self, app: str, lease: Lease) -> None:
        """Removes a user; the app ends with its last one."""
        with self._changed:
            users = self._users.get(app, set())
            if lease not in users:
                return
            users.remove(lease)
            if users:
                self._save(self.book())
                return
            self._ending.add(app)
        try:
            self._delete(app)
        finally:
            with self._changed:
                self._ending.discard(app)
                if not self._users[app]:
                    del self._users[app]
                self._save(self.book())
                self._changed.notify_all()

    def reap(self, living: Collection[str]) -> None:
        """Removes the users whose jobs are not among `live_jobs`."""
        with self._changed:
            expired = [(app, lease) for app, users in self._users.items() for lease in users if lease.job not in living]
        for app, lease in expired:
            self.give_back(app, lease)

    def book(self) -> dict[str, list[list[str]]]:
        """Returns the users of each app in a form that JSON can hold."""
        return {app: sorted([lease.job, lease.number] for lease in users) for app, users in self._users.items()}


class AppUsersActor:
    """The actor: the leases of this cluster, and a thread that removes those of jobs that have ended."""

    def __init__(self, reap_every_s: float) -> None:
        stored = _store()._internal_kv_get(KEY, namespace=NAMESPACE)
        self._book = AppUsers(_delete, _save, json.loads(stored) if stored else {})
        threading.Thread(target=self._reap, args=(reap_every_s,), daemon=True).start()

    def take(self, app: str, lease: Lease) -> bool:
        return self._book.take(app, lease)

    def give_back(self, app: str, lease: Lease) -> None:
        self._book.give_back(app, lease)

    def apps(self) -> list[str]:
        return sorted(self._book.book())

    def _reap(self, every_s: float) -> None:
        idle_since = time.monotonic()
        while True:
            time.sleep(every_s)
            try:
                jobs = ray._private.state.jobs()  # type: ignore[no-untyped-call]
                self._book.reap({job["JobID"] for job in jobs if not job["IsDead"]})
            except (RayError, RayServeException, OSError, RuntimeError):  # the cluster's head is away: later
                continue
            idle_since = time.monotonic() if self._book.book() else idle_since
            if time.monotonic() - idle_since > IDLE_S:  # who comes now starts another keeper
                ray.kill(ray.get_actor(NAME, namespace=NAMESPACE))


def take(apps: Collection[str], lease: Lease, reap_every_s: float = REAP_EVERY_S) -> list[str]:
    """Adds this user to the apps. Returns the apps of which it is the only user, and which it has to start."""
    return [app for app in apps if _ask("take", app, lease, reap_every_s=reap_every_s)]


def give_back(apps: Collection[str], lease: Lease) -> None:
    """Ends this user's leases. Where one was an app's last, the app has ended when this returns."""
    for app in apps:
        _ask("give_back", app, lease)


def leased() -> list[str]:
    """Returns the apps that end with their last user."""
    try:
        keeper = ray.get_actor(NAME, namespace=NAMESPACE)
    except ValueError:
        return []
    apps: list[str] = ray.get(keeper.apps.remote())
    return apps


def lease_here() -> Lease:
    return Lease(ray.get_runtime_context().get_job_id())


def _ask(method: str, *args: Any, reap_every_s: float = REAP_EVERY_S) -> Any:
    for attempt in range(_ATTEMPTS):
        keeper = (
            ray.remote(AppUsersActor)
            .options(
                name=NAME,
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=64,
                max_restarts=-1,
            )
            .remote(reap_every_s)
        )
        try:
            return ray.get(getattr(keeper, method).remote(*args))
        except RayActorError:  # its node is lost; it starts anew on another one, with the same book
            if attempt == _ATTEMPTS - 1:
                raise
            time.sleep(1.0)
    raise AssertionError


def _store() -> Any:
    from ray.experimental import internal_kv

    return internal_kv


def _save(book: dict[str, list[list[str]]]) -> None:
    _store()._internal_kv_put(KEY, json.dumps(book), overwrite=True, namespace=NAMESPACE)


def _delete(app: str) -> None:
    try:
        serve.delete(app)
    except RayServeException:  # Serve itself has ended, and with it the app
        return
