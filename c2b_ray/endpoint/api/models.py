"""Models of request bodies and responses, and what routes say of them in the OpenAPI document.

Times are seconds since 1970, in UTC. Unknown values are null. This module knows no route.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from fastapi import APIRouter, Security
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator
from starlette.responses import Response

from c2b_ray.endpoint.api.problems import MEDIA_TYPE
from c2b_ray.endpoint.kinds import kinds
from c2b_ray.text import finite

State = Literal["queued", "running", "finished", "failed", "cancelled"]
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(kinds())]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Epoch = Annotated[float, Field(description="Seconds since 1970, in UTC.")]
EXAMPLE: dict[str, Any] = {
    "kind": "c2b",
    "name": "resnet, nightly",
    "config": {
        "task": "Classify pictures of everyday objects outdoors.",
        "classes": ["bus", "boat"],
        "classifier": "world:resnet-planted-0",
        "images": {"source": "generate", "generator": "world:renderer"},
        "attributes": {"weather": ["clear", "snow"]},
        "images_per_caption": 8,
    },
}


class Body(BaseModel):
    """A request's body. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any) -> Any:
        """Refuses booleans and texts for numbers: pydantic accepts `true` and "1" as 1."""
        for name, field in cls.model_fields.items() if isinstance(value, dict) else ():
            numbers = {int, float} & {field.annotation, *get_args(field.annotation)}
            if numbers and isinstance(value.get(name), bool | str):
                raise ValueError(f"{name}: expected a number")
        return value


class Submission(Body):
    """An audit to run. `config` contains the fields of the kind's config file; `/v1/catalog` has their schemas."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [EXAMPLE]})

    kind: Kind = Field(description="The kind of audit; /v1/catalog describes each.")
    name: Text | None = Field(None, description="A name for people.")
    config: Annotated[dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": True})]


class Question(Body):
    """How does the classifier do on images of a sentence?"""

    sentence: Text
    n: int | None = Field(None, ge=1, le=100_000, description="The number of images; for a run of failures, of draws.")
    classifier: Text | None = Field(None, description="One classifier; by default all.")
    target_class: Text | None = Field(None, description="By default the class that the sentence names.")
    target: Text | None = Field(None, description="For a run of failures: a wrong label to look for.")


class Gates(Body):
    """Conditions that must not hold, as for `c2b gate --fail-on`."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"fail_on": ["against", "phi<-0.2"]}]}
    )

    fail_on: list[Text] = Field(min_length=1, max_length=100)
    classifier: Text | None = None
    allow_unchecked: bool = False


class NewKeyBody(Body):
    name: Text
    scopes: list[Literal["submit", "read", "admin"]] = Field(["submit", "read"], min_length=1, max_length=3)
    expires_in: float | None = Field(None, gt=0, lt=3_153_600_000, description="Seconds; null: never.")
    tenant_id: str | None = Field(None, max_length=64, description="For operators only: the key's tenant.")


class RotateBody(Body):
    grace_seconds: float = Field(86_400.0, ge=0, lt=3_153_600_000, description="How long the old key still works.")


class NewTenantBody(Body):
    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?$")]
    weight: float = Field(1.0, gt=0, le=1000)
    quotas: Annotated[dict[str, Any], WithJsonSchema({"type": "object"})] = Field(default_factory=dict)


class NewWebhookBody(Body):
    url: str = Field(min_length=9, max_length=1000, description="A URL https://… that the endpoint's policy lists.")


class Answer(BaseModel):
    """A part of an answer. Later releases may add fields."""


class FieldErrorBody(Answer):
    field: str
    message: str


class ProblemBody(Answer):
    """RFC 9457. `code` is for programs and does not change; `request_id` is in the endpoint's log."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldErrorBody]
    request_id: str


class Progress(Answer):
    stage: str | None
    done: int | None
    total: int | None
    rate: float | None = Field(description="Per second.")
    seconds_left: float | None


class Job(Answer):
    id: str
    kind: str
    name: str | None
    state: State
    created: Epoch
    started: Epoch | None
    ended: Epoch | None
    progress: Progress
    images: int
    model_seconds: float = Field(description="Of the whole job; spend books equal parts on each of its models.")
    bytes: int
    slices: int
    attempt: int
    cancel_requested: bool
    failure: dict[str, Any] | None
    classifier_hash: str | None
    result: str | None = Field(None, description="What a finished audit found, in one line; null in lists.")
    config: dict[str, Any] | None = Field(None, description="As submitted; null in lists.")
    links: dict[str, str]


class JobList(Answer):
    items: list[Job]
    next: str | None


class Refusal(Answer):
    """Why a submission would be refused now. `free_in_seconds`: null where something must be done first, as `detail`
    says."""

    quota: str
    detail: str
    free_in_seconds: float | None


class Checked(Answer):
    """A valid config. `images_at_most`: null if a model's proposals decide. Seconds: from the tenant's past use.
    `refused`: the quota that would refuse the job now; null if none would."""

    valid: Literal[True]
    kind: str
    config: dict[str, Any]
    images_at_most: int | None
    model_seconds_at_most: float | None
    refused: Refusal | None


class TableInfo(Answer):
    name: str
    rows: int
    columns: dict[str, str]


class TableList(Answer):
    items: list[TableInfo]
    exports: list[str]


class TablePage(Answer):
    items: list[dict[str, Any]]
    rows: int
    next: str | None


class CheckBody(Answer):
    gate: str
    classifier: str
    cell: str
    outcome: Literal["passed", "failed", "skipped"]
    message: str
    evidence: str


class GateResult(Answer):
    failed: bool
    gates: list[CheckBody]


class KeyBody(Answer):
    id: str
    tenant_id: str
    name: str
    prefix: str
    scopes: list[str]
    created: Epoch
    expires: Epoch | None
    revoked: Epoch | None
    last_used: Epoch | None


class NewKeyAnswer(KeyBody):
    key: str = Field(description="The key's text, which is shown only once.")


class KeyList(Answer):
    items: list[KeyBody]
    next: str | None


class UploadBody(Answer):
    sha256: str
    kind: str
    bytes: int
    name: str | None
    meta: dict[str, Any]
    created: Epoch
    spec: str = Field(description="The name of the upload in a config.")


class UploadPart(Answer):
    number: int
    bytes: int


class UploadParts(Answer):
    """The parts of a file that are here."""

    part_bytes: int = Field(description="The bytes of each part but the last one.")
    parts: list[UploadPart]


class UploadList(Answer):
    items: list[UploadBody]
    next: str | None


class TenantBody(Answer):
    id: str
    name: str
    weight: float
    quotas: dict[str, Any]
    created: Epoch


class TenantList(Answer):
    items: list[TenantBody]
    next: str | None


class SpendBody(Answer):
    tenant_id: str
    key_id: str
    model: str
    day: str
    images: int
    model_seconds: float = Field(description="Jobs book equal parts of their use on each of their models.")
    requests: int


class LogEntry(Answer):
    seq: int
    at: Epoch
    actor: str
    tenant_id: str | None
    action: str
    subject: str | None
    data: str
    hash: str


class LogPage(Answer):
    items: list[LogEntry]
    next: str | None


class WebhookBody(Answer):
    id: str
    url: str
    created: Epoch


class NewWebhookAnswer(WebhookBody):
    secret: str = Field(description="The secret that signs deliveries, which is shown only once.")


class WebhookList(Answer):
    items: list[WebhookBody]


class KindInfo(Answer):
    name: str
    label: str
    config_schema: dict[str, Any]


class UploadLimits(Answer):
    """What an upload may be."""

    kinds: list[str]
    bytes: int = Field(description="The most bytes of a file.")
    part_bytes: int = Field(description="Larger files are better sent in parts of so many bytes.")
    image_bytes: int = Field(description="The most bytes of one image.")
    image_pixels: int = Field(description="The most pixels of one image.")


class Catalog(Answer):
    kinds: list[KindInfo]
    schemes: dict[str, list[str]] = Field(description="Role → the schemes of specs that this endpoint accepts.")
    world: list[str] = Field(description="Models that come with c2b-ray, for trials.")
    uploads: UploadLimits


class Health(Answer):
    status: Literal["ok"]


# What routes say of bodies, answers and errors in the OpenAPI document, and the JSON that they send.


BEARER = HTTPBearer(
    auto_error=False, scheme_name="key", description="A key of a tenant: `Authorization: Bearer c2b_…`."
)
"""Only for the OpenAPI document: `enter` reads the header itself."""


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
