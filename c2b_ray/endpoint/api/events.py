"""The route of a job's events: a stream of server-sent events that a client can resume."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from c2b_ray.endpoint.api.auth import enter, errors, files, router
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.jobs import of_tenant
from c2b_ray.endpoint.api.problems import ProblemError, retry_after
from c2b_ray.endpoint.api.watch import EventFollower, Reader
from c2b_ray.endpoint.ledger import webhooks
from c2b_ray.endpoint.ledger.job import Job
from c2b_ray.endpoint.ledger.keys import Key
from c2b_ray.report.redact import cleaned

routes = router("audits")
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
        is_known, latest = webhooks.seen(context.db, job.id, last_id)
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
