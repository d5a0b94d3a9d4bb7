"""A whole endpoint in one process, for one host: the API, a dispatcher and a runner, which starts a process per job.

It composes them, and knows none of what they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.ledger import keys, migrations, tenants
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.work.dispatcher import Dispatcher
from c2b_ray.endpoint.work.runner import Runner, name_of_this_process
from c2b_ray.endpoint.work.upkeep import running, upkeep

FIRST_TENANT = "default"
LOG = "jobs.log"


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
    """A dispatcher, its upkeep and a runner in threads, while the body runs; afterwards all that they started has
    ended."""
    owner = name_of_this_process()
    runner = Runner(db, config, owner, Path(config.folder) / LOG)
    with upkeep(db, config, owner), running([Dispatcher(db, config, owner).run, runner.run]):
        yield
