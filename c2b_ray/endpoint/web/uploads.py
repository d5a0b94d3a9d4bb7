"""The page of a tenant's uploads: lists them, adds one, and deletes one."""

from __future__ import annotations

from starlette.responses import Response

from c2b_ray.endpoint.api.problems import FieldError, ProblemError
from c2b_ray.endpoint.api.receiving import CHUNK, kept, refusals
from c2b_ray.endpoint.api.uploads import removed, upload_body
from c2b_ray.endpoint.ledger import uploads
from c2b_ray.endpoint.policy.uploads import KINDS, UploadReceiver
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import PageRequest, goto

PAGE = 50


def uploads_page(visit: PageRequest) -> Response:
    context_parts = ("uploads", visit.tenant_id)
    position = visit.context.signer.open(visit.query("cursor") or None, *context_parts)
    items, next_position = uploads.page(
        visit.context.db, visit.tenant_id, None if position is None else tuple(position), PAGE
    )
    return shown(visit, "uploads.html.j2", {
        "uploads": [upload_body(upload) for upload in items], "kinds": KINDS,
        "next": None if next_position is None else visit.context.signer.seal(list(next_position), *context_parts),
        "may_submit": "submit" in visit.caller.key.scopes, "largest": visit.context.config.policy.upload_bytes,
    })  # fmt: skip


def add(visit: PageRequest) -> Response:
    """Stores a file of a form, with the same checks as the API."""
    file, kind = visit.uploaded("file"), visit.sent("kind")
    if file is None:
        raise ProblemError(422, "invalid", "choose a file", [FieldError("file", "no file was chosen")])
    upload_kind = next((candidate for candidate in KINDS if candidate == kind), None)
    if upload_kind is None:
        raise ProblemError(422, "invalid", f"expected one of {', '.join(KINDS)}", [FieldError("kind", "is unknown")])
    context, caller = visit.context, visit.caller
    uploads.check_room(context.db, caller.tenant_id, file.size or 1, context.config.quotas)
    name = "".join(character for character in file.filename or "" if character.isprintable())[:200] or None
    with (
        context.places.one(caller.tenant_id),
        refusals(),
        UploadReceiver(context.tenant_root(caller.tenant_id), context.config.policy) as receiver,
    ):
        while part := file.file.read(CHUNK):
            receiver.write(part)
        kept(context, caller, (receiver, upload_kind, None, name))
    return goto("/ui/uploads")


def remove(visit: PageRequest) -> Response:
    removed(visit.context, visit.caller, visit.part("sha256"))
    return goto("/ui/uploads")
