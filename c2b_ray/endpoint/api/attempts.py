"""Limits attempts with wrong keys: counts them by address and by the key that they name, and answers 429 beyond a rate.

A working key is never refused because of others' requests: an attacker who guesses keys locks out nobody behind the
same proxy, and nobody whose key's first letters are known. Every wrong key takes the same work, whether part of it
exists or not. The counts are in the ledger, so replicas share them, and the number of rows is bounded.
"""

from __future__ import annotations

import hashlib
import ipaddress
import math

from c2b_ray.endpoint.api.problems import ProblemError, retry_after
from c2b_ray.endpoint.ledger.buckets import Throttle
from c2b_ray.endpoint.ledger.quotas import Denied

_PREFIX = len("c2b_12345678")
_ROWS = 4096
"""The number of counts by key. Prefixes share them at random, which affects only senders of wrong keys."""
_NETWORK = 64
"""Bits of an IPv6 address that a client cannot change freely."""


class WrongKeys:
    """Counts wrong keys. `a_minute`: how many one address, or one prefix, may send on average; `at_once`: how many in a
    burst."""

    def __init__(self, throttle: Throttle, a_minute: float, at_once: int) -> None:
        self._throttle, self._rate, self._burst = throttle, a_minute / 60, at_once

    def count(self, address: str | None, text: str) -> None:
        """Counts one wrong key. Raises ProblemError 429 if there were too many."""
        prefix = int.from_bytes(hashlib.sha256(text[:_PREFIX].encode(errors="replace")).digest()[:8]) % _ROWS
        try:
            for name in (f"wrong:address:{_network(address)}", f"wrong:prefix:{prefix}"):
                self._throttle.take(name, self._rate, self._burst)
        except Denied as denied:
            wait = retry_after(denied.retry_after)
            detail = f"too many wrong keys; try again in {math.ceil(denied.retry_after)} s"
            raise ProblemError(429, "too_many_wrong_keys", detail, headers=wait) from denied


def _network(address: str | None) -> str:
    try:
        known = ipaddress.ip_address(address or "")
    except ValueError:  # a socket in the file system has no address
        return "none"
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    return str(known.ipv4_mapped or ipaddress.ip_network((known.packed, _NETWORK), strict=False))
