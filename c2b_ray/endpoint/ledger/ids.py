"""Unguessable ids with a prefix for their kind: job_…, key_…, tenant_…, hook_…, delivery_…"""

from __future__ import annotations

import re
import secrets

_BYTES = 12
_ID = re.compile(r"[a-z]{1,16}_[0-9a-f]{24}")


def new_id(kind: str) -> str:
    """Returns a new id: `kind`, an underscore and 96 random bits in hexadecimal."""
    return f"{kind}_{secrets.token_hex(_BYTES)}"


def is_id(text: str) -> bool:
    """Returns whether a text, such as part of a URL, has the form of an id. Databases refuse some other texts (NUL)."""
    return _ID.fullmatch(text) is not None
