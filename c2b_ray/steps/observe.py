"""What models say of images: values, captions and embeddings, and whether an image shows its caption."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.names import normalise
from c2b_ray.roles import Answer, Captioner, Question, TextImageEncoder
from c2b_ray.steps import encoded
from c2b_ray.steps.cells import ATTRIBUTE, of_kind
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.fetch import Load, in_place
from c2b_ray.tables import IMAGE_CAPTIONS, IMAGE_VECTORS, READINGS, VERIFICATIONS, content_id, content_of

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


# Verifies images: does an image show what its caption says, according to a captioner, and how far to trust that.


CLASS = "target_class"
"""Stands in for an attribute's name in questions about the class; no attribute has this name."""

OTHER = "something else"
"""The answer for images that show none of the task's classes, also in a calibration. Without it a verifier must name a
class for anything that an index holds, and a mug is taken for a bus."""

THING = "a photo of a thing"
"""The text of OTHER for models that compare images with texts: by "a photo of something else", the world's CLIP model
lost up to a third of a class's own images."""

LIKELIER = 3.0
"""How many times as likely as a class OTHER must be. Of 3,000 scenes, five of whose ten classes were the task's, the
world's CLIP model kept 92, 99 and 99.7 % of a class's own images (in fog 91, 98, 100) at 1, 3 and 9, and took 0.2, 2
and 8 % of the others for one: a hundredth of an index is much beside a class's own images."""

WANTED = ("image_id", "target_class", "verification_id")


@dataclass(frozen=True)
class Checks:
    """The questions to a verifier: its spec and revision, and, by target class, the attributes with their values.

    `classes`: the question about the class, the same for all images, with `OTHER` as last choice.
    """

    verifier: str
    revision: str
    classes: Question
    attributes: Mapping[str, Mapping[str, Question]]

    def verification_id(self, image_id: str, target_class: str) -> str:
        texts = [self.classes.choices, *self._texts(target_class)]
        return content_id("verify", image_id, target_class, self.verifier, self.revision, texts)

    def _texts(self, target_class: str) -> list[object]:
        return [
            [name, question.choices, question.texts] for name, question in self.attributes.get(target_class, {}).items()
        ]


def checks(verifier: str, revision: str, classes: Sequence[str], captions: pa.Table) -> Checks:
    """Returns the questions of an audit. The first caption of each value serves as its text: they differ only in the
    value."""
    attributes: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for row in of_kind(captions, ATTRIBUTE).to_pylist():
        attributes[row["target_class"]][row["attribute"]].setdefault(row["bias_class"], row["text"])
    questions = {
        target: {
            name: Question(f"Which {name} does the picture of a {target} show?", tuple(texts), _distinct(texts))
            for name, texts in groups.items()
            if len(texts) > 1
        }
        for target, groups in attributes.items()
    }
    other_texts = {} if OTHER in map(normalise, classes) else {OTHER: THING}
    text_of_class = {name: f"a photo of a {name}" for name in classes} | other_texts
    return Checks(
        verifier,
        revision,
        Question("What does the picture show?", tuple(text_of_class), tuple(text_of_class.values())),
        questions,
    )


def _distinct(texts: Mapping[str, str]) -> tuple[str, ...] | None:
    """Returns the captions; None where two values have the same one, which distinguishes nothing."""
    result = tuple(texts.values())
    return result if len(set(result)) == len(result) else None


def wanted(captions: pa.Table, draws: pa.Table, checks: Checks) -> pa.Table:
    """Returns `image_id`, `target_class` and `verification_id` of every image and class that it was drawn for, once.

    Images of intersections get the same questions: their two values are those of the class's attributes.
    """
    target = dict(zip(captions["caption_id"].to_pylist(), captions["target_class"].to_pylist(), strict=True))
    pairs = dict.fromkeys(
        (image, target[caption])
        for image, caption in zip(draws["image_id"].to_pylist(), draws["caption_id"].to_pylist(), strict=True)
    )
    rows = [
        {"image_id": image, "target_class": name, "verification_id": checks.verification_id(image, name)}
        for image, name in pairs
    ]
    return pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in WANTED]))


def verify(images: pa.Table, captioner: Captioner, checks: Checks) -> pa.Table:
    """Returns a table of `tables.VERIFICATIONS`, a row per row of `images` (`tables.IMAGES` and the columns of
    `wanted`).

    An image that cannot be decoded, or whose class is unknown, is an error of its row; a value that the captioner does
    not name is null.
    """
    known_errors, targets = images["error"].to_pylist(), images["target_class"].to_pylist()
    questions = [[checks.classes, *checks.attributes.get(target, {}).values()] for target in targets]
    answers, decoding_errors = encoded.answers(encoded.files_of(images), questions, captioner)
    errors = [old_error or new for old_error, new in zip(known_errors, decoding_errors, strict=True)]
    rows = []
    for i, image_id in enumerate(images["image_id"].to_pylist()):
        names = list(checks.attributes.get(targets[i], {}))
        of_image = answers[i] if errors[i] is None else []
        class_answer = weighed(of_image[0], checks.classes) if of_image else Answer(None, error=errors[i])
        values = of_image[1:] or [Answer(None)] * len(names)
        rows.append(
            {
                "verification_id": checks.verification_id(image_id, targets[i]),
                "image_id": image_id,
                "target_class": targets[i],
                "revision": checks.revision,
                "class_shown": class_answer.choice,
                "class_certainty": _certainty(class_answer),
                "attributes": names,
                "values": [answer.choice for answer in values],
                "certainties": [_certainty(answer) for answer in values],
                "error": class_answer.error,
            }
        )
    return pa.Table.from_pylist(rows, VERIFICATIONS)


def weighed(answer: Answer, question: Question) -> Answer:
    """Reweighs an answer to the question about the class, where the model gives the probability of each choice: OTHER
    is chosen only where it is LIKELIER times as likely."""
    if answer.choice is None or answer.probabilities is None or question.choices[-1] != OTHER:
        return answer
    weighed = [*answer.probabilities[:-1], answer.probabilities[-1] / LIKELIER]
    likely = tuple(p / sum(weighed) for p in weighed)
    return Answer(question.choices[likely.index(max(likely))], likely)


def _certainty(answer: Answer) -> float | None:
    return max(answer.probabilities) if answer.choice is not None and answer.probabilities else None
