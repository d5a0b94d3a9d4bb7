"""Keys that do not work: counted by the address that sends them and by the key that they name, 429 beyond a rate.

A key that works is never refused because of others' requests: an attacker who guesses keys locks out nobody behind the
same proxy, and nobody whose key's first letters are known. Every wrong key costs the same work, whether any of it
exists. The counts are in the ledger, so that replicas share them, in rows whose number guessing cannot drive up.
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
"""Of the counts by key: prefixes share them at random, at no one's cost but of those who send wrong ones."""
_NETWORK = 64
"""Bits of an address in IPv6 that one client does not change at will."""


class WrongKeys:
    """`a_minute`: wrong keys that one address, or one prefix, may send on average; `at_once`: before that counts."""

    def __init__(self, throttle: Throttle, a_minute: float, at_once: int) -> None:
        self._throttle, self._rate, self._burst = throttle, a_minute / 60, at_once

    def count(self, address: str | None, text: str) -> None:
        """Another one. ProblemError 429 where there were too many."""
        prefix = int.from_bytes(hashlib.sha256(text[:_PREFIX].encode(errors="replace")).digest()[:8]) % _ROWS
        try:
            for name in (f"wrong:address:{_network(address)}", f"wrong:prefix:{prefix}"):
                self._throttle.take(name, self._rate, self._burst)
        except Denied as denied:
            wait = retry_after(denied.retry_after)
            detail = f"too many wrong keys; the next answer to one in {math.ceil(denied.retry_after)} s"
            raise ProblemError(429, "too_many_wrong_keys", detail, headers=wait) from denied


def _network(address: str | None) -> str:
    try:
        known = ipaddress.ip_address(address or "")
    except ValueError:  # of a socket in the file system, which has no address
        return "none"
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    return str(known.ipv4_mapped or ipaddress.ip_network((known.packed, _NETWORK), strict=False))
