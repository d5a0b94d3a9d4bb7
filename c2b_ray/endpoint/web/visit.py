"""A request for a page: its visitor, and the values that it sent. It knows no page by name."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from c2b_ray.endpoint.api.auth import Caller
from c2b_ray.endpoint.api.context import Context
from c2b_ray.endpoint.api.problems import FieldError, ProblemError
from c2b_ray.endpoint.web.session import Session

_LONGEST_NUMBER, _LONGEST_TEXT = 9, 200
NOBODY = ProblemError(401, "not_authenticated", "sign in with a key of this endpoint")


@dataclass(frozen=True)
class Visit:
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
