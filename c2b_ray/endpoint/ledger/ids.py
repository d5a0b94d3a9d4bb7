"""Unguessable ids, with a prefix that says what they are of: job_…, key_…, tenant_…, hook_…, delivery_…"""

from __future__ import annotations

import re
import secrets

_BYTES = 12
_ID = re.compile(r"[a-z]{1,16}_[0-9a-f]{24}")


def new_id(kind: str) -> str:
    """`kind`, and 96 random bits in hexadecimal."""
    return f"{kind}_{secrets.token_hex(_BYTES)}"


def is_id(text: str) -> bool:
    """Whether a text, such as part of a URL, may be an id at all; a database refuses some texts as such (NUL)."""
    return _ID.fullmatch(text) is not None
