"""The route of a job's events: a stream of server-sent events, which a client resumes where it was cut off."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from c2b_ray.endpoint.api.auth import enter
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.jobs import of_tenant
from c2b_ray.endpoint.api.problems import ProblemError, retry_after
from c2b_ray.endpoint.api.responses import errors, files, router
from c2b_ray.endpoint.ledger import events
from c2b_ray.endpoint.ledger.job import Job
from c2b_ray.report.kit.redact import cleaned

routes = router("audits")
PING_SECONDS = 15
RETRY_MS = 2000
LONGEST_SECONDS = 900.0
"""After that a stream ends, and the client's next request shows whether its key still works."""
MOST_STREAMS = 1000
_WORDS = "Events of kinds state, progress and what else a run reports; `data` is JSON. Ends with the job."


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
    """Follow a job."""
    context, caller = enter(request, "read")
    job = of_tenant(context, caller, job_id)
    return follow(context, job, int(last_event_id or 0), caller.key.expires)


def follow(context: Context, job: Job, last_id: int, expires: float | None = None) -> Response:
    """The stream of a job that the caller may see; `expires`: when it may no more."""
    if job.ended_for_good and last_id and events.last_id(context.db, job.id) <= last_id:
        return Response(status_code=204)  # after which an EventSource does not reconnect
    if len(context.watch) >= MOST_STREAMS:
        raise ProblemError(503, "busy", "too many streams are open; try again", headers=retry_after(5))
    seconds = LONGEST_SECONDS if expires is None else min(LONGEST_SECONDS, max(0.0, expires - time.time()))
    return EventSourceResponse(
        _sent(context, job, last_id, seconds),
        ping=PING_SECONDS,
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _sent(context: Context, job: Job, last_id: int, seconds: float) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(comment="events of " + job.id, retry=RETRY_MS)
    async for event in context.watch.follow(job.id, last_id, job.ended_for_good, seconds):
        data = json.dumps({**cleaned(event.data), "at": event.at}, ensure_ascii=True)
        yield ServerSentEvent(data, event=event.kind, id=str(event.id))
