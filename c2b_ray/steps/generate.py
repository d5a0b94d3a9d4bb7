"""Asks a generator for images: one each, or the reason why there is none; and encodes them as PNG.

It does not know why an image is wanted, nor what is done with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO

from PIL import Image

from c2b_ray.errors import ServiceError
from c2b_ray.image_check import checked_image
from c2b_ray.roles import GeneratedImage, GenerationRequest, ImageGenerator, Pixels

LEVEL = 6
"""zlib's level. Another level gives other bytes, and so another identity of the same picture."""


def images_of(
    generator: ImageGenerator, requests: Sequence[GenerationRequest], name: str = "the generator"
) -> list[GeneratedImage]:
    """Returns an image for each request; an unusable one is an error of its row.

    Raises ServiceError where the number of images differs from the number of requests.
    """
    images = generator.generate(requests)
    if len(images) != len(requests):
        raise ServiceError(f"{name} answered {len(requests)} prompts with {len(images)} images; one each is due")
    return [_checked(image) for image in images]


def _checked(image: GeneratedImage) -> GeneratedImage:
    if image.error is not None:
        return GeneratedImage(None, image.error)
    if image.pixels is None:
        return GeneratedImage(None, "the generator gave neither an image nor a reason")
    return checked_image(image.pixels, None)


def png(pixels: Pixels, level: int = LEVEL) -> bytes:
    data = BytesIO()
    Image.fromarray(pixels).save(data, "PNG", compress_level=level)
    return data.getvalue()


# Counts the images that the long rows of a search use in this process, batch by batch. It knows no kind of search.


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
        previous, self._on_batch = self._on_batch, on_batch
        try:
            yield
        finally:
            self._on_batch = previous
