"""Routes of uploads: models, images and tables of a tenant, stored under the SHA-256 of their bytes."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from c2b_ray.endpoint.api.auth import Caller, Json, answers, enter, errors, router
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.jobs import Cursor, Limit
from c2b_ray.endpoint.api.models import UploadBody, UploadList
from c2b_ray.endpoint.api.problems import not_found
from c2b_ray.endpoint.ledger import uploads
from c2b_ray.endpoint.ledger.uploads import Upload
from c2b_ray.endpoint.policy.uploads import remove as remove_stored

PATH = "/v1/uploads"
routes = router("uploads")


@routes.get("/uploads", responses={**answers(UploadList), **errors(422)})
def listed(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Json:
    """List the tenant's uploads, latest first."""
    context, caller = enter(request, "read")
    context_parts = ("uploads", caller.tenant_id)
    position = context.signer.open(cursor, *context_parts)
    items, next_position = uploads.page(
        context.db, caller.tenant_id, None if position is None else tuple(position), limit
    )
    following = None if next_position is None else context.signer.seal(list(next_position), *context_parts)
    return Json({"items": [upload_body(upload) for upload in items], "next": following})


@routes.get("/uploads/{sha256}", responses=answers(UploadBody))
def read(request: Request, sha256: str) -> Json:
    """Return an upload and the facts that were read from it."""
    context, caller = enter(request, "read")
    upload = uploads.get(context.db, caller.tenant_id, sha256)
    if upload is None:
        raise not_found("upload")
    return Json(upload_body(upload))


@routes.delete("/uploads/{sha256}", responses=answers(UploadBody))
def remove(request: Request, sha256: str) -> Json:
    """Delete an upload. Audits that use it and have not begun will fail."""
    context, caller = enter(request, "submit")
    return Json(upload_body(removed(context, caller, sha256)))


def removed(context: Context, caller: Caller, sha256: str) -> Upload:
    """Deletes an upload and returns it as it was. Raises 404 for another tenant's."""
    upload = uploads.get(context.db, caller.tenant_id, sha256)
    if upload is None:
        raise not_found("upload")
    with uploads.upload_lock(context.db, caller.tenant_id, sha256):
        if not uploads.remove(context.db, caller.tenant_id, sha256, caller.actor):
            raise not_found("upload")
        remove_stored(context.tenant_root(caller.tenant_id), sha256, upload.kind)
    return upload


def upload_body(upload: Upload) -> dict[str, Any]:
    scheme = f"{upload.kind}:" if upload.kind == "onnx" else ""
    return {
        "sha256": upload.sha256,
        "kind": upload.kind,
        "bytes": upload.bytes,
        "name": upload.name,
        "meta": upload.meta,
        "created": upload.created,
        "spec": f"{scheme}upload:{upload.sha256}",
    }
