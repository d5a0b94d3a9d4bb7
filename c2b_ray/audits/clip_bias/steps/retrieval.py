"""Computes from embeddings which captions each image retrieves, and how images rank for a description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.roles import TextImageEncoder
from c2b_ray.stats import Floats, Ints
from c2b_ray.steps import encoded
from c2b_ray.tables.clip_bias import CLIP_EMBEDDINGS

Vectors = NDArray[np.float32]
IMAGES_AT_ONCE = 1024


@dataclass(frozen=True)
class Gallery:
    """The texts that captions are retrieved from, each once. `of_image`: the numbers of each image's captions.

    Images that share a caption share its text: retrieving it is right for all of them, whereas a gallery with repeats
    would count all but one of them as wrong.
    """

    texts: tuple[str, ...]
    of_image: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(captions: Sequence[Sequence[str]]) -> Gallery:
        numbers = {
            text: number
            for number, text in enumerate(
                dict.fromkeys(caption for image_captions in captions for caption in image_captions)
            )
        }
        return Gallery(
            tuple(numbers),
            tuple(tuple(sorted({numbers[caption] for caption in image_captions})) for image_captions in captions),
        )


def recalled(images: Vectors, texts: Vectors, gallery: Gallery, k: int, hit: str) -> tuple[Floats, Floats]:
    """Returns for each image the share of its captions among the k nearest texts (`share`), or whether any is (`any`),
    and a count of 1; 0 and 0 for an image without a caption.

    Among equally near texts, earlier ones in the gallery rank first. Shapes (images,) each.
    """
    totals, counts = np.zeros(len(images)), np.zeros(len(images))
    for start in range(0, len(images), IMAGES_AT_ONCE):
        cosines = images[start : start + IMAGES_AT_ONCE].astype(np.float64) @ texts.T.astype(np.float64)
        retrieved = _nearest(cosines, k)
        for row in range(len(cosines)):
            captions_of_image = gallery.of_image[start + row]
            if not captions_of_image:
                continue
            hits = int(retrieved[row, list(captions_of_image)].sum())
            totals[start + row] = hits / len(captions_of_image) if hit == "share" else float(hits > 0)
            counts[start + row] = 1.0
    return totals, counts


def _nearest(cosines: Floats, k: int) -> NDArray[np.bool_]:
    """Returns which texts are the k nearest of each row, ties in their order."""
    if k >= cosines.shape[1]:
        return np.ones(cosines.shape, bool)
    limit = -np.partition(-cosines, k - 1, axis=1)[:, k - 1 : k]
    above, level = cosines > limit, cosines == limit
    places_left = k - above.sum(axis=1, keepdims=True)
    result: NDArray[np.bool_] = above | (level & (np.cumsum(level, axis=1) <= places_left))
    return result


def alike_of(images: Vectors) -> Ints:
    """Returns for each image the number of the first one with the same embedding to five decimals: the position in a
    batch may change the last digits."""
    first: dict[bytes, int] = {}
    rounded = np.round(images, 5) + 0.0  # so that -0 is 0
    return np.array([first.setdefault(row.tobytes(), number) for number, row in enumerate(rounded)], np.int64)


def copies_of(copies_by_model: Ints) -> Ints:
    """Returns for each image the number of the first one that is the same picture to every model. `copies_by_model`:
    (models, images).

    Where fewer than half of the images differ, the models cannot distinguish them, and nothing counts as a copy.
    """
    _, first, picture = np.unique(copies_by_model, axis=1, return_index=True, return_inverse=True)
    if 2 * len(first) < copies_by_model.shape[1]:
        return np.arange(copies_by_model.shape[1])
    of_image: Ints = first[picture.ravel()]
    return of_image


def similarities(images: Vectors, texts: Vectors) -> Vectors:
    """Returns cosines, float32 (texts, images)."""
    result: Vectors = texts @ images.T
    return result


# Computes embeddings of images and texts, with permanent ids. It knows neither where the encoder runs nor what is
# embedded.


def embed_images(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `CLIP_EMBEDDINGS` from `embedding_id`, `bytes` and `error`; images that cannot be decoded get
    an error."""
    return _table(rows, *encoded.embedded(rows, encoder))


def embed_texts(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table like that of `embed_images`, from `embedding_id` and `text`."""
    vectors = encoder.encode_texts(rows["text"].to_pylist())
    return _table(rows, [vector.tolist() for vector in vectors], [None] * rows.num_rows)


def _table(rows: pa.Table, vectors: list[list[float] | None], errors: list[str | None]) -> pa.Table:
    columns = {
        "embedding_id": rows["embedding_id"],
        "embedding": pa.array(vectors, CLIP_EMBEDDINGS.field("embedding").type),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).cast(CLIP_EMBEDDINGS)
