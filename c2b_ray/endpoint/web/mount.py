"""The pages as a separate application below /ui, beside the API on one port: `mount(app)`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from c2b_ray.endpoint.api.problems import not_found
from c2b_ray.endpoint.ledger.keys import Scope
from c2b_ray.endpoint.web import (
    captions,
    gallery,
    history,
    home,
    job,
    keys,
    session,
    signing,
    slices,
    submit,
    tables,
    uploads,
)
from c2b_ray.endpoint.web import home as compare
from c2b_ray.endpoint.web import keys as usage
from c2b_ray.endpoint.web.rendering import Page, failed, page
from c2b_ray.endpoint.web.session import PageRequest

_STATIC = {"pages.css": "text/css", "pages.js": "text/javascript", "icon.svg": "image/svg+xml"}
_JOB = "/audits/{job_id}"


def mount(app: Starlette) -> None:
    """Adds the pages below /ui to an application with a `Context`, and redirects / to them."""
    pages = Starlette(routes=routes(), exception_handlers={HTTPException: failed})
    pages.state.context = app.state.context
    pages.router.redirect_slashes = False
    app.router.routes += [
        Route("/", lambda _: RedirectResponse(f"{session.PATH}/", 303), name="pages"),
        Route(session.PATH, lambda _: RedirectResponse(f"{session.PATH}/", 303)),
        Mount(session.PATH, pages),
    ]


def routes() -> list[Route]:
    def get(path: str, function: Page, scope: Scope | None = "read") -> Route:
        return Route(path, page(function, scope), methods=["GET"])

    def post(path: str, function: Page, scope: Scope | None = "submit") -> Route:
        return Route(path, page(function, scope), methods=["POST"])

    return [
        get("/static/{name}", static, None),
        get("/signin", signing.form, None), post("/signin", signing.sign_in, None),
        post("/signout", signing.sign_out, None),
        get("/", home.home),
        get("/submit", submit.form, "submit"), post("/submit", submit.send), post("/check", submit.check),
        get("/compare", compare.compare_page), get("/compare/report", compare.compare_report),
        get("/classifiers", history.classifiers_page), get("/classifiers/history", history.history_page),
        get("/uploads", uploads.uploads_page), post("/uploads", uploads.add),
        post("/uploads/{sha256}/delete", uploads.remove),
        get("/usage", usage.usage_page), get("/audit-log", usage.log_page, "admin"),
        get("/keys", keys.keys_page, "admin"), post("/keys", keys.create, "admin"),
        post("/keys/{key_id}/rotate", keys.rotate, "admin"), post("/keys/{key_id}/revoke", keys.revoke, "admin"),
        get(_JOB, job.job_page), get(f"{_JOB}/events", job.job_events),
        post(f"{_JOB}/cancel", job.cancel), post(f"{_JOB}/delete", job.delete), post(f"{_JOB}/questions", job.ask),
        get(f"{_JOB}/report", tables.report), get(f"{_JOB}/tables/{{name}}", tables.table_page),
        get(f"{_JOB}/images/{{image_id}}", tables.image), get(f"{_JOB}/exports/{{form}}", tables.export),
        get(f"{_JOB}/gallery", gallery.gallery_page),
        get(f"{_JOB}/captions", captions.captions_page), get(f"{_JOB}/caption", captions.caption_page),
        get(f"{_JOB}/examples/{{round}}/{{position}}", captions.example),
        get(f"{_JOB}/slices", slices.slices_page), get(f"{_JOB}/slice", slices.slice_page),
    ]  # fmt: skip


def static(visit: PageRequest) -> Response:
    name = visit.part("name")
    if name not in _STATIC:
        raise not_found("file")
    return Response(_source(name), media_type=_STATIC[name], headers={"Cache-Control": "public, max-age=3600"})


@cache
def _source(name: str) -> bytes:
    return (files("c2b_ray.endpoint.web") / "static" / name).read_bytes()
