"""`c2b endpoint`: the shared audit endpoint, whole on one host or in its parts."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.cli import show
from c2b_ray.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

    from c2b_ray.config.endpoint import EndpointConfig
    from c2b_ray.endpoint.ledger.database import Database

GRACE_S = 3
KEEP_ALIVE_S = 75
"""Longer than clients and proxies keep a connection without requests: else one is sent on a connection that is just
being closed, and its client sees it cut off and cannot tell whether it was done."""
START_AGAIN_S = 1.0
Metrics = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where Prometheus may read what this process counts.")
]

app = typer.Typer(
    help="Run a shared audit endpoint: submit audits over HTTP, watch them, read their reports.",
    invoke_without_command=True,
)
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="ENDPOINT.yaml", help="The endpoint's file; by default the folder c2b-endpoint."),
]


@app.callback()
def endpoint(
    context: typer.Context,
    config: Config = None,
    folder: Annotated[
        str | None, typer.Option(help="Where database, runs and uploads go, instead of the file's folder.")
    ] = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Instead of the file's.")] = None,
) -> None:
    """Start API, dispatcher and runner in one command, and wait; Ctrl-C ends all that it started, and jobs resume."""
    if context.invoked_subcommand is not None:
        if (config, folder, listen) != (None, None, None):
            raise ConfigError("", f"give options after `{context.invoked_subcommand}`")
        return
    from c2b_ray.endpoint.work.embedded import first_key, prepared, working

    settings = _settings(config, folder, listen)
    db = prepared(settings)
    key = first_key(db)
    server = _server(settings)
    if key is not None:
        # Nothing can show it again: standard output, where it does not get lost between lines of a log.
        print(f"first key, of the tenant default, shown this once: {key}", flush=True)
    with working(db, settings):
        show.line(f"audits are taken at {settings.url}; Ctrl-C ends the endpoint, and its jobs go on next time")
        server.run()


@app.command()
def api(config: Config = None) -> None:
    """Serve the HTTP API alone; any number of replicas share one PostgreSQL."""
    settings = _settings(config)
    _current(settings)
    _server(settings).run()


@app.command()
def runner(config: Config = None, metrics: Metrics = None) -> None:
    """Run jobs: each in a process of its own, as many at once as the file's slots say."""
    from c2b_ray.endpoint.operate.metrics import served
    from c2b_ray.endpoint.work.runner import Runner, name_of_this_process

    settings = _settings(config)
    db = _current(settings)
    with served(db, metrics):
        Runner(db, settings, name_of_this_process()).run(threading.Event())


@app.command()
def dispatcher(config: Config = None, metrics: Metrics = None) -> None:
    """Share the runners between tenants, send webhooks, delete what is old; of several dispatchers one leads."""
    from c2b_ray.endpoint.operate.metrics import served
    from c2b_ray.endpoint.work.dispatcher import Dispatcher
    from c2b_ray.endpoint.work.runner import name_of_this_process
    from c2b_ray.endpoint.work.upkeep import upkeep

    settings = _settings(config)
    db = _current(settings)
    owner = name_of_this_process()
    with served(db, metrics), upkeep(db, settings, owner):
        Dispatcher(db, settings, owner).run(threading.Event())


@app.command()
def purge(
    config: Config = None,
    tenant: Annotated[
        str | None, typer.Option(help="Delete all of this tenant, for ever: runs, uploads, keys, what it used.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --tenant: really.")] = False,
) -> None:
    """Delete now what the file's `retention` says is old, or all of a tenant; the audit log keeps ids."""
    from c2b_ray.endpoint.operate import retention

    settings = _settings(config)
    db = _current(settings, wait=False)
    if tenant is None:
        show.line(f"deleted: {retention.purge(db, settings)}")
        return
    if not yes:
        raise ConfigError("tenant", f"all of {tenant} would be deleted, for ever; say --yes to do it")
    show.line(f"deleted {retention.remove_tenant(db, settings, tenant)} and all of it")


@app.command()
def migrate(
    config: Config = None,
    to: Annotated[str | None, typer.Option(help="A revision; by default the newest. 0 is an empty database.")] = None,
    discard: Annotated[bool, typer.Option("--discard", help="With --to 0: delete the whole ledger.")] = False,
) -> None:
    """Bring the database's tables to a revision; stop API, dispatcher and runners first."""
    from c2b_ray.endpoint.ledger import migrations
    from c2b_ray.endpoint.ledger.database import Database

    before, after = migrations.migrate(Database(_settings(config).database_url), to, discard=discard)
    show.line(f"the database was at revision {before}, and is at {after}")


def _settings(config: str | None, folder: str | None = None, listen: str | None = None) -> EndpointConfig:
    """The endpoint's file, with what the command line says in its place."""
    from c2b_ray.config.endpoint import read_endpoint

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("alembic", "botocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    changes = {name: value for name, value in (("folder", folder), ("listen", listen)) if value is not None}
    settings = read_endpoint(config)
    return settings if not changes else read_endpoint({**settings.model_dump(), **changes})


def _current(settings: EndpointConfig, wait: bool = True) -> Database:
    """Waits while the database is down, as parts do that run. SchemaError where the tables are not of this version: of
    several processes none changes them by itself."""
    from c2b_ray.endpoint.ledger import migrations
    from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError

    db, down = Database(settings.database_url), False
    while True:
        try:
            migrations.require_current(db)
        except DatabaseDownError as error:
            if not wait:
                raise
            if not down:
                logging.getLogger(__name__).warning("%s; the start waits for it", error)
            down = True
            time.sleep(START_AGAIN_S)
        else:
            return db


def _server(settings: EndpointConfig) -> uvicorn.Server:
    """Its `run` serves the API until a signal; requests that are under way then have a few seconds to end."""
    import uvicorn

    from c2b_ray.endpoint.api.envelope import log_to_stderr
    from c2b_ray.endpoint.application import create_application

    log_to_stderr()

    config = uvicorn.Config(
        create_application(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    return uvicorn.Server(config)
