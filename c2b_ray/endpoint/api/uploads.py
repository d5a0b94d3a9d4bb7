"""Routes of uploads: models, images and tables of a tenant, stored under the SHA-256 of their bytes.

A file arrives whole or in parts. It is written to disk, checked, and then stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import unquote

from anyio import CancelScope, to_thread
from fastapi import Header, Request
from fastapi import Path as PathParameter

from c2b_ray.endpoint.api.context import Caller, Context, enter
from c2b_ray.endpoint.api.jobs import Cursor, Limit
from c2b_ray.endpoint.api.models import Json, UploadBody, UploadList, UploadParts, answers, errors, router
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found, retry_after
from c2b_ray.endpoint.ledger import uploads
from c2b_ray.endpoint.ledger.uploads import NewUpload, Upload
from c2b_ray.endpoint.policy import uploads as stored_files
from c2b_ray.endpoint.policy.uploads import (
    MOST_UNFINISHED_FILES,
    PART_BYTES,
    Kind,
    TooLargeError,
    UploadReceiver,
    read_parts,
    remove_parts,
    remove_upload,
    stored_parts,
    unfinished_parts,
)
from c2b_ray.errors import ImageError, SourceError, WeightsError

PATH = "/v1/uploads"
routes = router("uploads")
CHUNK = 1 << 20
_HASH = "^[0-9a-f]{64}$"
Sha256 = Annotated[str, PathParameter(pattern=_HASH, description="The SHA-256 of the whole file.")]
KindOfFile = Annotated[Kind, Header(alias="X-Upload-Kind", description="The kind of file.")]
NameOfFile = Annotated[
    str | None,
    Header(alias="X-Upload-Name", max_length=2400, description="A name for people, in percent-encoded UTF-8."),
]
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
    kind: KindOfFile,
    name: NameOfFile = None,
    sha256: Annotated[
        str | None,
        Header(alias="X-Upload-SHA256", pattern=_HASH, description="The expected hash, which is checked."),
    ] = None,
) -> Json:
    """Upload a model, an image, an archive of images, a table or a list of names. Models must be ONNX or safetensors;
    other files are refused. Configs refer to the upload by its `spec`."""
    context, caller = await to_thread.run_sync(_admitted, request)
    with context.upload_slots.hold(caller.tenant_id):
        return await _received(request, context, caller, (kind, sha256, _shown(name)))


async def _received(
    request: Request, context: Context, caller: Caller, declared: tuple[Kind, str | None, str | None]
) -> Json:
    """Receives the body and stores it. `declared`: the kind, sha256 and name from the client."""
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
            received = receiver, *declared
            upload, created = await to_thread.run_sync(
                kept, context, caller, received, limiter=context.upload_slots.threads
            )
        return Json(upload_body(upload), 201 if created else 200)
    finally:
        with CancelScope(shield=True):  # in a thread: of an archive it may remove 100,000 files
            await to_thread.run_sync(receiver.abort)


@routes.get("/uploads/{sha256}/parts", responses=answers(UploadParts))
def parts_there(request: Request, sha256: Sha256) -> Json:
    """Return which parts of a file are here, so that an interrupted upload goes on with the others."""
    context, caller = enter(request, "read")
    there = stored_parts(context.tenant_root(caller.tenant_id), sha256)
    if not there:
        raise not_found("upload in parts")
    return Json(_parts_body(there))


@routes.put(
    "/uploads/{sha256}/parts/{number}",
    responses={**answers(UploadParts), **errors(415, 422)},
    openapi_extra=_BODY,
)
async def add_part(
    request: Request,
    sha256: Sha256,
    number: Annotated[int, PathParameter(ge=0, le=99_999, description="0 for the first part.")],
    part_sha256: Annotated[
        str, Header(alias="X-Part-SHA256", pattern=_HASH, description="The part's hash, which is checked.")
    ],
) -> Json:
    """Send a part of a file, named by the hash of the whole file. All parts but the last one have `part_bytes`; the
    same part again replaces it."""
    context, caller = await to_thread.run_sync(_admitted_part, request, sha256, number)
    with context.upload_slots.hold(caller.tenant_id):
        data = await request.body()
        if hashlib.sha256(data).hexdigest() != part_sha256 or not data:
            detail = "the body has another hash; the part was damaged in transit"
            raise ProblemError(422, "refused_upload", detail, [FieldError("body", detail)])
        root = context.tenant_root(caller.tenant_id)
        await to_thread.run_sync(
            stored_files.add_part, root, sha256, number, data, limiter=context.upload_slots.threads
        )
    return Json(_parts_body(await to_thread.run_sync(stored_parts, root, sha256)))


@routes.post(
    "/uploads/{sha256}",
    status_code=201,
    responses={
        **answers(UploadBody, 201),
        **answers(UploadBody, 200, "The file was uploaded before."),
        **errors(409, 415, 422),
    },
)
async def join_parts(request: Request, sha256: Sha256, kind: KindOfFile, name: NameOfFile = None) -> Json:
    """Store the file whose parts were sent, as if it had been sent whole. Its hash is checked."""
    context, caller = await to_thread.run_sync(enter, request, "submit")
    with context.upload_slots.hold(caller.tenant_id), refusals():
        about = sha256, kind, _shown(name)
        upload, created = await to_thread.run_sync(
            _joined, context, caller, about, limiter=context.upload_slots.threads
        )
    return Json(upload_body(upload), 201 if created else 200)


def _joined(context: Context, caller: Caller, about: tuple[str, Kind, str | None]) -> tuple[Upload, bool]:
    """Stores the file that its parts are; returns the upload and whether it is new. `about`: the file's sha256, and the
    kind and name from the client."""
    sha256, kind, name = about
    root = context.tenant_root(caller.tenant_id)
    with uploads.upload_lock(context.db, caller.tenant_id, sha256):
        existing = uploads.get(context.db, caller.tenant_id, sha256)
        if existing is not None and existing.kind == kind:  # its answer was lost, or a colleague sent the file too
            remove_parts(root, sha256)
            return existing, False
        if not stored_parts(root, sha256):
            raise not_found("upload in parts")
        with UploadReceiver(root, context.config.policy) as receiver:
            for part in read_parts(root, sha256):
                receiver.write(part)
            if receiver.sha256 != sha256:
                detail = "parts of the file are missing, or are those of another file; send them, and then join them"
                raise ProblemError(409, "incomplete", detail, [FieldError("sha256", detail)])
            stored = _kept_alone(context, caller, (receiver, kind, sha256, name))
        remove_parts(root, sha256)
    return stored


def _parts_body(there: dict[int, int]) -> dict[str, Any]:
    return {"part_bytes": PART_BYTES, "parts": [{"number": at, "bytes": size} for at, size in there.items()]}


def _admitted_part(request: Request, sha256: str, number: int) -> tuple[Context, Caller]:
    """Checks the key and the quota, which parts that wait for others count towards, before a part's body is read."""
    context, caller = enter(request, "submit")
    root = context.tenant_root(caller.tenant_id)
    waiting = unfinished_parts(root)
    if sha256 not in waiting and len(waiting) >= MOST_UNFINISHED_FILES:
        detail = f"parts of {MOST_UNFINISHED_FILES} files wait for their others; send these, or try again in a day"
        raise ProblemError(429, "too_many_uploads", detail, headers=retry_after(60))
    most = context.config.policy.upload_bytes
    if number * PART_BYTES >= most:
        detail = f"the file is larger than the {most} bytes that are accepted"
        raise ProblemError(413, "too_large", detail, headers={"Connection": "close"})
    length = request.headers.get("content-length", "")
    announced = int(length[:20]) if length.isdigit() else PART_BYTES
    others = sum(waiting.values()) - stored_parts(root, sha256).get(number, 0)  # which this part replaces
    uploads.check_room(context.db, caller.tenant_id, others + announced, context.config.quotas)
    return context, caller


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
    existing = uploads.get(context.db, caller.tenant_id, receiver.sha256)
    if existing is not None and existing.kind != kind:
        detail = f"these bytes are here as an upload of the kind {existing.kind}; use that one, or delete it first"
        raise ProblemError(409, "other_kind", detail, [FieldError("X-Upload-Kind", detail)])
    stored = receiver.finish(kind, sha256)
    new = NewUpload(stored.sha256, stored.kind, stored.bytes, name, stored.meta)
    try:
        return uploads.add(context.db, caller.tenant_id, caller.key.id, new, context.config.quotas)
    except Exception:
        if stored.new:  # no row names it
            remove_upload(context.tenant_root(caller.tenant_id), stored.sha256, stored.kind)
        raise


def _shown(name: str | None) -> str | None:
    if name is None:
        return None
    text = unquote(name, errors="replace")
    if not text or len(text) > 200 or not text.isprintable():
        detail = "expected 1 to 200 printable characters, percent-encoded"
        raise ProblemError(422, "invalid", f"X-Upload-Name: {detail}", [FieldError("X-Upload-Name", detail)])
    return text


@routes.get("/uploads", responses={**answers(UploadList), **errors(422)})
def listed(request: Request, limit: Limit = 50, cursor: Cursor = None) -> Json:
    """List the tenant's uploads, latest first."""
    context, caller = enter(request, "read")
    context_parts = ("uploads", caller.tenant_id)
    position = context.signer.open(cursor, *context_parts)
    items, next_position = uploads.page(context.db, caller.tenant_id, position, limit)
    following = context.signer.following(next_position, *context_parts)
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
        remove_upload(context.tenant_root(caller.tenant_id), sha256, upload.kind)
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
