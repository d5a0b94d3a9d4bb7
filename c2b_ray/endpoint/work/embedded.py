"""A whole endpoint in one process, for one host: the API, a dispatcher, and a runner that starts a process per job."""

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
    """Returns the config's ledger with its tables at the newest revision, and creates the folder for runs."""
    Path(config.folder).mkdir(parents=True, exist_ok=True)
    db = Database(config.database_url)
    migrations.prepare(db)
    return db


def first_key(db: Database) -> str | None:
    """Creates the tenant `default` and returns a key with all scopes; None if there is a tenant already."""
    if tenants.every(db):
        return None
    tenant = tenants.create(db, FIRST_TENANT)
    return keys.create(db, tenant.id, "first", ("submit", "read", "admin")).text


@contextmanager
def working(db: Database, config: EndpointConfig) -> Iterator[None]:
    """Runs a dispatcher, its upkeep and a runner in threads during the block; afterwards all that they started has
    ended."""
    owner = name_of_this_process()
    runner = Runner(db, config, owner, Path(config.folder) / LOG)
    with upkeep(db, config, owner), running([Dispatcher(db, config, owner).run, runner.run]):
        yield
