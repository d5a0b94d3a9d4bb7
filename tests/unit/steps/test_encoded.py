"""Encoded images are decoded here for a model of this process, and never for one that decodes for itself."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from c2b_ray.errors import ServiceError
from c2b_ray.roles import Answer, CaptionReply, Floats, Pixels, Question
from c2b_ray.steps import encoded

QUESTIONS = [[Question("?", ("a", "b"))], [Question("?", ("a", "b")), Question("!", ("c", "d"))], []]


def png(level: int) -> bytes:
    file = BytesIO()
    Image.new("RGB", (4, 3), (level, level, level)).save(file, "PNG")
    return file.getvalue()


FILES = [png(10), b"no image", png(30)]


class Here:
    """Answers with an image's level, or its key."""

    labels, revision, dimension = ("level", "key"), "1", 2

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        return np.array([[image.mean(), float(key)] for image, key in zip(images, keys, strict=True)], np.float32)

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        return np.array([[image.mean(), 1] for image in images], np.float32)

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        raise NotImplementedError

    def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
        pairs = zip(images, questions, strict=True)
        return [Answer(question.choices[int(image.mean()) % 2]) for image, question in pairs]

    def caption(self, images: Sequence[Pixels], labels: Sequence[str]) -> list[CaptionReply]:
        raise NotImplementedError


class Elsewhere(Here):
    """Must get files, whatever is in them."""

    def logits_of_files(self, files: Sequence[bytes | None], keys: Sequence[str]) -> tuple[Floats, list[str | None]]:
        assert files == FILES
        return np.zeros((len(files), 2), np.float32), [None] * len(files)

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        raise AssertionError("decoded here")


def test_rows_are_those_of_their_files_and_nan_where_a_file_is_none() -> None:
    found, errors = encoded.DecodedOnce(FILES).logits([0, 1, 2], ["1", "2", "3"], Here())
    np.testing.assert_array_equal(found, [[10, 1], [np.nan, np.nan], [30, 3]])
    assert [error is None for error in errors] == [True, False, True]
    found, again = encoded.embeddings(FILES, Here())
    np.testing.assert_array_equal(found, [[10, 1], [np.nan, np.nan], [30, 1]])
    assert again == errors


def test_files_go_undecoded_to_a_model_that_decodes_them_itself() -> None:
    found, errors = encoded.DecodedOnce(FILES).logits([0, 1, 2], ["1", "2", "3"], Elsewhere())
    assert found.shape == (3, 2)
    assert errors == [None] * 3


def test_each_file_has_the_answers_to_its_own_questions() -> None:
    answers, errors = encoded.answers([png(10), png(11), png(12)], QUESTIONS, Here())
    assert [[answer.choice for answer in own] for own in answers] == [["a"], ["b", "d"], []]
    assert errors == [None] * 3


def test_files_of_which_none_can_be_decoded_ask_nobody_anything() -> None:
    class Silent(Here):
        def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
            raise AssertionError

    assert encoded.answers([None, b""], [[QUESTIONS[0][0]]] * 2, Silent())[0] == [[], []]


def test_a_captioner_that_answers_too_few_questions_is_refused() -> None:
    class Short(Here):
        def answer(self, images: Sequence[Pixels], questions: Sequence[Question]) -> list[Answer]:
            return super().answer(images, questions)[1:]

    with pytest.raises(ServiceError, match="answered 3 questions with 2 answers"):
        encoded.answers([png(10), png(11), png(12)], QUESTIONS, Short())
