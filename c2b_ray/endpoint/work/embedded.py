"""A whole endpoint in one process, for one host: the API, a dispatcher and a runner, which starts a process per job.

It composes them, and knows none of what they do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.ledger import keys, migrations, tenants
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.work.dispatcher import Dispatcher
from c2b_ray.endpoint.work.runner import Runner, name_of_this_process

FIRST_TENANT = "default"
LOG = "jobs.log"
_log = logging.getLogger(__name__)


def prepared(config: EndpointConfig) -> Database:
    """The ledger of the config, its tables made or brought up to date, and the folder for runs."""
    Path(config.folder).mkdir(parents=True, exist_ok=True)
    db = Database(config.database_url)
    migrations.prepare(db)
    return db


def first_key(db: Database) -> str | None:
    """A key of the tenant `default` that may do everything; None where there is a tenant, and so a key, already."""
    if tenants.every(db):
        return None
    tenant = tenants.create(db, FIRST_TENANT)
    return keys.create(db, tenant.id, "first", ("submit", "read", "admin")).text


@contextmanager
def working(db: Database, config: EndpointConfig) -> Iterator[None]:
    """A dispatcher and a runner in threads, while the body runs; afterwards all that they started has ended."""
    owner, stop = name_of_this_process(), threading.Event()
    runner = Runner(db, config, owner, Path(config.folder) / LOG)
    work = (Dispatcher(db, config, owner).run, runner.run)
    threads = [threading.Thread(target=_guarded, args=(run, stop), name=run.__qualname__) for run in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _guarded(run: object, stop: threading.Event) -> None:
    assert callable(run)
    try:
        run(stop)
    except Exception:
        _log.exception("a thread of the endpoint ended; restart it")
        raise
