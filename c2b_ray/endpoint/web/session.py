"""Who is signed in on a page: a cookie that names a key by its id, signed, and never the key's text.

A session ends when its key is revoked or has expired, `SECONDS` after it began, or when it is signed out. Each form
holds a token of its session, so that no other site's form is taken for one of ours. It knows no page.
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.pagination import Signer
from c2b_ray.endpoint.api.problems import ProblemError

COOKIE, PATH, TOKEN = "c2b_session", "/ui", "csrf"
SECONDS = 12 * 3600.0


@dataclass(frozen=True)
class Session:
    """`key_id`: empty until someone signs in. `nonce`: what this session's tokens are made of. `begun`: seconds since
    1970."""

    key_id: str
    nonce: str
    begun: float


def begin(key_id: str = "") -> Session:
    return Session(key_id, secrets.token_urlsafe(16), time.time())


def read(request: Request, signer: Signer) -> Session | None:
    """None without a cookie, with one that was not made here, and with one that is too old."""
    try:
        values = signer.open(request.cookies.get(COOKIE), "session")
    except ProblemError:
        return None
    if values is None:
        return None
    session = Session(*values)
    return session if 0 <= time.time() - session.begun < SECONDS else None


def keep(response: Response, context: Context, session: Session) -> None:
    """Only the endpoint's own pages are sent the cookie, and no script sees it."""
    value = context.signer.seal([session.key_id, session.nonce, session.begun], "session")
    secure = context.config.url.startswith("https://")
    response.set_cookie(COOKIE, value, max_age=int(SECONDS), path=PATH, secure=secure, httponly=True, samesite="lax")


def token(signer: Signer, session: Session) -> str:
    """For the forms of a session."""
    return signer.seal(session.nonce, TOKEN)


def check_token(signer: Signer, session: Session, sent: object) -> None:
    """403 where a form was not made for this session."""
    if not isinstance(sent, str) or not hmac.compare_digest(sent.encode(), token(signer, session).encode()):
        detail = "this form is not of your session, or your session has ended; open the page again and repeat it"
        raise ProblemError(403, "bad_token", detail)
