"""Answers to questions about images: which are right, and which of them bias amplification considers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from c2b_ray.metrics import Floats, Ints
from c2b_ray.metrics.amplification_chance import Answers
from c2b_ray.names import normalise
from c2b_ray.steps.clip_bias.attributes import Attribute

BINARY = frozenset({"yes", "no", "true", "false"})
_NUMBER_WORDS = frozenset(
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "none"]
)
_NUMBER = re.compile(r"[-+]?[\d.,:/%]+")


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question about an image: `image` is its number in the dataset, `answer` the truth; both answers normalised."""

    image: int
    answer: str
    prediction: str
    accuracy: float


def answered_question(image: int, answer: str, prediction: str, accuracy: float | None) -> AnsweredQuestion:
    """`accuracy`: as in the table; None: 1 where the two answers are equal except for case and spaces."""
    true, said = normalise(answer), normalise(prediction)
    return AnsweredQuestion(image, true, said, float(true == said) if accuracy is None else accuracy)


def scores_of(questions: Sequence[AnsweredQuestion], images: int) -> tuple[Floats, Floats]:
    """Returns the sum of accuracies and the number of questions of each image, (images,) each."""
    totals, counts = np.zeros(images), np.zeros(images)
    for one in questions:
        totals[one.image] += one.accuracy
        counts[one.image] += 1
    return totals, counts


def open_ended(answer: str) -> bool:
    """Returns whether an answer is neither binary nor a number."""
    return answer not in BINARY and answer not in _NUMBER_WORDS and _NUMBER.fullmatch(answer) is None


def vocabulary(questions: Sequence[AnsweredQuestion], most: int) -> list[str]:
    """Returns the `most` most frequent open-ended true answers, ties in alphabetical order."""
    counts = Counter(one.answer for one in questions if open_ended(one.answer))
    return [answer for answer, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]]


@dataclass(frozen=True)
class Considered:
    """The questions that bias amplification considers, about so many `images`; `words`: the vocabulary."""

    answers: Answers
    words: list[str]
    images: int


def filtered(
    questions: Sequence[AnsweredQuestion],
    attribute: Attribute,
    members: Ints,
    most: int,
    copies: Ints | None = None,
) -> Considered:
    """Returns, as numbers, the questions about `members` with a value of the attribute and a true answer of the
    vocabulary.

    Ramos et al. 2025, section 3.3: samples with answers that are binary, numerical, or outside the 50 most frequent are
    removed. A prediction outside the vocabulary is kept as -1, none of the considered answers. `copies`: for each
    image, the number of the first that is the same picture; the questions about these are as those about one image.
    """
    inside = set(members.tolist())
    held = [one for one in questions if one.image in inside and attribute.codes[one.image] >= 0]
    words = vocabulary(held, most)
    numbers = {word: number for number, word in enumerate(words)}
    kept = [one for one in held if one.answer in numbers]
    codes = np.array([attribute.codes[one.image] for one in kept], np.int64)
    pictures = [(one.image if copies is None else int(copies[one.image]), attribute.codes[one.image]) for one in kept]
    number_of = {picture: number for number, picture in enumerate(dict.fromkeys(pictures))}
    answers = Answers(
        np.array([number_of[picture] for picture in pictures], np.int64),
        codes,
        np.array([numbers[one.answer] for one in kept], np.int64),
        np.array([numbers.get(one.prediction, -1) for one in kept], np.int64),
        len(attribute.values),
        len(words),
    )
    return Considered(answers, words, len({one.image for one in kept}))


def constant(questions: Mapping[str, Sequence[AnsweredQuestion]]) -> dict[str, str]:
    """Returns the models that predict the same answer to every question → that answer."""
    said = {model: {one.prediction for one in some} for model, some in questions.items()}
    return {model: next(iter(some)) for model, some in said.items() if len(some) == 1}
