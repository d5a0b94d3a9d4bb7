"""The route that receives uploads: the body is written to disk as it arrives, checked, and then stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import unquote

from anyio import CancelScope, to_thread
from fastapi import Header, Request

from c2b_ray.endpoint.api.auth import Caller, Json, answers, enter, errors, router
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.models import UploadBody
from c2b_ray.endpoint.api.problems import FieldError, ProblemError
from c2b_ray.endpoint.api.uploads import upload_body
from c2b_ray.endpoint.ledger import uploads
from c2b_ray.endpoint.ledger.uploads import NewUpload, Upload
from c2b_ray.endpoint.policy.uploads import Kind, TooLargeError, UploadReceiver, remove
from c2b_ray.errors import ImageError, SourceError, WeightsError

routes = router("uploads")
CHUNK = 1 << 20
_BODY = {
    "requestBody": {
        "required": True,
        "description": "The file itself.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@routes.post(
    "/uploads",
    status_code=201,
    responses={
        **answers(UploadBody, 201),
        **answers(UploadBody, 200, "The file was uploaded before."),
        **errors(409, 415, 422),
    },
    openapi_extra=_BODY,
)
async def upload(
    request: Request,
    kind: Annotated[Kind, Header(alias="X-Upload-Kind", description="The kind of file.")],
    name: Annotated[
        str | None,
        Header(alias="X-Upload-Name", max_length=600, description="A name for people, in percent-encoded UTF-8."),
    ] = None,
    sha256: Annotated[
        str | None,
        Header(alias="X-Upload-SHA256", pattern="^[0-9a-f]{64}$", description="The expected hash, which is checked."),
    ] = None,
) -> Json:
    """Upload a model, an image, an archive of images or a table. Models must be ONNX or safetensors; other files are
    refused. Configs refer to the upload by its `spec`."""
    context, caller = await to_thread.run_sync(_admitted, request)
    with context.places.one(caller.tenant_id):
        return await _received(request, context, caller, (kind, sha256, _shown(name)))


async def _received(
    request: Request, context: Context, caller: Caller, said: tuple[Kind, str | None, str | None]
) -> Json:
    """Receives the body and stores it. `said`: the kind, sha256 and name from the client."""
    receiver = await to_thread.run_sync(UploadReceiver, context.tenant_root(caller.tenant_id), context.config.policy)
    try:
        with refusals():
            waiting = bytearray()
            async for part in request.stream():
                waiting += part
                if len(waiting) >= CHUNK:
                    await to_thread.run_sync(receiver.write, bytes(waiting))
                    waiting.clear()
            await to_thread.run_sync(receiver.write, bytes(waiting))
            received = receiver, *said
            upload, created = await to_thread.run_sync(kept, context, caller, received, limiter=context.places.threads)
        return Json(upload_body(upload), 201 if created else 200)
    finally:
        with CancelScope(shield=True):  # in a thread: of an archive it may remove 100,000 files
            await to_thread.run_sync(receiver.abort)


def _admitted(request: Request) -> tuple[Context, Caller]:
    """Checks the key and the quota before the body is read."""
    context, caller = enter(request, "submit")
    length = request.headers.get("content-length", "")
    announced = int(length[:20]) if length.isdigit() else 1
    uploads.check_room(context.db, caller.tenant_id, announced, context.config.quotas)
    return context, caller


@contextmanager
def refusals() -> Iterator[None]:
    """Turns errors of a file into problems."""
    try:
        yield
    except TooLargeError as error:
        raise ProblemError(413, "too_large", str(error), headers={"Connection": "close"}) from error
    except (WeightsError, ImageError, SourceError) as error:
        raise ProblemError(422, "refused_upload", str(error), [FieldError("body", str(error))]) from error


def kept(
    context: Context, caller: Caller, received: tuple[UploadReceiver, Kind, str | None, str | None]
) -> tuple[Upload, bool]:
    """Stores what was received; returns the upload and whether it is new. `received`: the receiver, and the kind,
    sha256 and name from the client. Requests for the same bytes wait for each other."""
    with uploads.upload_lock(context.db, caller.tenant_id, received[0].sha256):
        return _kept_alone(context, caller, received)


def _kept_alone(
    context: Context, caller: Caller, received: tuple[UploadReceiver, Kind, str | None, str | None]
) -> tuple[Upload, bool]:
    receiver, kind, sha256, name = received
    before = uploads.get(context.db, caller.tenant_id, receiver.sha256)
    if before is not None and before.kind != kind:
        detail = f"these bytes are here as an upload of the kind {before.kind}; use that one, or delete it first"
        raise ProblemError(409, "other_kind", detail, [FieldError("X-Upload-Kind", detail)])
    stored = receiver.finish(kind, sha256)
    new = NewUpload(stored.sha256, stored.kind, stored.bytes, name, stored.meta)
    try:
        return uploads.add(context.db, caller.tenant_id, caller.key.id, new, context.config.quotas)
    except Exception:
        if stored.new:  # no row names it
            remove(context.tenant_root(caller.tenant_id), stored.sha256, stored.kind)
        raise


def _shown(name: str | None) -> str | None:
    if name is None:
        return None
    text = unquote(name, errors="replace")
    if not text or len(text) > 200 or not text.isprintable():
        detail = "expected 1 to 200 printable characters, percent-encoded"
        raise ProblemError(422, "invalid", f"X-Upload-Name: {detail}", [FieldError("X-Upload-Name", detail)])
    return text
