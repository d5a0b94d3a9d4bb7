"""What all pages share: the visitor's session, templates as answers, and the format of times, numbers and sizes.

A session is a signed cookie that contains the id of a key, never the key's text. It ends when its key is revoked or
expires, `SESSION_SECONDS` after it began, or when the visitor signs out. Each form contains a token of its session, so
that forms of other sites are refused. Every text is escaped, and characters that would reverse or hide the text beside
them are shown as escapes; only the plots, made here, are not. The policy of each page allows only its own script and
style sheet. This module knows no page's content.
"""

from __future__ import annotations

import hmac
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from c2b_ray.endpoint.api.context import Caller, Context, Signer, admitted, context_of
from c2b_ray.endpoint.api.envelope import ERRORS
from c2b_ray.endpoint.api.problems import FieldError, ProblemError, body_of, problem_of
from c2b_ray.endpoint.ledger import tenants
from c2b_ray.endpoint.ledger.tenants import Scope
from c2b_ray.report.page import without_hidden
from c2b_ray.report.redact import clean
from c2b_ray.report.words import count, duration, plural, signed, small_probability
from c2b_ray.report.words import size as in_units

# The session of a page's visitor: a signed cookie that contains the id of a key, never the key's text.


COOKIE, PAGES, TOKEN = "c2b_session", "/ui", "csrf"
SESSION_SECONDS = 12 * 3600.0


@dataclass(frozen=True)
class Session:
    """A session. `key_id`: empty until the visitor signs in. `nonce`: the secret of the session's tokens. `begun`:
    seconds since 1970."""

    key_id: str
    nonce: str
    begun: float


def begin_session(key_id: str = "") -> Session:
    return Session(key_id, secrets.token_urlsafe(16), time.time())


def session_of(request: Request, signer: Signer) -> Session | None:
    """Returns the session of a request; None without a cookie, or with a forged or expired one."""
    try:
        values = signer.open(request.cookies.get(COOKIE), "session")
    except ProblemError:
        return None
    if values is None:
        return None
    session = Session(*values)
    return session if 0 <= time.time() - session.begun < SESSION_SECONDS else None


def keep_session(response: Response, context: Context, session: Session) -> None:
    """Sets the session's cookie. Browsers send it only to the endpoint's pages, and scripts cannot read it."""
    value = context.signer.seal([session.key_id, session.nonce, session.begun], "session")
    secure = context.config.url.startswith("https://")
    response.set_cookie(
        COOKIE, value, max_age=int(SESSION_SECONDS), path=PAGES, secure=secure, httponly=True, samesite="lax"
    )


def form_token(signer: Signer, session: Session) -> str:
    """Returns the token for the forms of a session."""
    return signer.seal(session.nonce, TOKEN)


def check_form_token(signer: Signer, session: Session, submitted: object) -> None:
    """Raises 403 if a form was not made for this session."""
    if not isinstance(submitted, str) or not hmac.compare_digest(
        submitted.encode(), form_token(signer, session).encode()
    ):
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
        return None if self.context.tenants.operates(self.tenant_id) else self.tenant_id

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


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
UNKNOWN = "–"
STATES = {
    "queued": "waits", "running": "runs", "finished": "finished", "failed": "failed", "cancelled": "cancelled",
}  # fmt: skip


@dataclass(frozen=True)
class MenuItem:
    """An entry of the pages' menu."""

    path: str
    label: str


def shown(visit: PageRequest, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
    """Renders a page. A visitor without a session gets one, so that its forms can be sent."""
    base = {
        "token": form_token(visit.context.signer, visit.session),
        "menu": _menu(visit),
        "here": visit.request.scope["path"],
        "key": visit.key.key if visit.key else None,
    }
    content = _environment().get_template(template).render({**base, **values})
    response = HTMLResponse(content, status, {"Content-Security-Policy": POLICY})
    if COOKIE not in visit.request.cookies or visit.key is None:
        keep_session(response, visit.context, visit.session)
    return response


def problem_page(request: Request, problem: ProblemError) -> Response:
    """Renders an error for people: what is wrong, in which field, what to do, and the request's id."""
    request_id = request.scope["state"]["request_id"]
    body = body_of(problem, request_id)
    values = {**body, "menu": [], "here": "", "key": None, "token": "", "title": body["title"]}
    content = _environment().get_template("problem.html.j2").render(values)
    headers = {**problem.headers, "Content-Security-Policy": POLICY}
    return HTMLResponse(content, problem.status, headers)


def trusted(markup: str) -> Markup:
    """Marks markup as safe; for the plots, which escape their labels themselves."""
    return Markup(markup)  # noqa: S704


def epoch(seconds: float | None) -> Markup | str:
    """Formats a time for people and for programs. The pages' script uses the same format."""
    if seconds is None:
        return UNKNOWN
    time = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{} {}</time>').format(
        time.isoformat(timespec="seconds"), time.day, f"{time:%b %Y, %H:%M} UTC"
    )


def size(bytes_: float | None) -> str:
    """Formats bytes with three digits, such as 20 GiB."""
    return UNKNOWN if bytes_ is None else in_units(bytes_)


def number(value: Any) -> str:
    """Formats a cell of a table: numbers short, lists as words, missing values as a dash."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}".replace("inf", "∞")
    if isinstance(value, list):
        return ", ".join(map(number, value))
    return str(value)


def probability(value: float | None) -> str:
    """Formats a p- or q-value as reports do: three decimals, `<0.001` below them."""
    return UNKNOWN if value is None or math.isnan(value) else small_probability(value)


def _menu(visit: PageRequest) -> list[MenuItem]:
    if visit.key is None:
        return []
    key = visit.key.key
    menu = [("submit", "submit", "New audit"), ("read", "", "Audits"), ("read", "classifiers", "Classifiers"),
            ("read", "uploads", "Uploads"), ("read", "usage", "Usage"), ("admin", "keys", "Keys"),
            ("admin", "audit-log", "Audit log")]  # fmt: skip
    return [MenuItem(f"{PAGES}/{path}", label) for scope, path, label in menu if scope in key.scopes]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("c2b_ray.endpoint.web", "templates"),
        autoescape=True,
        finalize=without_hidden,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "epoch": epoch, "size": size, "number": number, "duration": duration, "count": count, "signed": signed,
        "clean": clean, "probability": probability,
    }  # fmt: skip
    environment.globals |= {"states": STATES, "plural": plural, "phrase": lambda status: HTTPStatus(status).phrase}
    return environment


# Routes of pages: each runs a function of a `PageRequest` in a thread, after checking the session, and shows errors as
# pages.


Page = Callable[[PageRequest], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def page(function: Page, scope: Scope | None = "read") -> Endpoint:
    """Wraps the function of a page. `scope`: the scope that the visitor's key needs; None for a page for everyone."""

    async def answer(request: Request) -> Response:
        try:
            visit = await run_in_threadpool(_entered, request, scope)
            if request.method == "POST":
                async with request.form(max_files=1, max_fields=100, max_part_size=1 << 20) as form:
                    check_form_token(visit.context.signer, visit.session, form.get(TOKEN))
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
        query = request.url.query
        here = f"{request.scope['path']}{'?' if query else ''}{query}"
        return goto(f"{PAGES}/signin?next={quote(here, safe='')}")
    return problem_page(request, problem)


def _entered(request: Request, scope: Scope | None) -> PageRequest:
    """Returns the visit. Raises 401 without a session whose key works, 403 if the key lacks the scope, and 429 if its
    tenant sends too many requests."""
    context = context_of(request)
    session = session_of(request, context.signer)
    caller = None
    if session is not None and session.key_id:
        key = (
            None
            if tenants.session_has_ended(context.db, session.nonce)
            else tenants.working_key(context.db, session.key_id)
        )
        caller = None if key is None else Caller(key, key.tenant_id)
    if scope is not None:
        if caller is None:
            raise NOBODY
        caller = admitted(request, context, caller.key, scope)
    return PageRequest(request, context, session or begin_session(), caller, FormData())
