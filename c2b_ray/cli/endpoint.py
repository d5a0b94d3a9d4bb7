"""`c2b endpoint`: the shared audit endpoint, all in one command, or its parts in processes of their own."""

from __future__ import annotations

import errno
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.cli import show
from c2b_ray.cli.ledger import Config
from c2b_ray.errors import ConfigError

if TYPE_CHECKING:
    import uvicorn

    from c2b_ray.config.endpoint import EndpointConfig
    from c2b_ray.endpoint.ledger.database import Database

GRACE_S = 3
KEEP_ALIVE_S = 75
"""Longer than clients and proxies keep an idle connection: else a request may arrive on a connection that is just being
closed, and its client cannot tell whether it was processed."""
START_AGAIN_S = 1.0
Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="The address at which Prometheus reads the counters of this process."),
]

app = typer.Typer(
    help="Run a shared audit endpoint: submit audits over HTTP, watch them, read their reports.",
    invoke_without_command=True,
)


@app.callback()
def endpoint(
    context: typer.Context,
    config: Config = None,
    folder: Annotated[
        str | None, typer.Option(help="The folder of database, runs and uploads; replaces the file's.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The API's address; replaces the file's.")
    ] = None,
) -> None:
    """Run API, dispatcher and runner until Ctrl-C, which stops all three; at the next start jobs resume."""
    if context.invoked_subcommand is not None:
        if (config, folder, listen) != (None, None, None):
            raise ConfigError("", f"give options after `{context.invoked_subcommand}`")
        return
    from c2b_ray.endpoint.work.dispatcher import first_key, prepared, working

    _refuse_without_isolation()
    settings = _settings(config, folder, listen)
    with _listening(settings) as sockets:  # before the ledger is made: a key is shown once, and only if it can be used
        db = prepared(settings)
        key = first_key(db)
        server = _server(settings)
        if key is not None:
            # Nothing can show it again, so it goes to standard output, apart from the log.
            print(f"first key, of the tenant default (shown only once): {key}", flush=True)
        with working(db, settings):
            show.line(f"the endpoint listens at {settings.url}; Ctrl-C stops it, and its jobs resume at the next start")
            server.run(sockets)


@app.command()
def api(config: Config = None) -> None:
    """Serve the HTTP API alone; any number of replicas share one PostgreSQL."""
    settings = _settings(config)
    _current(settings)
    _server(settings).run()


@app.command()
def runner(config: Config = None, metrics: Metrics = None) -> None:
    """Run jobs, each in its own process, as many at once as the file's `runners.slots`."""
    from c2b_ray.endpoint.operate.metrics import served
    from c2b_ray.endpoint.work.runner import Runner, name_of_this_process

    _refuse_without_isolation()
    settings = _settings(config)
    db = _current(settings)
    with served(db, metrics):
        Runner(db, settings, name_of_this_process()).run(threading.Event())


@app.command()
def dispatcher(config: Config = None, metrics: Metrics = None) -> None:
    """Share the runners between tenants, send webhooks, delete expired data; of several dispatchers one is active."""
    from c2b_ray.endpoint.operate.metrics import served
    from c2b_ray.endpoint.work.dispatcher import Dispatcher, upkeep
    from c2b_ray.endpoint.work.runner import name_of_this_process

    settings = _settings(config)
    db = _current(settings)
    owner = name_of_this_process()
    with served(db, metrics), upkeep(db, settings, owner):
        Dispatcher(db, settings, owner).run(threading.Event())


@app.command()
def purge(
    config: Config = None,
    tenant: Annotated[
        str | None, typer.Option(help="Delete all data of this tenant for ever: runs, uploads, keys, usage.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Confirms --tenant.")] = False,
) -> None:
    """Delete data that exceed the file's `retention` now, or all data of a tenant; the audit log keeps ids."""
    from c2b_ray.endpoint.operate import retention

    settings = _settings(config)
    db = _current(settings, wait=False)
    if tenant is None:
        show.line(f"deleted: {retention.purge(db, settings)}")
        return
    if not yes:
        raise ConfigError("tenant", f"this deletes all data of {tenant} for ever; confirm it with --yes")
    show.line(f"deleted {retention.remove_tenant(db, settings, tenant)} and all its data")


@app.command()
def migrate(
    config: Config = None,
    to: Annotated[str | None, typer.Option(help="A revision. Default: the newest. 0 is an empty database.")] = None,
    discard: Annotated[bool, typer.Option("--discard", help="With --to 0: delete the whole ledger.")] = False,
) -> None:
    """Bring the database's tables to a revision; stop API, dispatcher and runners first."""
    from c2b_ray.endpoint.ledger import migrations
    from c2b_ray.endpoint.ledger.database import Database

    old_revision, new_revision = migrations.migrate(Database(_settings(config).database_url), to, discard=discard)
    show.line(f"the database was at revision {old_revision} and is now at {new_revision}")


def _refuse_without_isolation() -> None:
    """Raises ConfigError where jobs of several tenants could read each other's files: other systems than Linux have no
    Landlock, no namespaces and no flags of a process that these jobs are confined by."""
    if sys.platform != "linux":
        raise ConfigError(
            "",
            f"the endpoint isolates the jobs of its tenants by what only Linux has, and this is {sys.platform}; "
            "run it on Linux, in a container or a virtual machine. Audits run here: c2b audit",
        )


def _settings(config: str | None, folder: str | None = None, listen: str | None = None) -> EndpointConfig:
    """Returns the endpoint's config, with the values of the command line in place of the file's."""
    from c2b_ray.config.endpoint import read_endpoint

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("alembic", "botocore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    changes = {name: value for name, value in (("folder", folder), ("listen", listen)) if value is not None}
    settings = read_endpoint(config)
    return settings if not changes else read_endpoint({**settings.model_dump(), **changes})


def _current(settings: EndpointConfig, wait: bool = True) -> Database:
    """Returns the database; waits while it is down, as running processes do. SchemaError where the tables have another
    version: a process never migrates them, because several share them."""
    from c2b_ray.endpoint.ledger import migrations
    from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError

    db, is_down = Database(settings.database_url), False
    while True:
        try:
            migrations.require_current(db)
        except DatabaseDownError as error:
            if not wait:
                raise
            if not is_down:
                logging.getLogger(__name__).warning("%s; the start waits for it", error)
            is_down = True
            time.sleep(START_AGAIN_S)
        else:
            return db


@contextmanager
def _listening(settings: EndpointConfig) -> Iterator[list[socket.socket]]:
    """Yields sockets that listen at the API's address, one for each address of its host, and closes them afterwards.

    Raises ConfigError where another process has the port, or the address is none of this machine.
    """
    with ExitStack() as opened:
        sockets: list[socket.socket] = []
        try:
            kind = socket.SOCK_STREAM
            for family, _, _, _, address in socket.getaddrinfo(settings.host, settings.port, type=kind):
                try:
                    listener = socket.create_server((str(address[0]), settings.port), family=family)
                except OSError as error:
                    # `localhost` may name an address of IPv6 on a machine that has none
                    if not (sockets and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)):
                        raise
                else:
                    sockets.append(opened.enter_context(listener))
        except OSError as error:
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise ConfigError(
                "listen",
                f"the endpoint cannot listen at {settings.listen}: {reason}; stop what listens there, "
                "or choose another address: c2b endpoint --listen HOST:PORT, or the file's `listen`",
            ) from error
        yield sockets


def _server(settings: EndpointConfig) -> uvicorn.Server:
    """Returns a server whose `run` serves the API until a signal, and then gives open requests a few seconds."""
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
