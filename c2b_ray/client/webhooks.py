"""Signatures of webhooks: how an endpoint signs what it sends, and how a receiver checks it.

A delivery has the header `C2B-Signature: t=1700000000,v1=9f86…`, where v1 is HMAC-SHA256 of `{t}.{body}` in
hexadecimal, with the webhook's secret as the key. A receiver in Python:

    event = verify_webhook(secret, request.headers["C2B-Signature"], request.body)

In any other language: compute the HMAC over the raw bytes of the body, compare in constant time, refuse a `t` that is
older than five minutes. The `id` of an event stays the same when it is sent again: keep those that were handled.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from typing import Any

from c2b_ray.errors import InputError

HEADER = "C2B-Signature"
TOLERANCE_S = 300.0
_TIME = re.compile(r"[0-9]{1,15}")


class SignatureError(InputError):
    """The request does not come from the endpoint, is too old, or was changed on its way."""


def signature(secret: str, body: bytes, timestamp: int) -> str:
    """Returns the header for a body that is sent at the time `timestamp`, in seconds since 1970."""
    return f"t={timestamp},v1={_digest(secret, body, str(timestamp))}"


def verify_webhook(
    secret: str, header: str, body: bytes, *, tolerance: float = TOLERANCE_S, now: float | None = None
) -> dict[str, Any]:
    """Checks a delivery and returns its event: `id`, `type` (audit.finished, audit.failed, audit.cancelled), `created`
    and `audit`.

    `body`: the bytes as they were received, not parsed. `tolerance`: the seconds by which the time of the signature may
    differ from now. Raises SignatureError if the endpoint did not sign this body.
    """
    pairs = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1 or not _TIME.fullmatch(times[0]):
        raise SignatureError(f"{HEADER}: expected t=SECONDS,v1=HEXADECIMAL")
    expected = _digest(secret, body, times[0]).encode()
    if not any(hmac.compare_digest(expected, value.encode()) for name, _, value in pairs if name == "v1"):
        raise SignatureError(f"{HEADER}: the signature is not of this body and secret")
    if abs((time.time() if now is None else now) - int(times[0])) > tolerance:
        raise SignatureError(f"{HEADER}: it was signed more than {tolerance:g} s from now")
    event: dict[str, Any] = json.loads(body)
    return event


def _digest(secret: str, body: bytes, timestamp: str) -> str:
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
