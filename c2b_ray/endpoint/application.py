"""The HTTP application of an endpoint: the API's routes, the pages below /ui, errors and limits, around one ledger.

It starts no job and loads no model. Any number of replicas may run on one ledger.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib.resources import files

import anyio.to_thread
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from c2b_ray import __version__
from c2b_ray.config.endpoint import EndpointConfig
from c2b_ray.endpoint.api import catalog, jobs, keys, results, uploads, webhooks
from c2b_ray.endpoint.api.context import (
    Context,
    Signer,
    TenantCache,
    UploadSlots,
    UrlSigner,
    WrongKeys,
    endpoint_secret,
)
from c2b_ray.endpoint.api.envelope import Envelope
from c2b_ray.endpoint.api.problems import handle, not_found
from c2b_ray.endpoint.api.watch import JobWatcher
from c2b_ray.endpoint.ledger import migrations
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.quotas import Throttle
from c2b_ray.endpoint.ledger.tenants import KeyRing, Scope
from c2b_ray.endpoint.operate.metrics import registry
from c2b_ray.endpoint.policy.uploads import PART_BYTES
from c2b_ray.endpoint.web import job, overview, slices, submit, tenant
from c2b_ray.endpoint.web.rendering import PAGES, Page, PageRequest, failed, page, problem_page

THREADS, THREADS_OF_SQLITE = 16, 8
"""Requests that run at the same time: fewer than the ledger's connections, so that none waits for a connection. SQLite
runs in this process, where more threads would only wait for each other."""
UPLOADS = uploads.PATH, "/ui/uploads"
"""The paths that receive files: from clients, and from a form of the pages."""
PART_OF_UPLOAD = re.compile(rf"{uploads.PATH}/[0-9a-f]{{64}}/parts/[0-9]+")
ROUTERS = (
    jobs.routes, results.routes, uploads.routes, keys.routes, webhooks.routes, catalog.routes, catalog.health_routes,
)  # fmt: skip


def create_application(config: EndpointConfig, db: Database | None = None) -> FastAPI:
    """Creates the application of an endpoint. At start it creates the tables of an empty database.

    Starting it raises SchemaError if the database belongs to another release.
    """
    app = FastAPI(title="c2b-ray endpoint", version=__version__, docs_url=None, redoc_url=None, lifespan=_lifespan,
                  redirect_slashes=False)  # fmt: skip
    app.state.context = context_for(config, db or Database(config.database_url))
    for router in ROUTERS:
        app.include_router(router)
    catalog.add_documents(app)
    handle(app, partial(_methods_of_path, app), problem_page)
    app.add_middleware(Envelope, largest=lambda path: _largest(config, path), page=problem_page)
    _add_pages(app)
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
        tenants=TenantCache(db, config.quotas, config.key_cache_seconds),
        signer=Signer(secret),
        links=UrlSigner(secret, longest=config.signed_url_seconds),
        watch=JobWatcher(db),
        upload_slots=UploadSlots(),
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


def _methods_of_path(app: FastAPI, path: str) -> set[str]:
    """Returns the methods of a path's routes. An exact path such as /v1/audits/check excludes /v1/audits/{job_id}.

    Where GET is allowed, HEAD is, too (`envelope`).
    """
    routes = [route for router in (*ROUTERS, app.router) for route in router.routes if isinstance(route, Route)]
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


# The pages: an application of its own below /ui.


_STATIC = {"pages.css": "text/css", "pages.js": "text/javascript", "icon.svg": "image/svg+xml"}
_JOB = "/audits/{job_id}"


def _add_pages(app: Starlette) -> None:
    """Adds the pages below /ui to an application with a `Context`, and redirects / to them."""
    pages = Starlette(routes=page_routes(), exception_handlers={HTTPException: failed})
    pages.state.context = app.state.context
    pages.router.redirect_slashes = False
    app.router.routes += [
        Route("/", lambda _: RedirectResponse(f"{PAGES}/", 303), name="pages"),
        Route(PAGES, lambda _: RedirectResponse(f"{PAGES}/", 303)),
        Mount(PAGES, pages),
    ]


def page_routes() -> list[Route]:
    def get(path: str, function: Page, scope: Scope | None = "read") -> Route:
        return Route(path, page(function, scope), methods=["GET"])

    def post(path: str, function: Page, scope: Scope | None = "submit") -> Route:
        return Route(path, page(function, scope), methods=["POST"])

    return [
        get("/static/{name}", _static_file, None),
        get("/signin", tenant.sign_in_form, None), post("/signin", tenant.sign_in, None),
        post("/signout", tenant.sign_out, None),
        get("/", overview.home),
        get("/submit", submit.form, "submit"), post("/submit", submit.send), post("/check", submit.check),
        get("/compare", overview.compare_page), get("/compare/report", overview.compare_report),
        get("/classifiers", overview.classifiers_page), get("/classifiers/history", overview.history_page),
        get("/uploads", tenant.uploads_page), post("/uploads", tenant.add_upload),
        post("/uploads/{sha256}/delete", tenant.remove_upload),
        get("/usage", tenant.usage_page), get("/audit-log", tenant.log_page, "admin"),
        get("/keys", tenant.keys_page, "admin"), post("/keys", tenant.create_key, "admin"),
        post("/keys/{key_id}/rotate", tenant.rotate_key, "admin"),
        post("/keys/{key_id}/revoke", tenant.revoke_key, "admin"),
        get(_JOB, job.job_page), get(f"{_JOB}/events", job.job_events),
        post(f"{_JOB}/cancel", job.cancel), post(f"{_JOB}/delete", job.delete), post(f"{_JOB}/questions", job.ask),
        get(f"{_JOB}/report", job.report), get(f"{_JOB}/tables/{{name}}", job.table_page),
        get(f"{_JOB}/images/{{image_id}}", job.image), get(f"{_JOB}/exports/{{form}}", job.export),
        get(f"{_JOB}/gallery", job.gallery_page),
        get(f"{_JOB}/captions", slices.captions_page), get(f"{_JOB}/caption", slices.caption_page),
        get(f"{_JOB}/examples/{{round}}/{{position}}", slices.example),
        get(f"{_JOB}/slices", slices.slices_page), get(f"{_JOB}/slice", slices.slice_page),
    ]  # fmt: skip


def _static_file(visit: PageRequest) -> Response:
    name = visit.part("name")
    if name not in _STATIC:
        raise not_found("file")
    return Response(_source(name), media_type=_STATIC[name], headers={"Cache-Control": "public, max-age=3600"})


@cache
def _source(name: str) -> bytes:
    return (files("c2b_ray.endpoint.web") / "static" / name).read_bytes()
