"""What counts as a caption of its label and as an answer among choices."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from c2b_ray.models import captioned as prompted
from c2b_ray.models.captioned import captioned, parse_answer, probable
from c2b_ray.names import mentions
from c2b_ray.roles import Answer, CaptionReply, ChatReply, Pixels, Question

COLOURS = ("red", "blue", "light blue")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("A Bus on a street.", "bus"),
        ("two buses", "bus"),
        ("two cities at night", "city"),
        ("the bus's door", "bus"),
        ("a traffic  light", "traffic light"),
        ("a traffic-light", "traffic_light"),
        ("many traffic lights", "Traffic Light"),
        ("STRASSE", "straße"),
        ("a C++ book", "C++"),
        ("two mice", "mouse"),
        ("cafe\u0301s at night", "café"),
        ("夜のバス", "バス"),
        ("a tench in a hand", "tench, Tinca tinca"),
    ],
)
def test_a_label_is_found_as_whole_words(text: str, label: str) -> None:
    assert mentions(text, label)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("a busy street", "bus"),
        ("a catfish", "fish"),
        ("a light in traffic", "traffic light"),
        ("a bus", ""),
        ("", "_"),
    ],
)
def test_part_of_a_word_is_no_label(text: str, label: str) -> None:
    assert not mentions(text, label)


def test_a_caption_is_one_line_without_quotes() -> None:
    assert captioned(' "a bus\n at  night" ', "bus") == CaptionReply("a bus at night")
    assert captioned("a car", "bus") == CaptionReply(None, "the caption does not contain 'bus': said 'a car'")


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("red", "red"),
        (" **Red.** ", "red"),
        ('{"answer": "blue"}', "blue"),
        ('```json\n{"answer": "Light blue"}\n```', "light blue"),
        ("It is light blue.", "light blue"),
        ("blue, not red", "blue"),
        ("It isn't a red one; it is blue", "blue"),
        ("The blue bus is blue.", "blue"),
    ],
)
def test_a_choice_is_read_out_of_a_reply(text: str, choice: str) -> None:
    assert parse_answer(text, COLOURS) == Answer(choice)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "named no choice: said ''"),
        ("reddish", "named no choice"),
        ("not red", "named no choice"),
        ("red or blue", "named several choices"),
        ("light blue and blue", "named several choices"),
        ('{"answer": 3}', "named no choice"),
        ("{broken", "named no choice"),
    ],
)
def test_what_names_no_choice_or_several_is_an_error(text: str, reason: str) -> None:
    answer = parse_answer(text, COLOURS)
    assert answer.choice is None
    assert reason in str(answer.error)


def test_yes_and_no_are_choices_like_others() -> None:
    assert parse_answer("No, it is not raining.", ("yes", "no")).choice == "no"
    assert parse_answer("with nobody", ("none", "nobody")).choice == "nobody"


@pytest.mark.parametrize("choices", [(), ("red",), ("red", "Red"), ("red", " "), ("red", "red ")])
def test_a_question_has_two_choices_or_more(choices: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="needs two choices or more"):
        Question("Which?", choices)


@pytest.mark.parametrize("texts", [(), ("a",), ("a", "a"), ("a", "b", "c")])
def test_texts_are_one_a_choice(texts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="2 choices need as many texts"):
        Question("Which?", ("red", "blue"), texts)


def test_what_crosses_processes_can_be_pickled() -> None:
    for value in (Question("Which?", COLOURS), Answer("red", (0.5, 0.3, 0.2)), CaptionReply(None, "no")):
        assert pickle.loads(pickle.dumps(value)) == value


def test_probabilities_that_are_none_are_an_error() -> None:
    question = Question("Which?", COLOURS)
    assert probable(question, [0.2, 0.3, 0.5]) == Answer("light blue", (0.2, 0.3, 0.5))
    assert "no finite probabilities" in str(probable(question, [0.2, float("nan"), 0.5]).error)


def test_only_what_failed_is_asked_for_again_in_firmer_words() -> None:
    asked: list[list[str]] = []

    def say(images: list[Pixels], texts: list[str]) -> list[ChatReply]:
        asked.append(list(texts))
        first = [ChatReply("a bus"), ChatReply("a thing"), ChatReply("", "the reply is empty"), ChatReply("thing")]
        return first if len(asked) == 1 else [ChatReply("a red boat"), ChatReply("a kite"), ChatReply("thing")]

    images = [np.zeros((2, 2, 3), np.uint8)] * 5
    found = prompted.captions(images, ["bus", "boat", "kite", " ", "ghost"], say)
    assert [reply.text for reply in found] == ["a bus", "a red boat", "a kite", None, None]
    assert found[3].error == "the label is empty"
    assert [len(texts) for texts in asked] == [4, 3]
    assert '"A photo of boat"' in asked[1][0]
