"""Counts the images that the long rows of a search use in this process, batch by batch. It knows no kind of search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ImageCounter:
    """Counts over the life of the process, including images of a search that was stopped and left no row."""

    def __init__(self) -> None:
        self._total = 0
        self._on_batch: Callable[[], None] | None = None

    def total(self) -> int:
        return self._total

    def add(self, images: int) -> None:
        self._total += images
        if self._on_batch is not None:
            self._on_batch()

    @contextmanager
    def calling(self, on_batch: Callable[[], None]) -> Iterator[None]:
        """Calls `on_batch` after each batch while the body runs; what it raises ends the search."""
        before, self._on_batch = self._on_batch, on_batch
        try:
            yield
        finally:
            self._on_batch = before
