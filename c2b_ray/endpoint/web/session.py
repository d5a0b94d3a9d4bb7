"""The session of a page's visitor: a signed cookie that contains the id of a key, never the key's text.

A session ends when its key is revoked or expires, `SECONDS` after it began, or when the visitor signs out. Each form
contains a token of its session, so that forms of other sites are refused. This module knows no page.
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
    """A session. `key_id`: empty until the visitor signs in. `nonce`: the secret of the session's tokens. `begun`:
    seconds since 1970."""

    key_id: str
    nonce: str
    begun: float


def begin(key_id: str = "") -> Session:
    return Session(key_id, secrets.token_urlsafe(16), time.time())


def read(request: Request, signer: Signer) -> Session | None:
    """Returns the session of a request; None without a cookie, or with a forged or expired one."""
    try:
        values = signer.open(request.cookies.get(COOKIE), "session")
    except ProblemError:
        return None
    if values is None:
        return None
    session = Session(*values)
    return session if 0 <= time.time() - session.begun < SECONDS else None


def keep(response: Response, context: Context, session: Session) -> None:
    """Sets the session's cookie. Browsers send it only to the endpoint's pages, and scripts cannot read it."""
    value = context.signer.seal([session.key_id, session.nonce, session.begun], "session")
    secure = context.config.url.startswith("https://")
    response.set_cookie(COOKIE, value, max_age=int(SECONDS), path=PATH, secure=secure, httponly=True, samesite="lax")


def token(signer: Signer, session: Session) -> str:
    """Returns the token for the forms of a session."""
    return signer.seal(session.nonce, TOKEN)


def check_token(signer: Signer, session: Session, sent: object) -> None:
    """Raises 403 if a form was not made for this session."""
    if not isinstance(sent, str) or not hmac.compare_digest(sent.encode(), token(signer, session).encode()):
        detail = (
            "this form does not belong to your session, or the session has ended; open the page again and repeat it"
        )
        raise ProblemError(403, "bad_token", detail)
