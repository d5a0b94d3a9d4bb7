"""An upload in parts: what arrived before a connection broke is kept, and only the rest is sent again.

    <root>/uploads/.incoming/<sha256>/00003      a part of a file that has this hash as a whole

The parts of a file are equally long, but for the last one. They are neither checked nor named by any config: once all
are there, `UploadReceiver` receives the file from them, as it would from a connection. `uploads.sweep` removes parts
of uploads that nobody continued. This module knows files; the caller handles a tenant's quota.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from c2b_ray.endpoint.policy.paths import UPLOADS
from c2b_ray.endpoint.policy.uploads import INCOMING
from c2b_ray.storage import files

PART_BYTES = 16 * 2**20
MOST_UNFINISHED = 16
"""The most files of one tenant of which parts wait for the others."""
_PART = re.compile(r"[0-9]{5}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def add(root: str, sha256: str, number: int, data: bytes) -> None:
    """Stores a part. The same part again replaces it. `root`: the tenant's root, local or s3://."""
    files.write_under(f"{_folder(root, sha256)}/{number:05d}", data)


def there(root: str, sha256: str) -> dict[int, int]:
    """Returns number → bytes of the parts of a file that are stored, in their order."""
    sizes = files.sizes(_folder(root, sha256))
    return {int(name): size for name, size in sizes.items() if _PART.fullmatch(name)}


def read(root: str, sha256: str) -> Iterator[bytes]:
    """Yields the stored parts of a file, in their order."""
    for number in there(root, sha256):
        yield files.read_bytes(f"{_folder(root, sha256)}/{number:05d}")


def remove(root: str, sha256: str) -> None:
    """Removes the parts of a file, if there are any."""
    if files.contents(_folder(root, sha256)):
        files.remove_directory(_folder(root, sha256))


def unfinished(root: str) -> dict[str, int]:
    """Returns SHA-256 → bytes stored, of each file of which there are parts."""
    names = [name for name in files.contents(f"{root.rstrip('/')}/{UPLOADS}/{INCOMING}") if _SHA256.fullmatch(name)]
    return {name: sum(there(root, name).values()) for name in names}


def _folder(root: str, sha256: str) -> str:
    return f"{root.rstrip('/')}/{UPLOADS}/{INCOMING}/{sha256}"
