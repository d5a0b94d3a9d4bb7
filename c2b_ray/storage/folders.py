"""Which files of a folder are pictures, by their names, and what is left out: by reason, with a count and an example.

It knows names and opens no file.
"""

from __future__ import annotations

import itertools
import math
import os
import posixpath
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.extras import INSTALL
from c2b_ray.storage import THREADS

_HEIC = (".heic", ".heif", ".hif")
IMAGES = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".jif", ".pjpeg", ".pjp", ".png", ".webp", ".avif", ".gif", ".bmp", ".tif",
    ".tiff", ".ppm", *(_HEIC if find_spec("pillow_heif") else ()),
)  # fmt: skip
"""The endings of pictures that are read, in lower case; HEIC, the format of telephones, with the extra `heic`."""

_OTHER_PICTURES = frozenset(
    [".jxl", ".svg", ".psd", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf",
     ".rw2", ".jp2", ".j2k", ".tga", ".ico", ".exr", ".hdr", ".pgm", ".pbm", ".pnm", ".dib", ".apng", ".eps"]
)  # fmt: skip
_ARCHIVES = frozenset([".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".bz2", ".xz", ".zst"])
UNPACK = "unpack it; for WebDataset shards also write a table with a row for each image: its file and its class"
_LISTED = 3
_MASK = re.compile(
    r"(.+?)[ _.-](mask|seg|segmentation|gt|groundtruth|annotation|superpixel|labelids|labelmap)s?([ _-]?\d{1,3})?", re.I
)
_LOSSLESS = frozenset([".png", ".bmp", ".gif", ".tif", ".tiff"])


@dataclass
class OmittedRows:
    """The files and rows that a source leaves out: reason → count, and an example of each. `notes`: other sentences."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, reason: str, example: str = "", count: int = 1) -> None:
        if count:
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.examples.setdefault(reason, example)

    def add_files(self, names: Iterable[str], used: Iterable[str] = ()) -> None:
        """Adds files that are no pictures, in the order of their names; `used`: those that are read all the same."""
        used_names = set(used)
        for name in sorted(names):
            if name not in used_names:
                self.add(reason_of(name), name)

    def merge(self, other: OmittedRows) -> None:
        for reason, count in other.counts.items():
            self.add(reason, other.examples[reason], count)
        self.notes += other.notes

    def sentences(self) -> Iterator[str]:
        """Yields a sentence for each reason, in the order in which they were met, and the notes."""
        for reason, count in self.counts.items():
            example = f", such as {self.examples[reason]!r}" if self.examples[reason] else ""
            yield f"left out: {count:,} × {reason}{example}"
        yield from self.notes

    def as_dict(self) -> dict[str, int]:
        return dict(self.counts)


def counts_in_words(left_out: Mapping[str, int]) -> str:
    """Returns the reasons and counts in one line."""
    return "; ".join(f"{count:,} × {reason}" for reason, count in left_out.items())


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGES)


def masks_among(names: Collection[str]) -> list[str]:
    """Returns the pictures that are named as what belongs to another picture in their folder, such as `x_mask.png` of
    `x.jpg`, in their order. Masks are in formats that keep each number."""
    stems = {posixpath.splitext(name)[0] for name in names}
    found = []
    for name in names:
        stem, suffix = posixpath.splitext(name)
        folder, slash, base = stem.rpartition("/")
        if suffix.lower() in _LOSSLESS and (match := _MASK.fullmatch(base)) and folder + slash + match[1] in stems:
            found.append(name)
    return found


_SHEETS = frozenset([".xlsx", ".xls", ".ods"])
_ARRAYS = frozenset([".npz", ".npy", ".mat", ".h5", ".hdf5", ".pkl", ".pickle", ".tfrecord", ".tfrecords"])


def what_else(name: str) -> str:
    """Returns what a file is that holds no table of images by its name, and what to do; "" where that is not known."""
    suffix = posixpath.splitext(name)[1].lower()
    if suffix in _ARCHIVES:
        return f"an archive ({UNPACK})"
    if suffix in _SHEETS:
        return "a spreadsheet (save the sheet as .csv)"
    return "arrays (write each picture as a file into a folder of its class)" if suffix in _ARRAYS else ""


def is_hidden(name: str) -> bool:
    """Returns whether any part of the path begins with a dot, or is what macOS adds to archives."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/") if part not in (".", ".."))


def reason_of(name: str) -> str:
    """Returns why a file that is no picture is left out, and what to do."""
    suffix = posixpath.splitext(name)[1].lower()
    if is_hidden(name):
        return "hidden file or folder (its name begins with a dot, or is __MACOSX)"
    if suffix in _HEIC:
        return f"{suffix} picture, which needs a package more (pip install {INSTALL['pillow_heif']})"
    if suffix in _OTHER_PICTURES:
        return f"{suffix} picture, a format that is not read (convert it to JPEG or PNG)"
    if suffix in _ARCHIVES:
        return f"{suffix} archive ({UNPACK})"
    if not suffix:
        return "file without a suffix (if it is a picture, add .jpg or .png to its name)"
    return f"{suffix} file (no picture by its suffix)"


# Reads many files, one after the other where the disk is fast and many at once where it is slow, and waits for none
# without end.


TIMEOUT = "C2B_READ_TIMEOUT"
SECONDS = 60.0
SLOW_S = 0.001
"""Seconds per file from which on files are read at the same time: one that is in memory takes a fiftieth of it."""
IDLE_S = 2.0
"""Seconds without work after which a thread that reads ends: to start one for each batch costs as much as a file."""

T = TypeVar("T")
I = TypeVar("I")  # noqa: E741


def timeout() -> float:
    """Returns the seconds to wait for a disk. Raises ConfigError for a setting that is no positive number."""
    text = os.environ.get(TIMEOUT, str(SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds > 0:
        raise ConfigError(TIMEOUT, f"expected a number of seconds above 0, not {text!r}")
    return seconds


class Readers:
    """Reads files of one folder. Threads may share it.

    `patient`: whether what reads gives up by itself, as clients of object stores do; it is then waited for.
    """

    def __init__(self, patient: bool = False) -> None:
        self._seconds = math.inf if patient else timeout()
        self._threads = THREADS if patient else 1
        self._idle: deque[_Thread] = deque()

    def map(self, read: Callable[[I], T], items: Sequence[I], name: Callable[[I], str]) -> list[T]:
        """Returns what `read` returns for each item, in their order. Raises what it raises.

        Raises SourceError where an item has no answer in time; `name` says where it lies.
        """
        if not items:
            return []
        work = _Work(read, items)
        for _ in range(min(self._threads, len(items))):
            self._thread().works.put(work)
        started = time.monotonic()
        while not work.over.wait(min(self._seconds / 4, 1.0)):
            if (item := work.waiting_for(self._seconds)) is not None:
                raise SourceError(
                    f"{name(item)}: no answer for {self._seconds:g} seconds: the disk or network folder that holds it "
                    "hangs; when it answers again, run the same command again, which resumes "
                    f"({TIMEOUT} sets the seconds)"
                )
        if work.failure is not None:
            raise work.failure
        if not math.isinf(self._seconds):
            slow = (time.monotonic() - started) * min(self._threads, len(items)) / len(items) > SLOW_S
            self._threads = THREADS if slow else 1
        return work.results

    def _thread(self) -> _Thread:
        """Returns a thread that waits for work, started where none does: one that hangs stays away."""
        try:
            return self._idle.pop()
        except IndexError:
            return _Thread(self._idle)


class _Thread:
    """A thread that does one work after the other. It is among the `idle` ones in between; without work it ends."""

    def __init__(self, idle: deque[_Thread]) -> None:
        self.works: SimpleQueue[_Work[Any, Any]] = SimpleQueue()
        self._idle = idle
        threading.Thread(target=self._run, name="read", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                work = self.works.get(timeout=IDLE_S)
            except Empty:
                try:
                    self._idle.remove(self)
                except ValueError:  # somebody has taken it just now
                    continue
                return
            work.run()
            del work  # what it has read may be large
            self._idle.append(self)


class _Work(Generic[I, T]):
    """Items that several threads read. The last thread to end sets `over`."""

    def __init__(self, read: Callable[[I], T], items: Sequence[I]) -> None:
        self._read, self._items = read, items
        self._numbers = itertools.count()
        self._left = len(items)
        self._lock = threading.Lock()
        self._began: dict[int, tuple[float, int]] = {}
        self.results: list[T] = [None] * len(items)  # type: ignore[list-item]
        self.failure: BaseException | None = None
        self.over = threading.Event()

    def run(self) -> None:
        thread = threading.get_ident()
        while self.failure is None and (number := next(self._numbers)) < len(self._items):
            self._began[thread] = time.monotonic(), number
            try:
                self.results[number] = self._read(self._items[number])
            except BaseException as error:
                self.failure = error
                break
            with self._lock:
                self._left -= 1
        self._began.pop(thread, None)
        if self.failure is not None or not self._left:
            self.over.set()

    def waiting_for(self, seconds: float) -> I | None:
        """Returns an item that a thread began to read so many seconds ago or more."""
        now = time.monotonic()
        for started, number in list(self._began.values()):
            if now - started >= seconds:
                return self._items[number]
        return None
