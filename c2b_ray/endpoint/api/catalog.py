"""The catalogue of kinds and model schemes, the OpenAPI document, and the routes that operators' probes call."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from jinja2 import Environment
from starlette.responses import HTMLResponse, Response

from c2b_ray import __version__
from c2b_ray.config.endpoint import Role
from c2b_ray.endpoint.api.context import context_of, enter
from c2b_ray.endpoint.api.models import (
    Catalog,
    FieldErrorBody,
    Health,
    Json,
    ProblemBody,
    answers,
    errors,
    files,
    router,
)
from c2b_ray.endpoint.kinds import kinds
from c2b_ray.endpoint.ledger import migrations
from c2b_ray.endpoint.operate.metrics import CONTENT_TYPE, exposed
from c2b_ray.endpoint.policy.uploads import KINDS, PART_BYTES
from c2b_ray.world.zoo import names

routes = router("catalog")


@routes.get("/catalog", responses=answers(Catalog))
def catalog(request: Request) -> Json:
    """List the kinds with the JSON schemas of their configs, the schemes of model specs by role, and what an upload may
    be."""
    context, _ = enter(request, "read")
    policy = context.config.policy
    schemes = {role: policy.schemes_of(role) for role in get_args(Role)}
    limits = {
        "kinds": list(KINDS),
        "bytes": policy.upload_bytes,
        "part_bytes": PART_BYTES,
        "image_bytes": policy.image_bytes,
        "image_pixels": policy.image_pixels,
    }
    world = [f"world:{name}" for name in names()]
    return Json({"kinds": _kinds(), "schemes": schemes, "world": world, "uploads": limits})


@cache
def _kinds() -> list[dict[str, Any]]:
    return [
        {"name": kind.name, "label": kind.question, "config_schema": kind.config_class.model_json_schema()}
        for kind in kinds().values()
    ]


# The OpenAPI document, and a page that shows it without scripts and without network access.


ABOUT = """Audits of image classifiers, submitted, watched and read over HTTP.

Send a key with each request (`Authorization: Bearer c2b_…`). Errors are `application/problem+json` (RFC 9457) with a
`code` for programs and the `errors` of single fields; a browser without a key gets a page. Each answer names its
`X-Request-ID`."""
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{{ info.title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code,pre{font-family:ui-monospace,monospace;font-size:.9em}h2{margin-top:2rem;overflow-wrap:anywhere}
dt{font-weight:600}</style></head><body><main><h1>{{ info.title }} {{ info.version }}</h1>
<p>{{ info.description }}</p><p>The same for programs: <a href="/openapi.json">openapi.json</a>.</p>
{% for path, methods in paths.items() %}{% for method, one in methods.items() %}
<h2><code>{{ method|upper }} {{ path }}</code></h2><p>{{ one.description or one.summary }}</p>
<dl>{% for p in one.parameters or [] %}
<dt><code>{{ p.name }}</code> ({{ p["in"] }}{{ ", required" if p.required }})</dt>
<dd>{{ p.description or "" }}</dd>{% endfor %}</dl>
<ul>{% for status, answer in one.responses.items() %}<li>{{ status }}: {{ answer.description }}</li>{% endfor %}</ul>
{% endfor %}{% endfor %}</main></body></html>"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"


def document_of(app: FastAPI) -> dict[str, Any]:
    """Returns the OpenAPI 3.1 document, which is built once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="c2b-ray endpoint", version=__version__, description=ABOUT, routes=app.routes,
            servers=[{"url": app.state.context.config.url}],
        )  # fmt: skip
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        template = "#/components/schemas/{model}"
        for model in (ProblemBody, FieldErrorBody):
            schema = model.model_json_schema(ref_template=template)
            schema.pop("$defs", None)
            schemas[model.__name__] = schema
        # Routes read requests themselves and answer with problems, so FastAPI's own error models do not occur.
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for methods in document["paths"].values():
            for operation in methods.values():
                if "HTTPValidationError" in str(operation["responses"].get("422", {})):
                    operation["responses"]["422"] = errors(422)[422]
        app.openapi_schema = document
    return app.openapi_schema


def add_documents(app: FastAPI) -> None:
    app.openapi = lambda: document_of(app)  # type: ignore[method-assign]

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        page = Environment(autoescape=True).from_string(_PAGE).render(document_of(app))
        return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})


# Routes for operators: is the process alive, can it serve requests, and its metrics. They need no key.


health_routes = APIRouter(tags=["health"], responses=errors(413, 503))


@health_routes.get("/healthz", responses=answers(Health))
async def alive() -> Json:
    """Answer that the process is alive."""
    return Json({"status": "ok"})


@health_routes.get("/readyz", responses=answers(Health))
def ready(request: Request) -> Json:
    """Check that the ledger answers and is of this release; otherwise 503."""
    migrations.require_current(context_of(request).db)
    return Json({"status": "ok"})


@health_routes.get("/metrics", response_class=Response, responses=files({"text/plain": "string"}, "For Prometheus."))
def metrics(request: Request) -> Response:
    """Return the counters of this process and gauges of the ledger. No names of tenants, keys or models appear."""
    return Response(exposed(context_of(request).metrics), headers={"Content-Type": CONTENT_TYPE})
