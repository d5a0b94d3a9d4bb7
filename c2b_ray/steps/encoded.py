"""Models' answers about encoded images, which are decoded here, or by a model that runs elsewhere and decodes them
itself.

Both decode with `steps.decode`, so that the answers are the same. An image that cannot be decoded has an error instead
of an answer. It knows roles and files' bytes, and nothing of what is done with the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from c2b_ray.errors import ServiceError
from c2b_ray.roles import (
    Answer,
    Blocks,
    Captioner,
    Classifier,
    FileCaptioner,
    FileClassifier,
    FileEncoder,
    Floats,
    Pixels,
    Question,
    Shape,
    ShapedClassifier,
    ShapedEncoder,
    TextImageEncoder,
)
from c2b_ray.steps.decode import decode_batch, decoded
from c2b_ray.steps.fetch import FILE, pixels_in
from c2b_ray.steps.prepared import blocks_of, column_of

Files = Sequence[bytes | None]
Errors = Sequence[str | None]


def files_of(rows: pa.Table) -> list[bytes | None]:
    """Returns the `bytes` of each row; None where it has an `error`."""
    pairs = zip(rows["bytes"].to_pylist(), rows["error"].to_pylist(), strict=True)
    return [None if error else data for data, error in pairs]


class DecodedOnce:
    """The pictures of rows for several models: prepared ones (`steps.prepared`) where a model takes these, otherwise
    files, which are decoded once for all models that run here."""

    def __init__(
        self,
        files: Files,
        blocks: Mapping[str, Blocks] | None = None,
        errors: Errors = (),
        pixels: Sequence[Pixels | None] = (),
    ) -> None:
        """`pixels`: of files that are decoded already."""
        self._files, self._blocks, self._errors, self._pixels = files, blocks or {}, errors, pixels

    @staticmethod
    def of(rows: pa.Table) -> DecodedOnce:
        """Returns the pictures of rows that were prepared (`steps.prepared`), looked at (`steps.fetch`), or neither."""
        errors = rows["error"].to_pylist()
        if FILE in rows.column_names:
            return DecodedOnce(rows[FILE].to_pylist(), blocks_of(rows), errors, pixels_in(rows))
        files = files_of(rows) if "bytes" in rows.column_names else []
        return DecodedOnce(files, blocks_of(rows), errors)

    @cached_property
    def _decoded(self) -> tuple[list[Pixels | None], list[str | None]]:
        if not self._pixels:
            return decode_batch(self._files)
        results = [
            (pixels, None) if pixels is not None else (None, error) if error is not None else decoded(data)
            for pixels, error, data in zip(self._pixels, self._errors, self._files, strict=True)
        ]
        return [pixels for pixels, _ in results], [error for _, error in results]

    def logits(
        self, rows: Sequence[int], keys: Sequence[str], classifier: Classifier
    ) -> tuple[Floats, list[str | None]]:
        """Returns logits, float32 (rows, labels), of some of the files, and why one cannot be decoded; its row is then
        NaN."""
        if isinstance(classifier, ShapedClassifier) and (shape := self._shape(classifier.shape)) is not None:
            width = len(classifier.labels)
            return self._of_blocks(rows, shape, width, classifier.logits_of_shaped), [self._errors[row] for row in rows]
        if isinstance(classifier, FileClassifier):
            return classifier.logits_of_files([self._files[row] for row in rows], keys)
        pixels, errors = self._decoded
        result = _of_pixels(
            [pixels[row] for row in rows],
            len(classifier.labels),
            lambda images, indices: classifier.logits(images, [keys[i] for i in indices]),
        )
        return result, [errors[row] for row in rows]

    def embeddings(self, encoder: TextImageEncoder) -> tuple[Floats, list[str | None]]:
        """Returns `embeddings` of all rows."""
        if isinstance(encoder, ShapedEncoder) and (shape := self._shape(encoder.shape)) is not None:
            rows = range(len(self._errors))
            return self._of_blocks(rows, shape, encoder.dimension, encoder.embeddings_of_shaped), list(self._errors)
        return embeddings(self._files, encoder)

    def _shape(self, shape: Shape | None) -> Shape | None:
        """Returns the shape where the rows have pictures that are prepared by it."""
        return shape if shape is not None and column_of(shape) in self._blocks else None

    def _of_blocks(self, rows: Sequence[int], shape: Shape, width: int, call: Callable[[Blocks], Floats]) -> Floats:
        assert shape.frame is not None
        block = self._blocks[column_of(shape)].reshape(-1, *shape.frame, 3)
        valid_rows = [i for i, row in enumerate(rows) if self._errors[row] is None]
        if len(valid_rows) == len(block):
            return call(block)
        result = np.full((len(rows), width), np.nan, np.float32)
        if valid_rows:
            result[valid_rows] = call(block[[rows[i] for i in valid_rows]])
        return result


def embeddings(files: Files, encoder: TextImageEncoder) -> tuple[Floats, list[str | None]]:
    """Returns unit-norm embeddings, float32 (files, dimension), and why a file cannot be decoded; its row is
    then NaN."""
    if isinstance(encoder, FileEncoder):
        return encoder.embeddings_of_files(files)
    return _of_decoded(files, encoder.dimension, lambda pixels, _: encoder.encode_images(pixels))


def embedded(rows: pa.Table, encoder: TextImageEncoder) -> tuple[list[list[float] | None], list[str | None]]:
    """Returns the embedding of each row's `bytes`, and its error, known or new: exactly one of the two is None."""
    vectors, decoding_errors = DecodedOnce.of(rows).embeddings(encoder)
    errors = [old_error or new for old_error, new in zip(rows["error"].to_pylist(), decoding_errors, strict=True)]
    return [vector.tolist() if error is None else None for vector, error in zip(vectors, errors, strict=True)], errors


def answers(
    files: Files, questions: Sequence[Sequence[Question]], captioner: Captioner
) -> tuple[list[list[Answer]], list[str | None]]:
    """Returns the answers to each file's questions, and why a file cannot be decoded; it then has no answers.

    Raises ServiceError where the captioner gives another number of answers than questions.
    """
    if isinstance(captioner, FileCaptioner):
        return captioner.answers_about_files(files, questions)
    pixels, errors = decode_batch(files)
    pairs = [(i, question) for i, image in enumerate(pixels) if image is not None for question in questions[i]]
    images: list[Pixels] = [image for i, _ in pairs if (image := pixels[i]) is not None]
    replies = captioner.answer(images, [question for _, question in pairs]) if pairs else []
    if len(replies) != len(pairs):
        raise ServiceError(
            f"the captioner answered {len(pairs)} questions with {len(replies)} answers; one each is due"
        )
    by_file: list[list[Answer]] = [[] for _ in files]
    for (i, _), reply in zip(pairs, replies, strict=True):
        by_file[i].append(reply)
    return by_file, errors


def _of_decoded(
    files: Files, width: int, call: Callable[[list[Pixels], list[int]], Floats]
) -> tuple[Floats, list[str | None]]:
    pixels, errors = decode_batch(files)
    return _of_pixels(pixels, width, call), errors


def _of_pixels(
    pixels: Sequence[Pixels | None], width: int, call: Callable[[list[Pixels], list[int]], Floats]
) -> Floats:
    valid_rows = [i for i, image in enumerate(pixels) if image is not None]
    result = np.full((len(pixels), width), np.nan, np.float32)
    if valid_rows:
        result[valid_rows] = call([image for image in pixels if image is not None], valid_rows)
    return result
