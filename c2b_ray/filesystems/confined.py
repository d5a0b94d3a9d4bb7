"""Files that a table or a manifest names: below its folder, regular, and read up to a bound.

A table comes from somebody; what it names must not make this machine hand out other files, wait for a pipe, or read a
device without end. It knows paths, and not what is in the files.
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import closing
from typing import Any

from pyarrow import fs

from c2b_ray.errors import ImageError

MAX_BYTES = 64 * 2**20
"""As large as a file may be that is taken for an image."""


def open_below(filesystem: fs.FileSystem, folder: str, name: str, follow_links: bool = False) -> Any:
    """The file `name` of a folder, opened for reading from any place in it; its caller closes it.

    ImageError where the name is absolute or leads out of the folder (by `..`, or by a link unless `follow_links`), or
    where it is no regular file. OSError where the file system refuses.
    """
    local = isinstance(filesystem, fs.LocalFileSystem)
    # As it is, without `..`: a folder that is named relative to another may have them.
    base = (os.path.realpath(folder) if local else posixpath.normpath(folder)).rstrip("/")
    path = posixpath.normpath(f"{base}/{name}")
    if name.startswith("/") or "\0" in name or not path.startswith(f"{base}/"):
        raise ImageError(f"{name}: leads out of the folder; expected the path of a file below it")
    if not local:
        return filesystem.open_input_file(path)
    if not follow_links and _has_link(base, path) and not os.path.realpath(path).startswith(f"{base}/"):
        raise ImageError(f"{name}: a link that leads out of the folder; expected a file below it")
    # Without O_NONBLOCK a pipe would be waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ImageError(f"{name}: not a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def _has_link(base: str, path: str) -> bool:
    """Whether anything on the way from `base` to `path` is a link; where links lead to costs much more to find out."""
    steps = path[len(base) + 1 :].split("/")
    return any(os.path.islink("/".join([base, *steps[: n + 1]])) for n in range(len(steps)))


def read_below(filesystem: fs.FileSystem, folder: str, name: str, most: int, follow_links: bool = False) -> bytes:
    """The bytes of such a file; ImageError where there are more than `most`."""
    parts, size = [], 0
    with closing(open_below(filesystem, folder, name, follow_links)) as file:
        while part := file.read(most + 1 - size):
            parts.append(bytes(part))
            size += len(part)
            if size > most:
                raise ImageError(f"too large: more than {most} bytes")
    return b"".join(parts)
