"""Cursors: the position where a list continues, signed so that a client cannot forge one.

A cursor is bound to its list, filters and tenant. This module knows no list.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from c2b_ray.config.endpoint import SECRET_VARIABLE
from c2b_ray.endpoint.api.problems import FieldError, ProblemError

T = TypeVar("T")
LONGEST = 1000
"""Characters of a cursor. It is part of a URL, whose length servers limit."""
_TAG = 16


class Signer:
    """Makes and opens cursors. `secret`: the same in all replicas of an endpoint."""

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"cursor" + secret).digest()

    def seal(self, position: Any, *about: object) -> str:
        """Returns the cursor of a position. `position`: a JSON value. `about`: the list, its tenant and its filters."""
        payload = json.dumps(position, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._tag(payload, about) + payload).rstrip(b"=").decode()

    def open(self, cursor: str | None, *about: object) -> Any:
        """Returns the position; None for no cursor. Raises a problem if this endpoint did not make it for this list."""
        if cursor is None:
            return None
        try:
            sealed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True)
        except ValueError as error:
            raise _bad() from error
        tag, payload = sealed[:_TAG], sealed[_TAG:]
        if len(cursor) > LONGEST or not hmac.compare_digest(tag, self._tag(payload, about)):
            raise _bad()
        return json.loads(payload)

    def _tag(self, payload: bytes, about: tuple[object, ...]) -> bytes:
        bound = json.dumps([str(part) for part in about]).encode()
        return hmac.digest(self._secret, len(bound).to_bytes(4) + bound + payload, "sha256")[:_TAG]


@dataclass(frozen=True)
class Pages:
    """The pages of a list, of at most `limit` items. `about`: the list, its tenant and its filters."""

    signer: Signer
    limit: int
    about: tuple[object, ...]

    def after(self, cursor: str | None) -> Any:
        """Returns the position after which a page begins; None for the first page. Raises 400 for another's cursor."""
        return self.signer.open(cursor, *self.about)

    def page(self, found: Sequence[T], body: Callable[[T], Any], position: Callable[[T], Any]) -> dict[str, Any]:
        """Returns a page as JSON. `found`: its items, and one more where there is a next page."""
        items = found[: self.limit]
        more = len(found) > self.limit
        following = self.signer.seal(position(items[-1]), *self.about) if more else None
        return {"items": [body(one) for one in items], "next": following}


def _bad() -> ProblemError:
    detail = "the cursor does not belong to this list; start without a cursor"
    return ProblemError(400, "bad_cursor", detail, [FieldError("cursor", detail)])


def endpoint_secret(folder: str) -> bytes:
    """Returns the secret that replicas sign with: from the environment, otherwise from a file in the endpoint's folder,
    which is created if it is missing."""
    if text := os.environ.get(SECRET_VARIABLE):
        return text.encode()
    path = Path(folder) / "secret"
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"secret.{secrets.token_hex(4)}")
    if not path.exists():
        with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as stream:
            stream.write(secrets.token_hex(32))
        try:
            os.link(temporary, path)  # atomic: the file is complete, and the first of two processes wins
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    return path.read_bytes()
