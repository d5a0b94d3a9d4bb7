"""Routes of jobs: submit, check, read, list, cancel, delete."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request

from c2b_ray.endpoint.api.auth import Caller, enter
from c2b_ray.endpoint.api.bodies import Document, canonical, document
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.described import job_body
from c2b_ray.endpoint.api.models import Checked, JobList, Kind, State, Submission, Text
from c2b_ray.endpoint.api.models import Job as JobBody
from c2b_ray.endpoint.api.pagination import LONGEST
from c2b_ray.endpoint.api.problems import not_found
from c2b_ray.endpoint.api.responses import Json, answers, body, errors, router
from c2b_ray.endpoint.api.submitting import Resolved, model_seconds, resolve, submit_job, submitted_before
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.job import Filters, Job

routes = router("audits")
Cursor = Annotated[str | None, Query(max_length=LONGEST, description="`next` of the previous page.")]
Limit = Annotated[int, Query(ge=1, le=200, description="Items of a page.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key with the same body creates one audit, however often it is sent.",
    ),
]
_LOCATION = {"Location": {"description": "The job.", "required": True, "schema": {"type": "string"}}}
ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": JobBody, "description": "The job is stored, and runs when its turn comes.", "headers": _LOCATION}
}


@routes.post(
    "/audits", status_code=202, responses={**ACCEPTED, **errors(409, 415, 422)}, openapi_extra=body(Submission)
)
def submit(
    request: Request, sent: Annotated[Document, Depends(document)], idempotency_key: IdempotencyKey = None
) -> Json:
    """Submit an audit."""
    context, caller = enter(request, "submit")
    submission = sent.as_model(Submission)
    fields = {"kind": submission.kind, "name": submission.name, "config": submission.config}
    once = idempotency_key, canonical(fields)
    if (again := submitted_before(context, caller, once)) is not None:
        return again
    resolved = resolve(context, caller, submission.kind, submission.config)
    return submit_job(context, caller, resolved, submission.name, once)


@routes.post("/audits/check", responses={**answers(Checked), **errors(415, 422)}, openapi_extra=body(Submission))
def check(request: Request, sent: Annotated[Document, Depends(document)]) -> Json:
    """Check a config like a submission, and return how many images and seconds it takes at most. Nothing is stored."""
    context, caller = enter(request, "submit")
    submission = sent.as_model(Submission)
    resolved = resolve(context, caller, submission.kind, submission.config)
    return Json(_checked(resolved, model_seconds(context, caller, resolved)))


@routes.get("/audits", responses={**answers(JobList), **errors(422)})
def listed(
    request: Request,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: State | None = None,
    kind: Kind | None = None,
    name: Text | None = None,
) -> Json:
    """List the tenant's jobs, latest first."""
    context, caller = enter(request, "read")
    about = ("audits", caller.tenant_id, state, kind, name)
    position = context.signer.open(cursor, *about)
    page = jobs.page(
        context.db, caller.tenant_id, Filters(state, kind, name), None if position is None else tuple(position), limit
    )
    following = None if page.next is None else context.signer.seal(list(page.next), *about)
    return Json({"items": [job_body(job) for job in page.items], "next": following})


@routes.get("/audits/{job_id}", responses=answers(JobBody))
def read(request: Request, job_id: str) -> Json:
    """Return a job with its progress and its config as submitted."""
    context, caller = enter(request, "read")
    job = of_tenant(context, caller, job_id)
    return Json({**job_body(job), "config": job.config})


@routes.delete("/audits/{job_id}", status_code=202, responses={**answers(JobBody, 202), **errors(409, 422)})
def delete(
    request: Request,
    job_id: str,
    purge: Annotated[bool, Query(description="Delete a job that has ended, and its results.")] = False,
) -> Json:
    """Cancel a job: at once if it waits, at its next batch if it runs. An ended job stays as it is."""
    context, caller = enter(request, "submit")
    if purge:
        return Json(job_body(purged(context, caller, job_id)), 202)
    job = jobs.request_cancel(context.db, caller.tenant_id, job_id, caller.actor)
    if job is None:
        raise not_found("audit")
    return Json(job_body(job), 202)


def of_tenant(context: Context, caller: Caller, job_id: str) -> Job:
    """Returns a job of the caller's tenant. Raises 404 for another tenant's."""
    job = jobs.get(context.db, caller.tenant_id, job_id)
    if job is None:
        raise not_found("audit")
    return job


def purged(context: Context, caller: Caller, job_id: str) -> Job:
    """Deletes an ended job and its files, and returns the job as it was. Its row goes first, so that nobody reads half
    of a run."""
    from c2b_ray.endpoint.api.reads import forget
    from c2b_ray.store import files

    job = jobs.set_deleted(context.db, caller.tenant_id, job_id, caller.actor)
    if job is None:
        raise not_found("audit")
    path = context.run_path(caller.tenant_id, job.id)
    forget(path)
    if files.entries(path):
        files.remove_directory(path)
    return job


def _checked(resolved: Resolved, seconds: float | None) -> dict[str, Any]:
    return {
        "valid": True,
        "kind": resolved.kind,
        "config": resolved.config,
        "images_at_most": resolved.images,
        "model_seconds_at_most": seconds,
    }
