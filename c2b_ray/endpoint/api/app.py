"""The endpoint's HTTP application: routes, errors and limits around one ledger.

`create_app` starts no job and loads no model. Any number of replicas may run on one ledger.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio.to_thread
from fastapi import FastAPI
from starlette.routing import Route

from c2b_ray import __version__
from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.api import catalog, events, health, jobs, judging, keys, receiving, results, uploads, webhooks
from c2b_ray.endpoint.api import catalog as docs
from c2b_ray.endpoint.api.context import Context, Remembered, UploadSlots, WrongKeys
from c2b_ray.endpoint.api.envelope import Envelope
from c2b_ray.endpoint.api.problems import Signer, endpoint_secret, handle
from c2b_ray.endpoint.api.watch import JobWatcher
from c2b_ray.endpoint.ledger import migrations
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.keys import KeyRing
from c2b_ray.endpoint.ledger.quotas import Throttle
from c2b_ray.endpoint.operate.metrics import registry
from c2b_ray.endpoint.operate.webhooks import UrlSigner
from c2b_ray.endpoint.policy.parts import PART_BYTES

THREADS, THREADS_OF_SQLITE = 16, 8
"""Requests that run at the same time: fewer than the ledger's connections, so that none waits for a connection. SQLite
runs in this process, where more threads would only wait for each other."""
UPLOADS = uploads.PATH, "/ui/uploads"
"""The paths that receive files: from clients, and from a form of the pages."""
PART_OF_UPLOAD = re.compile(rf"{uploads.PATH}/[0-9a-f]{{64}}/parts/[0-9]+")
ROUTES = (jobs, events, results, judging, receiving, uploads, keys, webhooks, catalog, health)


def create_app(config: EndpointConfig, db: Database | None = None) -> FastAPI:
    """Creates the application of an endpoint. At start it creates the tables of an empty database.

    Starting it raises SchemaError if the database belongs to another release.
    """
    opened = db or Database(config.database_url)
    app = FastAPI(title="c2b-ray endpoint", version=__version__, docs_url=None, redoc_url=None, lifespan=_lifespan,
                  redirect_slashes=False)  # fmt: skip
    app.state.context = context_for(config, opened)
    for module in ROUTES:
        app.include_router(module.routes)
    docs.mount(app)
    handle(app, partial(_methods, app))
    app.add_middleware(Envelope, largest=lambda path: _largest(config, path))
    return app


def context_for(config: EndpointConfig, db: Database) -> Context:
    secret = endpoint_secret(config.folder)
    throttle = Throttle(db)
    return Context(
        config=config,
        db=db,
        keys=KeyRing(db, config.key_cache_seconds),
        throttle=throttle,
        wrong_keys=WrongKeys(throttle, config.wrong_keys_per_minute, config.wrong_keys_at_once),
        remembered=Remembered(db, config.quotas, config.key_cache_seconds),
        signer=Signer(secret),
        links=UrlSigner(secret, longest=config.signed_url_seconds),
        watch=JobWatcher(db),
        places=UploadSlots(),
        metrics=registry(db),
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context: Context = app.state.context
    anyio.to_thread.current_default_thread_limiter().total_tokens = (
        THREADS_OF_SQLITE if context.db.is_sqlite else THREADS
    )
    await anyio.to_thread.run_sync(migrations.prepare, context.db)
    yield
    await context.watch.close()


def _methods(app: FastAPI, path: str) -> set[str]:
    """Returns the methods of a path's routes. An exact path such as /v1/audits/check excludes /v1/audits/{job_id}.

    Where GET is allowed, HEAD is, too (`envelope`).
    """
    routers = (*(module.routes for module in ROUTES), app.router)
    routes = [route for router in routers for route in router.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.path == path] or [
        candidate for candidate in routes if candidate.path_regex.match(path)
    ]
    methods = {method for route in matching for method in route.methods or ()}
    return methods | {"HEAD"} if "GET" in methods else methods


def _largest(config: EndpointConfig, path: str) -> int:
    """Returns the most bytes of a request's body."""
    if path in UPLOADS:
        return config.policy.upload_bytes
    return PART_BYTES if PART_OF_UPLOAD.fullmatch(path) else config.policy.body_bytes
