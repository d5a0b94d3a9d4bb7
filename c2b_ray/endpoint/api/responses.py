"""Responses of routes: fast JSON, and for the OpenAPI document each error that a route may return."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Security
from pydantic import BaseModel
from starlette.responses import Response

from c2b_ray.endpoint.api.auth import BEARER
from c2b_ray.endpoint.api.models import ProblemBody
from c2b_ray.endpoint.api.problems import MEDIA_TYPE
from c2b_ray.text import finite

_WORDS = {
    400: "The body or a cursor is malformed.",
    401: "There is no key, or it works no more.",
    403: "The key has not the scope.",
    404: "There is no such thing, or it is another tenant's.",
    405: "The path has other methods.",
    409: "It is not in a state for this.",
    413: "The body is too large.",
    415: "The body is of another media type.",
    422: "A field is wrong; `errors` names it.",
    429: "A quota is used up; Retry-After says when to ask again.",
    503: "The ledger or a store does not answer; Retry-After says when to ask again.",
}
_RETRY = {"Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "string"}}}
_ID = {"X-Request-ID": {"description": "In the endpoint's log.", "required": True, "schema": {"type": "string"}}}
_COMMON = (400, 401, 403, 404, 413, 429, 503)


class Json(Response):
    """A dict as it is, without a look at each field: what models say of it is checked by tests."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def finite_json(content: Any, status: int = 200) -> Json:
    """With null for what is no number, and text for what JSON does not have."""
    return Json(json.loads(json.dumps(finite(content), default=str)), status)


def router(tag: str) -> APIRouter:
    """Of routes that want a key."""
    return APIRouter(prefix="/v1", tags=[tag], dependencies=[Security(BEARER)], responses=errors(*_COMMON))


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=`."""
    return {
        status: {
            "description": _WORDS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{ProblemBody.__name__}"}}},
            "headers": {**_ID, **(_RETRY if status in (429, 503) else {})},
        }
        for status in statuses
    }


def answers(model: type[BaseModel], status: int = 200, description: str = "") -> dict[int | str, dict[str, Any]]:
    return {status: {"model": model, "description": description or (model.__doc__ or model.__name__).strip()}}


def files(media_types: Mapping[str, str], description: str) -> dict[int | str, dict[str, Any]]:
    """Of a route that answers with one of several media types: each with the `type` of its schema."""
    content = {name: {"schema": {"type": kind}} if kind else {} for name, kind in media_types.items()}
    return {200: {"description": description, "content": content}}


def body(model: type[BaseModel]) -> dict[str, Any]:
    """For `openapi_extra=`: routes read documents themselves, strictly."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    examples = schema.pop("examples", [])
    content = {"schema": schema, **({"examples": {"example": {"value": examples[0]}}} if examples else {})}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}
