"""Opens files that a table or a manifest names: below its folder, regular, and read up to a limit.

Tables may come from strangers. The names in them must not make this machine reveal other files, wait for a pipe, or
read a device without end. This module knows paths, not the contents of files.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from pyarrow import fs

from c2b_ray.errors import ImageError
from c2b_ray.storage.s3 import open_input

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
        self._plain: set[str] = set()
        self._base = (os.path.realpath(folder) if self._local else posixpath.normpath(folder)).rstrip("/")

    @property
    def local(self) -> bool:
        return self._local

    def at(self, name: str) -> str:
        """Returns the path of a file, for messages."""
        return f"{self._base}/{name}"

    def open(self, name: str) -> Any:
        """Opens the file `name` of the folder for reading; it is seekable, and the caller closes it.

        Raises ImageError if the name is absolute, leads out of the folder (by `..`, or by a link unless
        `follow_links`), or is no regular file. Raises OSError if the file system refuses.
        """
        path = self._inside(name)
        if not self._local:
            return open_input(self._filesystem, path)
        return os.fdopen(self._descriptor(name, path)[0], "rb", buffering=0)

    def read(self, name: str, most: int) -> bytes:
        """Returns the bytes of a file. Raises ImageError if there are more than `most`, and the errors of `open`."""
        if not self._local:
            with closing(self.open(name)) as file:
                return _whole(file.read, most, most)
        descriptor, size = self._descriptor(name, self._inside(name))
        try:
            # One read of the file's size: a buffer of `most` bytes costs more than reading a small file.
            data = os.read(descriptor, min(size, most) + 1)
            if len(data) == size <= most:
                return data
            return _whole(lambda count: os.read(descriptor, count), most, size, data)
        finally:
            os.close(descriptor)

    def _inside(self, name: str) -> str:
        path = posixpath.normpath(f"{self._base}/{name}")
        if name.startswith("/") or "\0" in name or not path.startswith(f"{self._base}/"):
            raise ImageError(f"{name}: leads out of the folder; expected the path of a file below it")
        return path

    def _descriptor(self, name: str, path: str) -> tuple[int, int]:
        """Opens a local file; returns its descriptor and size."""
        # Without O_NONBLOCK, opening a pipe would block.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        if not self._follow_links:
            flags |= self._no_link(name, path)
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            if (other_path := _in_other_form(self._base, path[len(self._base) + 1 :])) is None:
                raise
            descriptor = os.open(other_path, flags & ~os.O_NOFOLLOW)  # which was seen to lie inside
        except OSError as error:
            if error.errno != errno.ELOOP or not flags & os.O_NOFOLLOW:
                raise
            self._refuse_outside(name, path)
            descriptor = os.open(path, flags & ~os.O_NOFOLLOW)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise ImageError(f"{name}: not a regular file")
        return descriptor, status.st_size

    def _no_link(self, name: str, path: str) -> int:
        """Returns the flag by which a file is opened that is no link; none where a folder on the way to it is one.

        Raises ImageError for such a link that leads out. Folders on the way are looked at once, because resolving links
        costs more than reading a small file.
        """
        parent = path.rpartition("/")[0]
        if parent not in self._plain:
            if any(map(os.path.islink, _steps(self._base, parent))):
                self._refuse_outside(name, path)
                return 0
            self._plain.add(parent)
        return os.O_NOFOLLOW

    def _refuse_outside(self, name: str, path: str) -> None:
        if not os.path.realpath(path).startswith(f"{self._base}/"):
            raise ImageError(f"{name}: a link that leads out of the folder; expected a file below it")


def path_below(root: str, folder: str, name: str) -> str | None:
    """Returns the path of `name` relative to `root`; None where it leads out.

    A relative name is one below `root`; one that leads out of it by `..` is taken from `folder`, where the table lies.
    """
    base = posixpath.normpath(root).rstrip("/") + "/"
    for start in (base, folder):
        path = posixpath.normpath(posixpath.join(start, name))
        if path.startswith(base) and "\0" not in name:
            return path[len(base) :]
    return None


def _whole(read: Callable[[int], Any], limit: int, expected: int, data: bytes = b"") -> bytes:
    """Returns `data` and the rest of a file, of which `read` returns as many bytes as asked for, or fewer."""
    parts, size = [data], len(data)
    while size <= limit and (part := read(min(max(expected + 1, _AT_LEAST), limit + 1 - size))):
        parts.append(bytes(part))
        size += len(part)
    if size > limit:
        raise ImageError(f"too large: more than {limit} bytes")
    return b"".join(parts)


def _steps(base: str, path: str) -> list[str]:
    """Returns the folders on the way from `base` to `path`, with `path`."""
    names = path[len(base) + 1 :].split("/") if path != base else []
    return ["/".join([base, *names[: n + 1]]) for n in range(len(names))]


def _in_other_form(base: str, name: str) -> str | None:
    """Returns the path below `base` of a file that is called alike in another of Unicode's forms; None without."""
    for form in ("NFC", "NFD") if not name.isascii() else ():
        candidate = f"{base}/{unicodedata.normalize(form, name)}"
        if (
            candidate != f"{base}/{name}"
            and os.path.exists(candidate)
            and os.path.realpath(candidate).startswith(f"{base}/")
        ):
            return candidate
    return None


def is_local(filesystem: fs.FileSystem) -> bool:
    return isinstance(filesystem, fs.LocalFileSystem)


def in_other_forms(folder: str, names: Iterable[str]) -> list[str]:
    """Returns a sentence about names that are joined to files of another of Unicode's forms, if there are any."""
    base = os.path.realpath(folder)
    unmatched = [name for name in names if not name.isascii() and not os.path.exists(f"{base}/{name}")]
    matched = [name for name in unmatched if _in_other_form(base, posixpath.normpath(name)) is not None]
    if not matched:
        return []
    count = "1 name is" if len(matched) == 1 else f"{len(matched):,} names are"
    return [f"{count} written in another of Unicode's forms than the file's, such as {matched[0]!r}; they are joined"]


# Says why the files that a table lists are not those that are there: the commonest cause, with an example.


SAMPLE = 2_000
"""The most images whose names are compared with those of the table."""


def same_form(name: str) -> str:
    """Returns the name of a file below a folder in the form in which names are one: accents in one of Unicode's forms,
    slashes, no `./` and no doubled slash."""
    return posixpath.normpath(unicodedata.normalize("NFC", name).replace("\\", "/"))


def path_of(key: str) -> str:
    """Returns a name as a path, whatever its separators, without the scheme of a URI."""
    return posixpath.normpath(key.strip().replace("\\", "/").partition("://")[2] or key.strip().replace("\\", "/"))


def _base(key: str) -> str:
    return posixpath.basename(path_of(key))


def _stem(key: str) -> str:
    return posixpath.splitext(path_of(key))[0].lstrip("/")


CAUSES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("spaces around the name, or a scheme before it", lambda key: path_of(key).lstrip("/")),
    ("upper and lower case", lambda key: path_of(key).lstrip("/").casefold()),
    ("signs that are written as %20 and the like", lambda key: unquote(path_of(key)).lstrip("/")),
    ("the folder", _base),
    ("the ending", _stem),
    ("the folder, and upper and lower case", lambda key: _base(key).casefold()),
    ("the folder and the ending", lambda key: posixpath.basename(_stem(key))),
    ("the folder, the ending, and upper and lower case", lambda key: posixpath.basename(_stem(key)).casefold()),
    ("zeros before a number", lambda key: posixpath.basename(_stem(key)).lstrip("0").casefold()),
)
"""What names may differ in → the form in which they are equal, the smallest difference first."""


@dataclass(frozen=True)
class Cause:
    """`what`: what the names differ in. `listed`, `called`: an example: the table's name, and the image's own."""

    what: str
    listed: str
    called: str

    def __str__(self) -> str:
        return f"the table lists {self.listed!r}, the image is called {self.called!r}: they differ in {self.what}"


def cause_of(files: Iterable[str], keys: Sequence[str]) -> Cause | None:
    """Returns the smallest difference that explains most of the images `keys` that are not among `files`; None where
    no difference in `CAUSES` explains any."""
    sample, names = list(keys)[:SAMPLE], list(files)
    explained: Counter[int] = Counter()
    examples: dict[int, Cause] = {}
    for number, (difference, form) in enumerate(CAUSES):
        of_form = {form(name): name for name in names}
        of_form.pop("", None)
        for key in sample:
            if (file := of_form.get(form(key))) is not None:
                explained[number] += 1
                examples.setdefault(number, Cause(difference, file, key))
    if not explained:
        return None
    best = max(explained.values())
    return examples[min(number for number, count in explained.items() if count >= 0.9 * best)]


# The paths inside a model's spec, such as `onnx:net.onnx?labels=names.txt`: finds them and makes them absolute.


LOCAL_DIR = "local-dir:"
_FILES = ("onnx", "table", "scripted", "faiss")
"""Schemes whose name is the path of a file."""
_URLS = ("http", "https", "openai")
_OPTIONS = ("labels", "weights", "vocabulary", "lora", "debias", "links")
_NAMES_TOO = {"labels", "weights", "links"}
"""Options whose value may be something else than a path: a list of labels, the name of torchvision's weights, none."""


def located(spec: str, base: Path) -> str:
    """Returns the spec with each relative path made absolute, relative to `base`."""
    return with_paths(spec, base, lambda _, path: _absolute(path, base))


def with_paths(spec: str, base: Path, change: Callable[[str, str], str]) -> str:
    """Returns the spec with each path in it replaced by `change(scheme or option, path)`.

    `base`: the folder that tells, of what may be a path or a name, whether it is a file.
    """
    scheme, colon, rest = spec.partition(":")
    if not colon or scheme in _URLS:
        return spec
    name, mark, query = rest.partition("?")
    if _names_file(scheme, name):
        prefix = LOCAL_DIR if name.startswith(LOCAL_DIR) else ""
        name = prefix + change(scheme, name.removeprefix(prefix))
    options = [_option(option, base, change) for option in query.split("&")] if mark else []
    return f"{scheme}:{name}{mark}{'&'.join(options)}"


def paths(spec: str) -> Iterator[tuple[str, str]]:
    """Yields (scheme or option, path) of each path in a spec that `located` returned."""
    scheme, _, location = spec.partition(":")
    if scheme in _URLS:
        return
    name, _, query = location.partition("?")
    if _names_file(scheme, name):
        yield scheme, name.removeprefix(LOCAL_DIR)
    for option in query.split("&"):
        key, _, value = option.partition("=")
        if key in _OPTIONS and value.startswith("/"):
            yield key, unquote(value)


def without_paths(spec: str) -> str:
    """Returns a spec from `located` without its paths: equal wherever its files lie and whatever their names are."""
    scheme, colon, location = spec.partition(":")
    if not colon or scheme in _URLS:
        return spec
    name, separator, query = location.partition("?")
    if _names_file(scheme, name) or name.startswith("/"):
        name = LOCAL_DIR if name.startswith(LOCAL_DIR) else ""
    options = [_option_without_path(option) for option in query.split("&")] if separator else []
    return f"{scheme}:{name}{separator}{'&'.join(options)}"


def _option_without_path(option: str) -> str:
    key, equals, value = option.partition("=")
    is_path = key in _OPTIONS and unquote(value).startswith("/")
    return f"{key}{equals}" if is_path else option


def _names_file(scheme: str, name: str) -> bool:
    return scheme in _FILES or name.startswith((LOCAL_DIR, "./", "../"))


def _option(option: str, base: Path, change: Callable[[str, str], str]) -> str:
    key, equals, value = option.partition("=")
    path = unquote(value)
    if key not in _OPTIONS or not path:
        return option
    if key in _NAMES_TOO and not Path(path).suffix and not (base / path).is_file():
        return option
    if key == "labels" and "," in path and not (base / path).is_file():
        return option
    return f"{key}{equals}{quote(change(key, path), safe='/:')}"


def _absolute(path: str, base: Path) -> str:
    if "://" in path or Path(path).is_absolute():
        return path
    return str((base / Path(path).expanduser()).resolve())
