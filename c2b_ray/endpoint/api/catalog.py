"""The route of the catalogue: the kinds of audits, and the schemes of specs that configs may name."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from fastapi import Request

from c2b_ray.config.policy import Role
from c2b_ray.endpoint.api.auth import enter
from c2b_ray.endpoint.api.models import Catalog
from c2b_ray.endpoint.api.responses import Json, answers, router
from c2b_ray.endpoint.kinds import KINDS
from c2b_ray.world.zoo import names

routes = router("catalog")


@routes.get("/catalog", responses=answers(Catalog))
def catalog(request: Request) -> Json:
    """List the kinds with the JSON schemas of their configs, and the schemes of model specs by role."""
    context, _ = enter(request, "read")
    policy = context.config.policy
    schemes = {role: policy.schemes_of(role) for role in get_args(Role)}
    return Json({"kinds": kinds(), "schemes": schemes, "world": [f"world:{name}" for name in names()]})


@cache
def kinds() -> list[dict[str, Any]]:
    return [
        {"name": kind.name, "label": kind.label, "config_schema": kind.config_class.model_json_schema()}
        for kind in KINDS.values()
    ]
