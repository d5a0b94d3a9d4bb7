"""Routes for operators: is the process alive, can it serve requests, and its metrics. They need no key."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from c2b_ray.endpoint.api.auth import Json, answers, errors, files
from c2b_ray.endpoint.api.context import context_of
from c2b_ray.endpoint.api.models import Health
from c2b_ray.endpoint.ledger import migrations
from c2b_ray.endpoint.operate.metrics import CONTENT_TYPE, exposed

routes = APIRouter(tags=["health"], responses=errors(413, 503))


@routes.get("/healthz", responses=answers(Health))
async def alive() -> Json:
    """Answer that the process is alive."""
    return Json({"status": "ok"})


@routes.get("/readyz", responses=answers(Health))
def ready(request: Request) -> Json:
    """Check that the ledger answers and is of this release; otherwise 503."""
    migrations.require_current(context_of(request).db)
    return Json({"status": "ok"})


@routes.get("/metrics", response_class=Response, responses=files({"text/plain": "string"}, "For Prometheus."))
def metrics(request: Request) -> Response:
    """Return the counters of this process and gauges of the ledger. No names of tenants, keys or models appear."""
    return Response(exposed(context_of(request).metrics), headers={"Content-Type": CONTENT_TYPE})
