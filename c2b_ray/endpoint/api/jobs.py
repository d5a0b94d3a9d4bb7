"""Routes of jobs: submit, check, read, list, cancel, delete, and follow their events in a stream."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from c2b_ray.audits.audit import QUESTION
from c2b_ray.endpoint.api.context import LONGEST_CURSOR, Caller, Context, enter
from c2b_ray.endpoint.api.envelope import Document, canonical, document
from c2b_ray.endpoint.api.models import (
    Checked,
    JobList,
    Json,
    Kind,
    State,
    Submission,
    Text,
    answers,
    body,
    errors,
    files,
    router,
)
from c2b_ray.endpoint.api.models import Job as JobBody
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, not_found, retry_after
from c2b_ray.endpoint.api.reads import headline_of
from c2b_ray.endpoint.api.watch import EventFollower, Reader
from c2b_ray.endpoint.kinds import UNKNOWN, images_of_question, kind_named, models_of
from c2b_ray.endpoint.ledger import jobs, quotas, uploads, webhooks
from c2b_ray.endpoint.ledger.tables import Filters, Job, NewJob
from c2b_ray.endpoint.ledger.tenants import Key
from c2b_ray.endpoint.policy import configs
from c2b_ray.endpoint.policy.names import Tenancy
from c2b_ray.errors import ConfigError
from c2b_ray.report.redact import cleaned

# A job as clients get it.


def job_body(job: Job) -> dict[str, Any]:
    """Returns the JSON of a job, without its config."""
    base_url = f"/v1/audits/{job.id}"
    return {
        "id": job.id,
        "kind": job.kind,
        "name": job.name,
        "state": job.state,
        "created": job.created,
        "started": job.started,
        "ended": job.ended,
        "progress": {
            "stage": job.stage,
            "done": job.done,
            "total": job.total,
            "rate": job.rate,
            "seconds_left": job.seconds_left,
        },
        "images": job.images,
        "model_seconds": job.model_seconds,
        "bytes": job.bytes,
        "slices": job.slices,
        "attempt": job.attempt,
        "cancel_requested": job.cancel_requested,
        "failure": None if job.failure is None else cleaned(job.failure),
        "classifier_hash": job.classifier_hash,
        "result": None,
        "config": None,
        "links": {
            "self": base_url,
            "events": f"{base_url}/events",
            "tables": f"{base_url}/tables",
            "report": f"{base_url}/report",
        },
    }


# From a client's request to a stored job: checked by the policy and the quotas, and written to the ledger.


_UPLOAD = re.compile(r"upload:([0-9a-f]{64})")
_MOST_UPLOADS = 100
_DAYS = 30


@dataclass(frozen=True)
class ResolvedConfig:
    """A config as it was sent and as it will run (`runs`). `images`: the most images; None if unknown before it
    runs."""

    kind: str
    config: dict[str, Any]
    runs: dict[str, Any]
    models: tuple[str, ...]
    images: int | None


def resolve(context: Context, caller: Caller, kind: str, config: Mapping[str, Any]) -> ResolvedConfig:
    """Checks a config and returns what will run. Raises 422, which names a field that is wrong, or that names something
    this tenant may not use."""
    audit = kind_named(kind)
    tenancy = tenancy_of(context, caller.tenant_id, config)
    try:
        runs = configs.resolve_config(config, audit.config_class, tenancy)
        # With the submitted config, because an error may show its paths.
        audit.check_config(config)
    except ConfigError as error:
        message = str(error).removeprefix(f"{error.field}: " if error.field else "")
        field = f"config.{error.field}" if error.field else "config"
        raise ProblemError(422, "invalid_config", f"{field}: {message}", [FieldError(field, message)]) from error
    models = tuple(model for model in models_of(context.db, caller.tenant_id, kind, config) if model != UNKNOWN)
    is_question = kind == QUESTION
    images = images_of_question(context.db, caller.tenant_id, config) if is_question else audit.images_at_most(runs)
    return ResolvedConfig(kind, dict(config), runs, models, images)


def submit_job(
    context: Context, caller: Caller, resolved: ResolvedConfig, name: str | None, idempotency: tuple[str | None, bytes]
) -> Json:
    """Submits the job and answers 202. `idempotency`: the Idempotency-Key, and the body to compare it by."""
    key, content = idempotency
    new = replace(_new_job(resolved), name=name, idempotency_key=key, body_hash=hashlib.sha256(content).hexdigest())
    job, created = jobs.submit(context.db, caller.tenant_id, caller.key.id, new, context.config.quotas)
    return _accepted(job, created)


def _new_job(resolved: ResolvedConfig) -> NewJob:
    return NewJob(resolved.kind, resolved.config, resolved.runs, images=resolved.images or 0, models=resolved.models)


def refusal(context: Context, caller: Caller, resolved: ResolvedConfig) -> quotas.QuotaDenial | None:
    """Returns the quota that would refuse a submission now; None if none would."""
    return quotas.refusal(context.db, caller.tenant_id, _new_job(resolved), context.config.quotas)


def submitted_before(context: Context, caller: Caller, idempotency: tuple[str | None, bytes]) -> Json | None:
    """Returns the answer to a repeated submission; None for a new one.

    It is called before the config is checked, because a file that the config names may have been deleted since.
    """
    key, content = idempotency
    if key is None:
        return None
    job = jobs.submitted_before(context.db, caller.tenant_id, key, hashlib.sha256(content).hexdigest())
    return None if job is None else _accepted(job, False)


def _accepted(job: Job, created: bool) -> Json:
    answer = Json({**job_body(job), "config": job.config}, 202)
    answer.headers["Location"] = f"/v1/audits/{job.id}"
    if not created:
        answer.headers["Idempotent-Replayed"] = "true"
    return answer


def tenancy_of(context: Context, tenant_id: str, config: Mapping[str, Any]) -> Tenancy:
    """Returns the tenant's part of the endpoint, with the uploads that the config names."""
    hashes = {sha for text in _texts(config) for sha in _UPLOAD.findall(text)}
    if len(hashes) > _MOST_UPLOADS:
        raise ProblemError(422, "invalid_config", f"a config names at most {_MOST_UPLOADS} uploads")
    upload_of_hash = {sha: uploads.get(context.db, tenant_id, sha) for sha in sorted(hashes)}
    kinds = {sha: upload.kind for sha, upload in upload_of_hash.items() if upload is not None}
    return Tenancy(context.tenant_root(tenant_id), context.config.policy, kinds)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for item in items for text in _texts(item)]


def model_seconds(context: Context, caller: Caller, resolved: ResolvedConfig) -> float | None:
    """Estimates the most model seconds from the tenant's earlier use of these models; None if it never used one of
    them."""
    models, images = resolved.models, resolved.images
    if images is None or not models:
        return None
    with context.db.reading() as tx:
        now = tx.now
    first, last = quotas.day_of(now - _DAYS * quotas.DAY), quotas.day_of(now)
    use_of_model: dict[str, tuple[int, float]] = {}
    for use in quotas.spend(context.db, caller.tenant_id, first, last):
        total = use_of_model.get(use.model, (0, 0.0))
        use_of_model[use.model] = total[0] + use.images, total[1] + use.model_seconds
    rates = [use_of_model[model] for model in models if use_of_model.get(model, (0, 0.0))[0]]
    images_per_model = images / len(models)
    return sum(images_per_model * seconds / count for count, seconds in rates) if len(rates) == len(models) else None


routes = router("audits")
Cursor = Annotated[str | None, Query(max_length=LONGEST_CURSOR, description="`next` of the previous page.")]
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
    idempotency = idempotency_key, canonical(fields)
    if (earlier_answer := submitted_before(context, caller, idempotency)) is not None:
        return earlier_answer
    resolved = resolve(context, caller, submission.kind, submission.config)
    return submit_job(context, caller, resolved, submission.name, idempotency)


@routes.post("/audits/check", responses={**answers(Checked), **errors(415, 422)}, openapi_extra=body(Submission))
def check(request: Request, sent: Annotated[Document, Depends(document)]) -> Json:
    """Check a config like a submission, and return how many images and seconds it takes at most, and the quota that
    would refuse it now. Nothing is stored."""
    context, caller = enter(request, "submit")
    submission = sent.as_model(Submission)
    resolved = resolve(context, caller, submission.kind, submission.config)
    denial = refusal(context, caller, resolved)
    return Json({**_checked(resolved, model_seconds(context, caller, resolved)), "refused": _refused(denial)})


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
    context_parts = ("audits", caller.tenant_id, state, kind, name)
    position = context.signer.open(cursor, *context_parts)
    page = jobs.page(context.db, caller.tenant_id, Filters(state, kind, name), position, limit)
    following = context.signer.following(page.next, *context_parts)
    return Json({"items": [job_body(job) for job in page.items], "next": following})


@routes.get("/audits/{job_id}", responses=answers(JobBody))
def read(request: Request, job_id: str) -> Json:
    """Return a job with its progress, its result and its config as submitted."""
    context, caller = enter(request, "read")
    job = of_tenant(context, caller, job_id)
    return Json({**job_body(job), "result": headline_of(context, job), "config": job.config})


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
    from c2b_ray.storage import files

    job = jobs.set_deleted(context.db, caller.tenant_id, job_id, caller.actor)
    if job is None:
        raise not_found("audit")
    path = context.run_path(caller.tenant_id, job.id)
    forget(path)
    if files.entries(path):
        files.remove_directory(path)
    return job


def _checked(resolved: ResolvedConfig, seconds: float | None) -> dict[str, Any]:
    return {
        "valid": True,
        "kind": resolved.kind,
        "config": resolved.config,
        "images_at_most": resolved.images,
        "model_seconds_at_most": seconds,
    }


def _refused(denial: quotas.QuotaDenial | None) -> dict[str, Any] | None:
    if denial is None:
        return None
    return {"quota": denial.quota, "detail": str(denial), "free_in_seconds": denial.free_in}


# The route of a job's events: a stream of server-sent events that a client can resume.


PING_SECONDS = 15
RETRY_MS = 2000
LONGEST_SECONDS = 900.0
"""The longest stream. Afterwards the client's next request checks whether its key still works."""
MOST_STREAMS, MOST_OF_A_TENANT = 1000, 200
"""The most streams of one replica, and of one tenant there."""
BUSY_SECONDS = 5
_WORDS = "Events of the kinds state, progress and others that a run reports; `data` is JSON. Ends with the job."


@routes.get(
    "/audits/{job_id}/events",
    response_class=EventSourceResponse,
    responses={
        **files({"text/event-stream": ""}, _WORDS),
        204: {"description": "The job has ended, and the client has seen all of its events."},
        **errors(422),
    },
)
def stream(
    request: Request,
    job_id: str,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,18}$", description="The last event that was seen.")
    ] = None,
) -> Response:
    """Follow the events of a job."""
    context, caller = enter(request, "read")
    job = of_tenant(context, caller, job_id)
    return follow(context, job, int(last_event_id or 0), caller.key)


def follow(context: Context, job: Job, last_id: int, key: Key) -> Response:
    """Returns the stream of a job that the key's tenant may see, after the event `last_id`; from the beginning if the
    job has no such event."""
    if last_id or job.ended_for_good:
        is_known, latest = webhooks.find_event(context.db, job.id, last_id)
        last_id = last_id if is_known else 0
        if job.ended_for_good and last_id == latest:
            return Response(status_code=204)  # an EventSource does not reconnect after it
    _check_streams(context, key.tenant_id)
    follower = EventFollower(job.id, last_id, job.ended_for_good, Reader(key.tenant_id, key.id))
    return EventSourceResponse(
        _sent(context, follower, _longest(context, key)),
        ping=PING_SECONDS,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _longest(context: Context, key: Key) -> float:
    """Returns the seconds that a stream may last: no longer than its key, by the database's clock, as everywhere."""
    if key.expires is None:
        return LONGEST_SECONDS
    with context.db.reading() as tx:
        return min(LONGEST_SECONDS, max(0.0, key.expires - tx.now))


def _check_streams(context: Context, tenant_id: str) -> None:
    wait = retry_after(BUSY_SECONDS)
    if context.watch.of_tenant(tenant_id) >= MOST_OF_A_TENANT:
        detail = f"this tenant has {MOST_OF_A_TENANT} open streams, the most allowed; close some"
        raise ProblemError(429, "too_many_streams", detail, headers=wait)
    if len(context.watch) >= MOST_STREAMS:
        raise ProblemError(503, "busy", "too many streams are open; try again", headers=wait)


async def _sent(context: Context, follower: EventFollower, seconds: float) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(comment="events of " + follower.job_id, retry=RETRY_MS)
    async for event in context.watch.follow(follower, seconds):
        data = json.dumps({**cleaned(event.data), "at": event.at}, ensure_ascii=True)
        yield ServerSentEvent(data, event=event.kind, id=str(event.id))
