"""Signed URLs of artifacts: anybody who has one may GET that path of that tenant until it expires, without a key.

The signature binds method, path, tenant and expiry. It names no key: revoking one ends no URL that was made with it,
so they live for minutes. It knows no route.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable
from urllib.parse import quote

_TEXT = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{43})")


class UrlSigner:
    """`secret`: the same in every replica of an endpoint. `clock`: seconds since 1970."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._secret = hashlib.sha256(b"artifact" + secret).digest()
        self._clock = clock

    def url(self, path: str, tenant_id: str, seconds: float) -> tuple[str, int]:
        """The path with its signature, and when that expires, in seconds since 1970."""
        expires = int(self._clock() + seconds)
        return f"{quote(path)}?signature={expires}.{tenant_id}.{self._mac(path, tenant_id, expires)}", expires

    def tenant(self, path: str, signature: str) -> str | None:
        """Whose artifact may be read at this path; None where the signature is not of it, or has expired."""
        match = _TEXT.fullmatch(signature)
        if match is None:
            return None
        expires, tenant_id, mac = int(match[1]), match[2], match[3]
        fits = hmac.compare_digest(mac, self._mac(path, tenant_id, expires))
        return tenant_id if fits and self._clock() < expires else None

    def _mac(self, path: str, tenant_id: str, expires: int) -> str:
        bound = f"GET\n{expires}\n{tenant_id}\n{path}".encode(errors="surrogatepass")
        return base64.urlsafe_b64encode(hmac.digest(self._secret, bound, "sha256")).rstrip(b"=").decode()
