"""The session of a page's visitor: a signed cookie that contains the id of a key, never the key's text.

A session ends when its key is revoked or expires, `SECONDS` after it began, or when the visitor signs out. Each form
contains a token of its session, so that forms of other sites are refused. This module knows no page.
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from c2b_ray.endpoint.api.auth import Caller
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, Signer

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


def check_token(signer: Signer, session: Session, submitted: object) -> None:
    """Raises 403 if a form was not made for this session."""
    if not isinstance(submitted, str) or not hmac.compare_digest(submitted.encode(), token(signer, session).encode()):
        detail = (
            "this form does not belong to your session, or the session has ended; open the page again and repeat it"
        )
        raise ProblemError(403, "bad_token", detail)


# A request for a page: its visitor, and the values that it sent. It knows no page by name.


_LONGEST_NUMBER, _LONGEST_TEXT = 9, 200
NOBODY = ProblemError(401, "not_authenticated", "sign in with a key of this endpoint")


@dataclass(frozen=True)
class PageRequest:
    """A request for a page. `key`: the session's key; None on pages for everyone. `form`: the fields of a POST."""

    request: Request
    context: Context
    session: Session
    key: Caller | None
    form: FormData

    @property
    def caller(self) -> Caller:
        if self.key is None:
            raise NOBODY
        return self.key

    @property
    def tenant_id(self) -> str:
        return self.caller.tenant_id

    @property
    def administered(self) -> str | None:
        """The tenant that an admin's key administers; None for operators, who administer all."""
        return None if self.context.remembered.operates(self.tenant_id) else self.tenant_id

    def part(self, name: str) -> str:
        """Returns a part of the path."""
        return str(self.request.path_params[name])

    def query(self, name: str) -> str:
        """Returns a parameter of the query, at most 200 characters; empty if it is left out."""
        return self.request.query_params.get(name, "").strip()[:_LONGEST_TEXT]

    def number(self, name: str, default: int, most: int) -> int:
        text = self.query(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER and int(text) <= most):
            detail = f"expected a whole number up to {most}"
            raise ProblemError(422, "invalid", f"{name}: {detail}", [FieldError(name, detail)])
        return int(text)

    def sent(self, name: str) -> str:
        """Returns a field of the form, with LF line ends; empty if it was not sent."""
        value = self.form.get(name)
        return value.replace("\r\n", "\n").strip() if isinstance(value, str) else ""

    def uploaded(self, name: str) -> UploadFile | None:
        value = self.form.get(name)
        return value if isinstance(value, UploadFile) and value.filename else None


def goto(path: str) -> Response:
    """Redirects to a page, by GET."""
    return RedirectResponse(path, 303)
