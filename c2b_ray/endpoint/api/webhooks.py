"""Routes of webhooks: the URLs that the endpoint notifies when a job has ended."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from fastapi import Depends, Request

from c2b_ray.endpoint.api.context import enter
from c2b_ray.endpoint.api.envelope import Document, document
from c2b_ray.endpoint.api.models import (
    Answer,
    Json,
    NewWebhookAnswer,
    NewWebhookBody,
    WebhookBody,
    WebhookList,
    answers,
    body,
    errors,
    router,
)
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found
from c2b_ray.endpoint.ledger import webhooks
from c2b_ray.endpoint.ledger.webhooks import Webhook
from c2b_ray.endpoint.operate.webhooks import check_webhook
from c2b_ray.errors import AddressError

routes = router("webhooks")


class DeliveryInfo(Answer):
    """A delivery. `next_at`: the time of the next attempt, while it is pending."""

    id: str
    job_id: str
    state: Literal["pending", "delivered", "given_up"]
    attempts: int
    next_at: float
    last_error: str | None


class DeliveryList(Answer):
    items: list[DeliveryInfo]


@routes.get("/webhooks", responses=answers(WebhookList))
def listed(request: Request) -> Json:
    """List the tenant's webhooks."""
    context, caller = enter(request, "read")
    return Json({"items": [_body(webhook) for webhook in webhooks.listed(context.db, caller.tenant_id)]})


@routes.post("/webhooks", status_code=201, responses={**answers(NewWebhookAnswer, 201), **errors(409, 415, 422)},
             openapi_extra=body(NewWebhookBody))  # fmt: skip
def create(request: Request, sent: Annotated[Document, Depends(document)]) -> Json:
    """Notify a URL when jobs end. Each delivery is signed with the secret, which is shown only once."""
    context, caller = enter(request, "submit")
    url = sent.as_model(NewWebhookBody).url
    policy = context.config.policy
    try:
        check_webhook(url, policy)
    except AddressError as error:
        raise ProblemError(422, "invalid", f"url: {error}", [FieldError("url", str(error))]) from error
    try:
        new = webhooks.create(context.db, caller.tenant_id, url, f"whsec_{secrets.token_urlsafe(32)}", caller.actor)
    except webhooks.TooManyError as error:
        raise ProblemError(409, "too_many", str(error)) from error
    return Json({**_body(new), "secret": new.secret}, 201)


@routes.get("/webhooks/{webhook_id}/deliveries", responses=answers(DeliveryList))
def deliveries(request: Request, webhook_id: str) -> Json:
    """List the latest 50 deliveries of a webhook, and why the last attempt of each failed."""
    context, caller = enter(request, "read")
    if webhooks.get(context.db, caller.tenant_id, webhook_id) is None:
        raise not_found("webhook")
    items = webhooks.deliveries(context.db, caller.tenant_id, webhook_id)
    return Json({"items": [{name: vars(delivery)[name] for name in DeliveryInfo.model_fields} for delivery in items]})


@routes.delete("/webhooks/{webhook_id}", responses=answers(WebhookBody))
def remove(request: Request, webhook_id: str) -> Json:
    """Delete a webhook and its pending deliveries."""
    context, caller = enter(request, "submit")
    webhook = webhooks.get(context.db, caller.tenant_id, webhook_id)
    if webhook is None or not webhooks.remove(context.db, caller.tenant_id, webhook_id, caller.actor):
        raise not_found("webhook")
    return Json(_body(webhook))


def _body(webhook: Webhook) -> dict[str, Any]:
    return {"id": webhook.id, "url": webhook.url, "created": webhook.created}
