"""Choices and phrases by cosine, on an encoder whose embeddings can be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog, zero_shot
from c2b_ray.models.zero_shot import ClipCaptioner, read_vocabulary
from c2b_ray.roles import Floats, Pixels, Question

AXES = ("red", "blue", "night", "day")
WORLD = Path(__file__).parents[3] / "c2b_ray/world/weights/clip"
NIGHT = Question("When?", ("day", "night"))


class Axes:
    """A text points along the words of AXES that it holds; an image along the axes that its first pixels weigh."""

    dimension, revision = len(AXES) + 1, "axes"

    def __init__(self) -> None:
        self.images, self.texts = 0, 0

    def encode_images(self, images: Sequence[Pixels]) -> Floats:
        self.images += len(images)
        return self._unit([[*image[0, : len(AXES), 0], 1] for image in images])

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        self.texts += len(texts)
        return self._unit([[*(word in text.split() for word in AXES), 1] for text in texts])

    def _unit(self, rows: list[list[float]]) -> Floats:
        found = np.array(rows, np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)


def image(*weights: int) -> Pixels:
    found = np.zeros((1, 4, 3), np.uint8)
    found[0, : len(weights), 0] = weights
    return found


def captioner(encoder: Axes, temperature: float = 20.0, templates: Sequence[str] = ("{choice}",)) -> ClipCaptioner:
    vocabulary = {"colour": ["", "in red", "in blue"], "light": ["at night", "by day"]}
    return ClipCaptioner(encoder, vocabulary, templates, temperature)


def test_probabilities_are_the_softmax_of_scaled_cosines() -> None:
    # Image (0, 0, 3, 1, 1) against day (0, 0, 0, 1, 1) and night (0, 0, 1, 0, 1): cosines 2/√22 and 4/√22.
    [answer] = captioner(Axes(), temperature=5.0).answer([image(0, 0, 3, 1)], [NIGHT])
    day, night = np.exp(5 * 2 / 22**0.5), np.exp(5 * 4 / 22**0.5)
    assert answer.choice == "night"
    assert answer.probabilities == pytest.approx((day / (day + night), night / (day + night)))


def test_the_questions_own_texts_come_before_the_template() -> None:
    question = Question("When?", ("early", "late"), texts=("by day", "at night"))
    assert captioner(Axes()).answer([image(0, 0, 1)], [question])[0].choice == "late"


def test_several_templates_are_averaged() -> None:
    # Embeddings of "x" and of "x red" are averaged: red is in both choices' means, so it takes no side.
    both = captioner(Axes(), templates=("{choice}", "{question} {choice} red"))
    [answer] = both.answer([image(9, 0, 1)], [NIGHT])
    assert answer.choice == "night"
    assert both.revision != captioner(Axes()).revision


def test_a_caption_says_what_is_sure() -> None:
    said = captioner(Axes()).caption([image(1, 0, 1), image(0, 0, 0, 1), image(1, 1, 1, 1)], ["bus", "air_bus", "mug"])
    # The third image shows red and blue, night and day alike: nothing of them is likelier than all else together.
    assert [reply.text for reply in said] == [
        "a photo of a bus, in red, at night",
        "a photo of an air bus, by day",
        "a photo of a mug",
    ]


def test_equal_images_and_known_texts_are_encoded_once() -> None:
    encoder = Axes()
    model = captioner(encoder)
    night = image(0, 0, 1)
    model.answer([night, night.copy(), image(0, 0, 0, 1)], [NIGHT] * 3)
    model.answer([night], [NIGHT])
    assert (encoder.images, encoder.texts) == (2, 2)


def test_what_is_kept_of_texts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zero_shot, "_MOST_TEXTS", 3)
    encoder = Axes()
    model = captioner(encoder)
    for question in (NIGHT, Question("?", ("red", "blue")), NIGHT):
        assert model.answer([image(1, 0, 1)], [question])[0].choice in ("night", "red")
    assert encoder.texts == 6


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("template=a photo", r"must hold \{choice\}"),
        ("template={choice} {label}", r"must hold \{choice\}"),
        ("template={choice}|{question}", r"must hold \{choice\}"),
        ("vocabulary=nowhere.txt", "nowhere.txt"),
        ("temperature=0", "temperature=0.0 is not above 0"),
        ("tempature=1", "did you mean 'temperature'"),
    ],
)
def test_wrong_options_say_so(options: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        catalog.captioner(f"open_clip:local-dir:{WORLD}?{options}")


def test_a_vocabulary_is_a_line_an_attribute(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("# comment\n\nlight: in  daylight | at night\ncolour: | in red\n")
    assert read_vocabulary(path, "x") == {"light": ["in daylight", "at night"], "colour": ["", "in red"]}
    for text, reason in [
        ("light: a | b\nlight: c | d", "line 2"),
        ("light: a", "line 1"),
        ("a | b", "line 1"),
        ("light: a | a", "line 1"),
        ("# none", "no line"),
    ]:
        path.write_text(text)
        with pytest.raises(SpecError, match=reason):
            read_vocabulary(path, "x")


def test_the_vocabulary_that_ships_can_be_read_and_is_silent_where_it_should() -> None:
    shipped = read_vocabulary(Path(zero_shot.__file__).with_name("vocabulary.txt"), "x")
    assert len(shipped) >= 8
    assert shipped["weather"][0] == ""
