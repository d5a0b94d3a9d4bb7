"""Responses of routes: fast JSON, and, for the OpenAPI document, the errors that a route may return."""

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
    401: "There is no key, or it no longer works.",
    403: "The key lacks the scope.",
    404: "It does not exist, or belongs to another tenant.",
    405: "The path has other methods.",
    409: "The state of the object does not allow this.",
    413: "The body is too large.",
    415: "The media type of the body is not supported.",
    422: "A field is wrong; `errors` names it.",
    429: "A quota is used up; Retry-After says when to try again.",
    503: "The ledger or a store does not answer; Retry-After says when to try again.",
}
_RETRY = {"Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "string"}}}
_ID = {"X-Request-ID": {"description": "In the endpoint's log.", "required": True, "schema": {"type": "string"}}}
_COMMON = (400, 401, 403, 404, 413, 429, 503)


class Json(Response):
    """A dict as JSON, without validation of each field: tests check that answers match the models."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def finite_json(content: Any, status: int = 200) -> Json:
    """Returns JSON with null for NaN and infinity, and text for values that JSON does not have."""
    return Json(json.loads(json.dumps(finite(content), default=str)), status)


def router(tag: str) -> APIRouter:
    """Returns the router of routes that need a key."""
    return APIRouter(prefix="/v1", tags=[tag], dependencies=[Security(BEARER)], responses=errors(*_COMMON))


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the errors of a route for `responses=`."""
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
    """Returns the `responses=` of a route that answers with one of several media types: media type → `type` of its
    schema."""
    content = {name: {"schema": {"type": kind}} if kind else {} for name, kind in media_types.items()}
    return {200: {"description": description, "content": content}}


def body(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the body of a route for `openapi_extra=`, because routes read documents themselves."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    examples = schema.pop("examples", [])
    content = {"schema": schema, **({"examples": {"example": {"value": examples[0]}}} if examples else {})}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}
