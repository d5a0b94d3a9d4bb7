"""How many images the long rows of a search have taken in this process, batch by batch. Knows no kind of search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ImageCounter:
    """Counts for as long as the process lives: also the images of a search that was stopped, which left no row."""

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
        """While the body runs, `on_batch` is called after each batch; what it raises ends the search."""
        before, self._on_batch = self._on_batch, on_batch
        try:
            yield
        finally:
            self._on_batch = before
