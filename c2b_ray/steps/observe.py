"""What a model says of each labelled image: the values of attributes, a caption, an embedding.

Rows have `observation_id`, `image_id`, `row` and `target_class`; `with_files` adds the files. An image that cannot be
read, or of which the model says nothing, is an error of its row. It knows roles and files, not what is done with the
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.roles import Captioner, Question, TextImageEncoder
from c2b_ray.steps import encoded
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.fetch import Load, in_place
from c2b_ray.tables import IMAGE_CAPTIONS, IMAGE_VECTORS, READINGS, content_of

AT_ONCE = 32
"""Images that are decoded at once: photographs of 12 megapixels take 36 MB each."""

Questions = Mapping[str, Mapping[str, Question]]
"""Class → attribute → the question for its value."""


def with_files(rows: pa.Table, load: Load) -> pa.Table:
    """Returns the rows with `key`, `content`, `bytes` and `error` of each image, read where it lies."""
    fetched_images = in_place(load).fetched(rows["row"].to_pylist())
    contents = [None if data is None else content_of(data) for data in fetched_images.data]
    columns = {
        "key": fetched_images.keys,
        "content": pa.array(contents, pa.string()),
        "bytes": pa.array(fetched_images.data, pa.binary()),
        "error": pa.array(fetched_images.errors, pa.string()),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def read(rows: pa.Table, captioner: Captioner, questions: Questions) -> pa.Table:
    """Returns a table of `tables.READINGS`: the answers to the questions about each image's class."""

    def observed(batch: pa.Table) -> Iterator[dict[str, Any]]:
        questions_of_row = [questions.get(name, {}) for name in batch["target_class"].to_pylist()]
        of_image = [list(questions_of_class.values()) for questions_of_class in questions_of_row]
        answers, errors = encoded.answers(encoded.files_of(batch), of_image, captioner)
        for questions_of_class, replies, error in zip(questions_of_row, answers, errors, strict=True):
            valid_replies = replies if error is None else []
            certainties = [
                max(reply.probabilities) if reply.choice and reply.probabilities else None for reply in valid_replies
            ]
            yield {
                "attributes": list(questions_of_class) if valid_replies else [],
                "values": [reply.choice for reply in valid_replies],
                "certainties": certainties,
                "error": error,
            }

    return _observed(rows, observed, captioner.revision, READINGS)


def describe(rows: pa.Table, captioner: Captioner) -> pa.Table:
    """Returns a table of `tables.IMAGE_CAPTIONS`: a caption of each image that mentions its class."""

    def observed(batch: pa.Table) -> Iterator[dict[str, Any]]:
        pictures, errors = decode_batch(encoded.files_of(batch))
        to_caption = [
            (image, name)
            for image, name in zip(pictures, batch["target_class"].to_pylist(), strict=True)
            if image is not None
        ]
        replies = iter(
            captioner.caption([image for image, _ in to_caption], [name for _, name in to_caption])
            if to_caption
            else []
        )
        for picture, error in zip(pictures, errors, strict=True):
            reply = None if picture is None else next(replies)
            yield {
                "caption": None if reply is None else reply.text,
                "error": error if reply is None else reply.error,
            }

    return _observed(rows, observed, captioner.revision, IMAGE_CAPTIONS)


def embed(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `tables.IMAGE_VECTORS`: the embedding of each image."""

    def observed(batch: pa.Table) -> Iterator[dict[str, Any]]:
        vectors, errors = encoded.embeddings(encoded.files_of(batch), encoder)
        for vector, error in zip(vectors, errors, strict=True):
            problem = None if error is not None or np.isfinite(vector).all() else "its embedding is not finite"
            yield {"vector": None if error or problem else vector.tolist(), "error": error or problem}

    return _observed(rows, observed, encoder.revision, IMAGE_VECTORS)


def _observed(
    rows: pa.Table, observed: Callable[[pa.Table], Iterator[dict[str, Any]]], revision: str, schema: pa.Schema
) -> pa.Table:
    """Returns a row for each of `rows`; an error that the file has already is kept."""
    records = []
    for start in range(0, rows.num_rows, AT_ONCE):
        batch = rows.slice(start, AT_ONCE)
        names = ("observation_id", "image_id", "row", "key", "content")
        of_file = batch.select([*names, "error"]).to_pylist()
        for file_record, new in zip(of_file, observed(batch), strict=True):
            records.append(file_record | new | {"revision": revision, "error": file_record["error"] or new["error"]})
    return pa.Table.from_pylist(records, schema)
