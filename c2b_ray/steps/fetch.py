"""Reads a run's images where they lie, each time they are needed: the run holds their place, size and hash.

It knows tables of images and a source that fetches rows, and not what is done with the bytes. An image that is gone or
was changed since the run first read it is an error of its row.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.roles import Pixels, Remote
from c2b_ray.steps.decode import BATCH_PIXELS
from c2b_ray.steps.draw import FetchedImages, ImageSource, SeenImage, fetched, images_table, looked_at
from c2b_ray.steps.fingerprint import fingerprint
from c2b_ray.steps.prepared import PreparedView, shown
from c2b_ray.tables import IMAGES, has_content

COLUMNS = ["image_id", "key", "row", "size", "bytes", "content", "pixels", "error"]
"""The columns of `tables.IMAGES` that `InPlace` and those who look at pictures need: all but the fingerprint."""

R = TypeVar("R")
Prepare = Callable[[pa.Table], pa.Table]
Load = Callable[[], ImageSource]

_MOST_OPEN = 4
_opened: dict[object, InPlace] = {}
_lock = threading.Lock()
_spent = threading.local()
NO_SOURCE = "the run does not hold its bytes, and their source is not known"


def seconds_of_reading() -> float:
    """Returns the seconds that this thread has spent on reading images, since it began."""
    return float(getattr(_spent, "seconds", 0.0))


class InPlace:
    """Images of one source. `load`: opens it, when the first image is read; None: the run holds all bytes."""

    def __init__(self, load: Load | None) -> None:
        self._load = load
        self._source: ImageSource | None = None
        self._lock = threading.Lock()

    def with_bytes(self, images: pa.Table) -> pa.Table:
        """Returns the images, rows of `tables.IMAGES` with COLUMNS at least, with the `bytes` of each, or an `error`.

        Raises SourceError where the source itself cannot be opened or does not answer.
        """
        images = completed(images)
        has_bytes = pc.or_(pc.is_valid(images["bytes"]), pc.is_valid(images["error"]))
        missing = np.flatnonzero(~has_bytes.to_numpy())
        if not len(missing):
            return images
        unread = images.take(pa.array(missing))
        contents = self._read(unread)
        data, errors = images["bytes"].to_pylist(), images["error"].to_pylist()
        for row, (content, error) in zip(missing.tolist(), contents, strict=True):
            data[row], errors[row] = content, error
        return _with(_with(images, "bytes", pa.array(data, pa.binary())), "error", pa.array(errors, pa.string()))

    def fetched(self, rows: Sequence[int]) -> FetchedImages:
        """Returns the images of these rows of the source, in their order."""
        assert self._load is not None
        with self._lock:  # it may keep what it reads
            if self._source is None:
                self._source = self._load()
            started = time.monotonic()
            try:
                return fetched(self._source, rows)
            finally:
                _spent.seconds = seconds_of_reading() + time.monotonic() - started

    def _read(self, images: pa.Table) -> list[tuple[bytes | None, str | None]]:
        in_source = np.flatnonzero(images["row"].is_valid().to_numpy()).tolist()
        result: list[tuple[bytes | None, str | None]] = [(None, "no bytes")] * images.num_rows
        if not in_source:
            return result
        if self._load is None:
            return [(None, NO_SOURCE)] * images.num_rows
        rows, sizes, contents = (images[name].to_pylist() for name in ("row", "size", "content"))
        images_read = self.fetched([rows[row] for row in in_source])
        for row, data, error in zip(in_source, images_read.data, images_read.errors, strict=True):
            result[row] = _checked(data, error, sizes[row], contents[row])
        return result


def _checked(data: bytes | None, error: str | None, size: int, content: str) -> tuple[bytes | None, str | None]:
    if data is None:
        return None, f"it was there when the run first read it, and is not now: {error or 'no bytes'}"
    if len(data) != size or not has_content(data, content):
        return None, f"its bytes were changed after the run had first read them ({size} bytes then, {len(data)} now)"
    return data, None


def completed(images: pa.Table) -> pa.Table:
    """Returns images of a run with null in columns that its parts lack."""
    for name in COLUMNS:
        if name not in images.column_names:
            images = images.append_column(IMAGES.field(name), pa.nulls(images.num_rows, IMAGES.field(name).type))
    # In one order, so that rows of parts with and without bytes can be joined.
    present = [name for name in IMAGES.names if name in images.column_names]
    return images.select([*present, *(name for name in images.column_names if name not in present)])


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


class ImageReader(Generic[R]):
    """A role, and where the images that it looks at lie."""

    def __init__(self, role: R, images: InPlace) -> None:
        self.role, self.images = role, images


class ReadingRemote(ImageReader[R]):
    """A role that computes elsewhere (`roles.Remote`)."""

    @property
    def calls_at_once(self) -> int:
        assert isinstance(self.role, Remote)
        return self.role.calls_at_once


def with_reading(
    step: Callable[[pa.Table, R], pa.Table], factory: Callable[[], R], load: Load | None, prepare: object = None
) -> tuple[Callable[[pa.Table, Any], pa.Table], Callable[[], Any]]:
    """Returns the step and the factory of the role of a stage whose images are read in the step, where nothing prepares
    them before."""
    return (
        (step, factory) if prepare is not None else (partial(_on_images, step=step), partial(_reading, load, factory))
    )


def reading_before(load: Load | None, prepare: Prepare | None) -> Prepare | None:
    """Returns a preparation of images whose bytes are read before; None where there is none."""
    return None if prepare is None else partial(_prepared, load=load, prepare=prepare)


def _prepared(images: pa.Table, load: Load | None, prepare: Prepare) -> pa.Table:
    return prepare(in_place(load).with_bytes(images))


def _reading(load: Load | None, factory: Callable[[], R]) -> ImageReader[R]:
    role = factory()
    return (ReadingRemote if isinstance(role, Remote) else ImageReader)(role, in_place(load))


def _on_images(images: pa.Table, reading: ImageReader[R], step: Callable[[pa.Table, R], pa.Table]) -> pa.Table:
    return step(reading.images.with_bytes(images), reading.role)


def in_place(load: Load | None) -> InPlace:
    """Returns the images of a source, which a process opens once however often this is called."""
    key = _key(load)
    with _lock:
        if key not in _opened:
            while len(_opened) >= _MOST_OPEN:
                del _opened[next(iter(_opened))]
            _opened[key] = InPlace(load)
        return _opened[key]


def reopen(load: Load) -> None:
    """Makes the next reader in this process open the source anew: a notebook may audit a folder that has grown since
    its last audit, so that its rows have other numbers."""
    with _lock:
        _opened.pop(_key(load), None)


def _key(load: Load | None) -> object:
    try:
        return pickle.dumps(load)
    except (pickle.PicklingError, AttributeError, TypeError):  # of this process alone
        return load


# Looks at images where they lie, once: their hash, size and fingerprint, and what models take of them, all from one
# reading and one decoding.


FILE, DECODED, HEIGHT = "file", "decoded", "height"
"""Columns of a looked-at image: its encoded bytes; or its pixels, uint8 (height, width, 3) as bytes, and its height."""

Others = Literal["none", "decoded", "files"]
"""What models need that take no prepared pictures: nothing, pixels of each picture's own size, or encoded images."""

_CARRIED = BATCH_PIXELS // 2
"""The most pixels of a batch that are handed on decoded; the files of further images are handed on instead."""


def look(rows: pa.Table, load: Load, views: Sequence[PreparedView], keep: bool, others: Others) -> pa.Table:
    """Returns the images of `rows` (`image_id`, `row`, and others, which stay) with a column of pixels for each view.

    An `error` of a row is a reason not to open it. `keep`: whether `bytes` hold the image.
    """
    fetched_images = in_place(load).fetched(rows["row"].to_pylist())
    row_errors = rows["error"].to_pylist() if "error" in rows.column_names else [None] * rows.num_rows
    errors = [row_error or new_error for row_error, new_error in zip(row_errors, fetched_images.errors, strict=True)]
    saw = _Saw(rows.num_rows, carry=others == "decoded")
    columns: dict[str, pa.Array] = {}
    if views or saw.carry:
        columns = shown(fetched_images.data, errors, views, saw)
        seen = [SeenImage(*row_error) for row_error in zip(saw.marks, saw.sizes, errors, strict=True)]
    else:
        seen = [looked_at(data, error) for data, error in zip(fetched_images.data, errors, strict=True)]
    images = images_table(
        rows["image_id"], fetched_images.keys, fetched_images.data, seen, None if keep else rows["row"]
    )
    for name in rows.column_names:
        if name not in images.column_names:
            images = images.append_column(name, rows[name])
    if others != "none":
        files = [
            None if pixels is not None else data for data, pixels in zip(fetched_images.data, saw.pixels, strict=True)
        ]
        columns |= {FILE: pa.array(files, pa.large_binary()), **saw.columns()}
    for name, column in columns.items():
        images = images.append_column(name, column)
    return images


class _Saw:
    """What is seen of each row's picture. `carry`: whether pixels are held, as many as fit."""

    def __init__(self, count: int, carry: bool) -> None:
        self.carry = carry
        self.marks: list[bytes | None] = [None] * count
        self.sizes: list[int | None] = [None] * count
        self.pixels: list[Pixels | None] = [None] * count
        self._left = _CARRIED if carry else 0

    def __call__(self, row: int, pixels: Pixels) -> None:
        size = pixels.shape[0] * pixels.shape[1]
        self.marks[row], self.sizes[row] = fingerprint(pixels), size
        if size <= self._left:
            self.pixels[row], self._left = pixels, self._left - size

    def columns(self) -> Mapping[str, pa.Array]:
        arrays = [array for array in self.pixels if array is not None]
        data = np.concatenate([array.reshape(-1) for array in arrays]) if arrays else np.zeros(0, np.uint8)
        ends = np.cumsum([0, *(0 if array is None else array.size for array in self.pixels)], dtype=np.int64)
        valid = pa.array([array is not None for array in self.pixels], pa.bool_()).buffers()[1]
        buffers = [valid, pa.py_buffer(ends), pa.py_buffer(data)]
        heights = pa.array([None if array is None else array.shape[0] for array in self.pixels], pa.int32())
        return {DECODED: pa.Array.from_buffers(pa.large_binary(), len(self.pixels), buffers), HEIGHT: heights}


def pixels_in(images: pa.Table) -> list[Pixels | None]:
    """Returns the pixels that `look` handed on decoded, uncopied and read-only."""
    pixels: list[Pixels | None] = []
    for data, height in zip(images[DECODED], images[HEIGHT].to_pylist(), strict=True):
        flat = None if height is None else np.frombuffer(data.as_buffer(), np.uint8)
        pixels.append(None if flat is None else flat.reshape(height, -1, 3))
    return pixels
