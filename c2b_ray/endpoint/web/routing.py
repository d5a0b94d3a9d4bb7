"""Routes of pages: each runs a function of a `Visit` in a thread, after checking the session, and shows errors as
pages.

A form is accepted only with its session's token. This module knows no page by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from c2b_ray.endpoint.api.auth import Caller, admitted
from c2b_ray.endpoint.api.context import context_of
from c2b_ray.endpoint.api.envelope import ERRORS
from c2b_ray.endpoint.api.problems import ProblemError, problem_of
from c2b_ray.endpoint.ledger import keys
from c2b_ray.endpoint.ledger import sessions as ended
from c2b_ray.endpoint.ledger.keys import Scope
from c2b_ray.endpoint.web import session as sessions
from c2b_ray.endpoint.web.rendering import problem_page
from c2b_ray.endpoint.web.visit import NOBODY, Visit, goto

Page = Callable[[Visit], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def page(function: Page, scope: Scope | None = "read") -> Endpoint:
    """Wraps the function of a page. `scope`: the scope that the visitor's key needs; None for a page for everyone."""

    async def answer(request: Request) -> Response:
        try:
            visit = await run_in_threadpool(_entered, request, scope)
            if request.method == "POST":
                async with request.form(max_files=1, max_fields=100, max_part_size=1 << 20) as form:
                    sessions.check_token(visit.context.signer, visit.session, form.get(sessions.TOKEN))
                    return await run_in_threadpool(function, replace(visit, form=form))
            return await run_in_threadpool(function, visit)
        except Exception as error:
            return await run_in_threadpool(failed, request, error)

    return answer


def failed(request: Request, error: Exception) -> Response:
    """Shows an error as a page, or redirects a visitor who is not signed in to the sign-in page."""
    problem = problem_of(error)
    if problem is None:
        request_id = request.scope["state"]["request_id"]
        ERRORS.error("request %s failed", request_id, exc_info=error)
        problem = ProblemError(500, "internal", "the endpoint failed; its operator finds the reason in the log")
    if problem.status == 401 and request.method == "GET":
        return goto(f"{sessions.PATH}/signin?next={quote(_here(request), safe='')}")
    return problem_page(request, problem)


def _here(request: Request) -> str:
    query = request.url.query
    return f"{request.scope['path']}{'?' if query else ''}{query}"


def _entered(request: Request, scope: Scope | None) -> Visit:
    """Returns the visit. Raises 401 without a session whose key works, 403 if the key lacks the scope, and 429 if its
    tenant sends too many requests."""
    context = context_of(request)
    session = sessions.read(request, context.signer)
    caller = None
    if session is not None and session.key_id:
        key = None if ended.has_ended(context.db, session.nonce) else keys.working(context.db, session.key_id)
        caller = None if key is None else Caller(key, key.tenant_id)
    if scope is not None:
        if caller is None:
            raise NOBODY
        caller = admitted(request, context, caller.key, scope)
    return Visit(request, context, session or sessions.begin(), caller, FormData())
