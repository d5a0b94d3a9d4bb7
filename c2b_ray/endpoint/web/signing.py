"""Pages to sign in by pasting a key, and to sign out."""

from __future__ import annotations

import re

from starlette.responses import Response

from c2b_ray.endpoint.api.auth import verified
from c2b_ray.endpoint.api.problems import ProblemError
from c2b_ray.endpoint.ledger import tenants as ended
from c2b_ray.endpoint.web import session as sessions
from c2b_ray.endpoint.web.rendering import shown
from c2b_ray.endpoint.web.session import PageRequest, goto

HOME = f"{sessions.PATH}/"
_OURS = re.compile(r"/ui/[A-Za-z0-9_.~/-]*(\?[A-Za-z0-9_.~%&=+:,/-]*)?")


def form(visit: PageRequest) -> Response:
    """Shows the form to paste a key."""
    if visit.key is not None:
        return goto(_after(visit.query("next")))
    return shown(visit, "signin.html.j2", {"next": _after(visit.query("next")), "wrong": ""})


def sign_in(visit: PageRequest) -> Response:
    """Starts a new session and ends the old one, so that knowing the old one is of no use."""
    next_page = _after(visit.sent("next"))
    key = verified(visit.request, visit.context, visit.sent("key"))
    if key is None:
        wrong = "This key is unknown, expired or revoked. Check that you pasted all of it: c2b_… with 45 characters."
        return shown(visit, "signin.html.j2", {"next": next_page, "wrong": wrong}, 401)
    if not key.allows("read"):
        raise ProblemError(
            403, "missing_scope", "this key lacks the scope read, which these pages need; use another key"
        )
    _end(visit)
    response = goto(next_page)
    sessions.keep(response, visit.context, sessions.begin(key.id))
    return response


def sign_out(visit: PageRequest) -> Response:
    """Ends the session. Copies of its cookie stop working at once."""
    _end(visit)
    response = goto(f"{sessions.PATH}/signin")
    response.delete_cookie(sessions.COOKIE, path=sessions.PATH)
    return response


def _end(visit: PageRequest) -> None:
    if visit.key is not None:
        ended.end(visit.context.db, visit.session.nonce, visit.session.begun + sessions.SECONDS)


def _after(path: str) -> str:
    """Returns where to go next: one of these pages, never another site."""
    return path if _OURS.fullmatch(path) else HOME
