"""Signed URLs of artifacts: whoever has one may GET that path of that tenant until it expires, without a key.

The signature binds method, path, tenant and expiry. It names no key, so revoking the key does not end the URLs made
with it; therefore they live only for minutes. This module knows no route.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import re
import time
from collections.abc import Callable
from urllib.parse import quote

_TEXT = re.compile(r"([0-9]{1,12})\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{43})")

CLOCKS_APART_S = 60.0
"""Seconds by which the clocks of replicas may differ."""


class UrlSigner:
    """Signs URLs. `secret`: the same in all replicas of an endpoint. `clock`: returns seconds since 1970. `longest`:
    seconds that no URL lives longer than; one that seems to was made before the clock was set back."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time, longest: float = math.inf) -> None:
        self._secret = hashlib.sha256(b"artifact" + secret).digest()
        self._clock, self._longest = clock, longest

    def url(self, path: str, tenant_id: str, seconds: float) -> tuple[str, int]:
        """Returns the path with its signature, and its expiry in seconds since 1970."""
        expires = int(self._clock() + seconds)
        return f"{quote(path)}?signature={expires}.{tenant_id}.{self._mac(path, tenant_id, expires)}", expires

    def tenant(self, path: str, signature: str) -> str | None:
        """Returns the tenant whose path was signed; None if the signature is wrong or has expired."""
        match = _TEXT.fullmatch(signature)
        if match is None:
            return None
        expires, tenant_id, mac = int(match[1]), match[2], match[3]
        fits = hmac.compare_digest(mac, self._mac(path, tenant_id, expires))
        left = expires - self._clock()
        return tenant_id if fits and 0 < left <= self._longest + CLOCKS_APART_S else None

    def _mac(self, path: str, tenant_id: str, expires: int) -> str:
        bound = f"GET\n{expires}\n{tenant_id}\n{path}".encode(errors="surrogatepass")
        return base64.urlsafe_b64encode(hmac.digest(self._secret, bound, "sha256")).rstrip(b"=").decode()
