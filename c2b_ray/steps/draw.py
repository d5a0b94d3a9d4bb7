"""Draws images for captions: which image belongs to which caption, ids of images, and the images of a generator.

The nearest images of an index are found by `steps.retrieve`; `audits.c2b.hypotheses.labelled` draws rows of a labelled
table. The bytes are fetched later, in batches, where they are needed. It does not know where generator, index and table
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.errors import ImageError, ServiceError
from c2b_ray.image_check import checked_image
from c2b_ray.roles import GeneratedImage, GenerationRequest, ImageGenerator, Pixels
from c2b_ray.steps.decode import decode_reduced
from c2b_ray.steps.fingerprint import FINE_ENOUGH, fingerprint
from c2b_ray.tables import DRAWS, IMAGES, content_id, content_of, seed_of
from c2b_ray.tables.rows import ids_between

# Asks a generator for images: one each, or the reason why there is none; and encodes them as PNG.


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


RETRIEVE, GENERATE, LABELLED = "retrieve", "generate", "labelled"
IDS_AT_ONCE = 16_384
TO_GENERATE = pa.schema([("image_id", pa.string()), ("prompt", pa.string()), ("seed", pa.int64())])
RowNumbers = NDArray[np.signedinteger[Any]]


class ImageSource(Protocol):
    """A source of images' bytes by row: an index, or a labelled table."""

    @property
    def revision(self) -> str: ...

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Returns columns `key`, `bytes` and, where bytes can be missing, `error`; a row per id, in their order."""
        ...


@runtime_checkable
class DirectSource(Protocol):
    """A source that also returns bytes as they are, not in a table."""

    def read(self, ids: Sequence[int]) -> tuple[pa.Array, list[bytes | None], list[str | None]]:
        """Returns the columns of `fetch`."""
        ...


def image_id(revision: str, row: int) -> str:
    return content_id("image", revision, row)


def draws_of(
    caption_ids: pa.Array, rows: RowNumbers, revision: str, ranks: RowNumbers, similarity: pa.Array, source: str
) -> pa.Table:
    distinct, positions = np.unique(rows, return_inverse=True)
    columns = [
        caption_ids,
        image_ids(distinct, revision).take(pa.array(positions.reshape(-1))),
        pa.array(ranks, pa.int32()),
        similarity,
        pa.repeat(source, len(rows)),
    ]
    return pa.Table.from_arrays(columns, schema=DRAWS)


def wanted(rows: RowNumbers, revision: str) -> pa.Table:
    """Returns `image_id` and `row` of each image once, in the order of the rows: the rows for `fetch`."""
    unique = np.unique(rows)
    return pa.table({"image_id": image_ids(unique, revision), "row": pa.array(unique, pa.int64())})


def image_ids(rows: RowNumbers, revision: str) -> pa.Array:
    """Returns the ids of many rows. They are made a few at a time: as Python strings they take four times the
    memory."""
    parts = [
        pa.array(ids_between(("image", revision), rows[start : start + IDS_AT_ONCE].tolist()), pa.string())
        for start in range(0, len(rows), IDS_AT_ONCE)
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.string())


def generated(captions: pa.Table, revision: str, n: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """Plans n images of each caption: returns a table of `tables.DRAWS`, and one of what to generate, of
    `TO_GENERATE`.

    An image's seed follows from its caption, its number and `seed` only; its id from those and the generator's
    revision. A larger n gives the same first n images.
    """
    draws, to_generate = [DRAWS.empty_table()], [TO_GENERATE.empty_table()]
    block_rows = max(1, IDS_AT_ONCE // max(1, n))
    for start in range(0, captions.num_rows, block_rows):  # as Python's, the ids of a million images take 200 MB
        block = captions.slice(start, block_rows).select(["caption_id", "text"]).combine_chunks()
        owners, numbers = np.repeat(np.arange(block.num_rows), n), np.tile(np.arange(n), block.num_rows)
        names, texts = (block[name].take(pa.array(owners)) for name in block.column_names)
        seeds = [
            seed_of("generate", name, number, seed)
            for name, number in zip(names.to_pylist(), numbers.tolist(), strict=True)
        ]
        texts_and_seeds = zip(texts.to_pylist(), seeds, strict=True)
        ids = pa.array(
            [content_id("generated", revision, text, image_seed) for text, image_seed in texts_and_seeds], pa.string()
        )
        count, ranks = len(ids), pa.array(numbers, pa.int32())
        columns = [names, ids, ranks, no_numbers(count), pa.repeat(GENERATE, count)]
        draws.append(pa.Table.from_arrays(columns, schema=DRAWS))
        to_generate.append(pa.Table.from_arrays([ids, texts, pa.array(seeds, pa.int64())], schema=TO_GENERATE))
    return pa.concat_tables(draws), pa.concat_tables(to_generate)


def generate(batch: pa.Table, generator: ImageGenerator) -> pa.Table:
    """Generates the images of a batch of `generated`'s second table, as PNG: a table of `tables.IMAGES`.

    An unusable image is an error of its row. Raises ServiceError where the number of images differs from the number of
    requests.
    """
    prompts, seeds = batch["prompt"].to_pylist(), batch["seed"].to_pylist()
    requests = [GenerationRequest(prompt, seed) for prompt, seed in zip(prompts, seeds, strict=True)]
    results = images_of(generator, requests)
    keys = pa.array([f"{request.prompt} (seed {request.seed})" for request in requests], pa.string())
    encoded = [None if image.pixels is None else png(image.pixels) for image in results]
    seen_images = [
        SeenImage(None, None, image.error)
        if image.pixels is None
        else SeenImage(fingerprint(image.pixels), image.pixels.shape[0] * image.pixels.shape[1], None)
        for image in results
    ]
    return images_table(batch["image_id"], keys, encoded, seen_images)


class SeenImage(NamedTuple):
    """What was seen of an image: its fingerprint and its number of pixels, or why it is no picture."""

    fingerprint: bytes | None
    pixels: int | None
    error: str | None


def images_table(
    ids: pa.ChunkedArray,
    keys: pa.Array | pa.ChunkedArray,
    encoded: Sequence[bytes | None],
    seen: Sequence[SeenImage],
    rows: pa.ChunkedArray | None = None,
) -> pa.Table:
    """Returns a table of `tables.IMAGES`. `rows`: of the images in their source, where their bytes stay there.

    Bytes that are no picture are dropped: a run holds no other files.
    """
    is_picture = [image.fingerprint is not None for image in seen]
    stored = [data if is_valid and rows is None else None for data, is_valid in zip(encoded, is_picture, strict=True)]
    columns = {
        "image_id": ids,
        "key": keys,
        "row": pa.nulls(len(seen), pa.int64()) if rows is None else pc.if_else(is_picture, rows, None),
        "size": pa.array([None if data is None else len(data) for data in encoded], pa.int64()),
        "bytes": pa.array(stored, pa.binary()),
        "content": pa.array([None if data is None else content_of(data) for data in encoded], pa.string()),
        "pixels": pa.array([image.pixels for image in seen], pa.int32()),
        "fingerprint": pa.array([image.fingerprint for image in seen], pa.binary()),
        "error": pa.array([image.error for image in seen], pa.string()),
    }
    return pa.table(columns).cast(IMAGES)


def fetch(batch: pa.Table, source: ImageSource, keep: bool = True) -> pa.Table:
    """Fetches the images of a batch of `wanted` rows: a table of `tables.IMAGES`.

    `keep`: whether it holds their bytes; otherwise it holds their rows, by which `in_place` reads them again.
    """
    fetched_images = fetched(source, batch["row"].to_pylist())
    seen_images = [
        looked_at(data, error) for data, error in zip(fetched_images.data, fetched_images.errors, strict=True)
    ]
    return images_table(
        batch["image_id"], fetched_images.keys, fetched_images.data, seen_images, None if keep else batch["row"]
    )


class FetchedImages(NamedTuple):
    """Images of a source: the name of each, and its bytes or why there are none."""

    keys: pa.Array | pa.ChunkedArray
    data: list[bytes | None]
    errors: list[str | None]


def fetched(source: ImageSource, rows: Sequence[int]) -> FetchedImages:
    """Returns the images of these rows, in their order; without copying their bytes, where the source can do that."""
    if isinstance(source, DirectSource):
        return FetchedImages(*source.read(rows))
    images = source.fetch(rows)
    data = images["bytes"].to_pylist()
    errors = images["error"].to_pylist() if "error" in images.column_names else [None] * len(data)
    return FetchedImages(images["key"], data, errors)


def looked_at(data: bytes | None, error: str | None) -> SeenImage:
    """Returns what is seen of an image, which is decoded as small as that allows. `error`: why it is not opened."""
    if error is not None:
        return SeenImage(None, None, error)
    try:
        if data is None:
            raise ImageError("no bytes")
        pixels, size = decode_reduced(data, FINE_ENOUGH)
        return SeenImage(fingerprint(pixels, size), size[0] * size[1], None)
    except ImageError as reason:
        return SeenImage(None, None, str(reason))


def no_numbers(n: int) -> pa.Array:
    return pa.nulls(n, pa.float32())


# Numbers image ids: the text of an id is compared once, and everything after that uses whole numbers.


Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class ImageIds:
    """Distinct image ids. The number of an image is the position of its id."""

    def __init__(self, ids: pa.Array) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def numbered(cls, column: pa.ChunkedArray) -> tuple[ImageIds, Ints]:
        """Returns the ids of a column, and the number of each row's image."""
        names, numbers = numbered(column)
        return cls(names), numbers

    def numbers(self, column: pa.ChunkedArray | pa.Array) -> Ints:
        """Returns the number of each row's image; -1 for an id that is not among these."""
        return codes(column, self.ids)

    def names(self, numbers: Ints) -> pa.Array:
        return self.ids.take(pa.array(numbers))

    def alphabetical(self, numbers: Ints) -> Ints:
        """Returns the positions that sort these images by their ids."""
        order: Ints = pc.sort_indices(self.names(numbers)).to_numpy().astype(np.int64)
        return order


def wide(column: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """Returns the column with 64-bit offsets: the text of all rows may exceed 2 GiB, which 32 bits cannot address."""
    return (column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])).cast(pa.large_string())


def numbered(column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Ints]:
    """Returns the distinct texts of a column without nulls, and the position of each row's text among them."""
    encoded = wide(column).dictionary_encode().unify_dictionaries()
    if not encoded.num_chunks:
        return pa.array([], pa.large_string()), np.zeros(0, np.int64)
    return encoded.chunk(0).dictionary, np.concatenate([chunk.indices.to_numpy() for chunk in encoded.chunks])


def codes(column: pa.ChunkedArray | pa.Array, names: pa.Array) -> Ints:
    """Returns the position of each row's text among `names`; -1 where it is null, or not one of them."""
    positions: Ints = pc.fill_null(pc.index_in(wide(column), value_set=names), -1).to_numpy()
    return positions


def vocabulary(*columns: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns the distinct texts of several columns, in the order of their first rows, without nulls."""
    texts = pa.chunked_array([wide(column).unique() for column in columns], pa.large_string())
    return texts.unique().drop_null()


def repeated(keys: Ints) -> Mask:
    """Returns which of these numbers occur more than once."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    equals_next = ordered[1:] == ordered[:-1]
    is_repeated = np.zeros(len(keys), bool)
    is_repeated[order[1:][equals_next]] = True
    is_repeated[order[:-1][equals_next]] = True
    return is_repeated


def counted(keys: Ints) -> tuple[Ints, Ints]:
    """Returns the distinct numbers in ascending order, and how often each occurs."""
    ordered = np.sort(keys)
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)])
    return ordered[starts], np.diff(np.r_[starts, len(ordered)])


def distinct_count(keys: Ints) -> int:
    return len(counted(keys)[0])
