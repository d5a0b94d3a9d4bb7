"""Opens files that a table or a manifest names: below its folder, regular, and read up to a limit.

Tables may come from strangers. The names in them must not make this machine reveal other files, wait for a pipe, or
read a device without end. This module knows paths, not the contents of files.
"""

from __future__ import annotations

import os
import posixpath
import stat
import unicodedata
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from pyarrow import fs

from c2b_ray.errors import ImageError
from c2b_ray.filesystems.patience import open_input

MAX_BYTES = 64 * 2**20
"""The most bytes of an image file."""


_AT_LEAST = 65_536


class Folder:
    """The files below `folder`, which is resolved once; use one object for a batch of files.

    `follow_links`: whether a link below it may lead out of it.
    """

    def __init__(self, filesystem: fs.FileSystem, folder: str, follow_links: bool = False) -> None:
        self._filesystem, self._follow_links = filesystem, follow_links
        self._local = isinstance(filesystem, fs.LocalFileSystem)
        # Without `..`, which the path of a folder may contain.
        self._base = (os.path.realpath(folder) if self._local else posixpath.normpath(folder)).rstrip("/")

    def open(self, name: str) -> Any:
        """Opens the file `name` of the folder for reading; it is seekable, and the caller closes it.

        Raises ImageError if the name is absolute, leads out of the folder (by `..`, or by a link unless
        `follow_links`), or is no regular file. Raises OSError if the file system refuses.
        """
        base = self._base
        path = posixpath.normpath(f"{base}/{name}")
        if name.startswith("/") or "\0" in name or not path.startswith(f"{base}/"):
            raise ImageError(f"{name}: leads out of the folder; expected the path of a file below it")
        if not self._local:
            return open_input(self._filesystem, path)
        if not self._follow_links and _has_link(base, path) and not os.path.realpath(path).startswith(f"{base}/"):
            raise ImageError(f"{name}: a link that leads out of the folder; expected a file below it")
        descriptor = _opened(base, path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ImageError(f"{name}: not a regular file")
        return os.fdopen(descriptor, "rb", buffering=0)

    def read(self, name: str, most: int) -> bytes:
        """Returns the bytes of a file. Raises ImageError if there are more than `most`."""
        parts, size = [], 0
        with closing(self.open(name)) as file:
            # A buffer of the file's size: one of `most` bytes costs more than reading a small file.
            room = os.fstat(file.fileno()).st_size + 1 if self._local else most + 1
            while part := file.read(min(max(room, _AT_LEAST), most + 1 - size)):
                parts.append(bytes(part))
                size += len(part)
                if size > most:
                    raise ImageError(f"too large: more than {most} bytes")
        return b"".join(parts)


def _opened(base: str, path: str) -> int:
    """Opens the file, also where its name below `base` is written in another of Unicode's forms than on the disk."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # without O_NONBLOCK, opening a pipe would block
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        if (other := _in_other_form(base, path[len(base) + 1 :])) is None:
            raise
        return os.open(other, flags)


def _in_other_form(base: str, name: str) -> str | None:
    """Returns the path below `base` of a file that is called alike in another of Unicode's forms; None without."""
    for form in ("NFC", "NFD") if not name.isascii() else ():
        other = f"{base}/{unicodedata.normalize(form, name)}"
        if other != f"{base}/{name}" and os.path.exists(other) and os.path.realpath(other).startswith(f"{base}/"):
            return other
    return None


def is_local(filesystem: fs.FileSystem) -> bool:
    return isinstance(filesystem, fs.LocalFileSystem)


def in_other_forms(folder: str, names: Iterable[str]) -> list[str]:
    """Returns a sentence about names that are joined to files of another of Unicode's forms, if there are any."""
    base = os.path.realpath(folder)
    unlike = [name for name in names if not name.isascii() and not os.path.exists(f"{base}/{name}")]
    joined = [name for name in unlike if _in_other_form(base, posixpath.normpath(name)) is not None]
    if not joined:
        return []
    count = "1 name is" if len(joined) == 1 else f"{len(joined):,} names are"
    return [f"{count} written in another of Unicode's forms than the file's, such as {joined[0]!r}; they are joined"]


def _has_link(base: str, path: str) -> bool:
    """Returns whether any part of the way from `base` to `path` is a link. Resolving links costs much more."""
    steps = path[len(base) + 1 :].split("/")
    return any(os.path.islink("/".join([base, *steps[: n + 1]])) for n in range(len(steps)))
