"""Answers that bias amplification looks at, words that LIC masks, and what LIC adds up to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.clip_bias.downstream import answered_question, filtered, open_ended, vocabulary
from c2b_ray.audits.clip_bias.steps.leakage import (
    GuessingTask,
    guess,
    leak_of,
    mask_of,
    masked,
    says_nothing,
    table,
    vocabulary_of,
)
from c2b_ray.audits.clip_bias.steps.measure import Attribute
from c2b_ray.models.group_guessers import BagOfWords
from c2b_ray.stats import leakage


def test_binary_and_numerical_answers_are_left_out_and_the_most_frequent_kept():
    assert not any(map(open_ended, ["yes", "no", "2", "3.5", "two", "10:30", "50%"]))
    questions = [
        answered_question(at, answer, "red", None)
        for at, answer in enumerate(["Red", "red", "blue", "yes", "2", "sky"])
    ]
    assert vocabulary(questions, 2) == ["red", "blue"]
    attribute = Attribute.of("coin", ["heads", "tails", "heads", "tails", "heads", None])
    considered = filtered(questions, attribute, np.arange(6), 50)
    answers, words = considered.answers, considered.words
    assert words == ["red", "blue"]  # sky is an answer about an image without a coin
    assert answers.true.tolist() == [0, 0, 1]
    assert answers.predicted.tolist() == [0, 0, 0]
    assert answers.attributes.tolist() == [0, 1, 0]


def test_accuracy_is_the_tables_where_it_has_one():
    assert answered_question(0, "A dog", "a  DOG", None).accuracy == 1.0
    assert answered_question(0, "dog", "cat", 0.3).accuracy == 0.3


def test_words_of_values_are_masked_and_those_that_the_captioner_lacks():
    mask = mask_of(["woman", "man"], ["lady"])
    assert masked("Two men? A woman, the lady's ladies and women's man.", mask, {"a", "the"}).split() == [
        "[UNK]", "[MASK]", "a", "[MASK]", "the", "[MASK]", "[MASK]", "[UNK]", "[MASK]", "[MASK]",
    ]  # fmt: skip
    assert says_nothing(masked("Men, women: a woman's man’s babies", mask_of(["man", "woman", "baby"], ["a"])))
    assert (
        masked("a baby army in many kitchens", mask_of(["man", "arm", "old_man"], [])) == "a baby army in many kitchens"
    )
    assert says_nothing(masked("man woman", mask))
    assert not says_nothing(masked("man walks", mask))
    assert vocabulary_of(["A dog.", "a cat"]) == {"a", "dog", "cat"}


def guesses(texts, groups, seed=0):
    one = GuessingTask(tuple(texts), tuple(map(int, groups)), 2, 5, seed, "bag-of-words")
    (row,) = guess(table([one, one]), BagOfWords()).to_pylist()
    assert row["guess_id"] == one.guess_id
    return np.array(row["scores"])


def captions(groups, strength, random):
    told = np.where(random.random(len(groups)) < strength, groups, random.integers(0, 2, len(groups)))
    return [f"a {['kitchen', 'street'][one]} scene {random.integers(9)}" for one in told]


def swapped(one, other, groups, swaps, seed):
    """LIC where captions change places at random."""
    random, result = np.random.default_rng(seed), []
    for draw in range(swaps):
        moved = random.random(len(groups)) < 0.5
        sides = [(b, a) if change else (a, b) for a, b, change in zip(one, other, moved, strict=True)]
        first, second = ([side[at] for side in sides] for at in (0, 1))
        result.append(guesses(first, groups, draw).mean() - guesses(second, groups, draw).mean())
    return np.array(result)


def test_captions_that_tell_the_attribute_leak_more():
    random = np.random.default_rng(0)
    groups = random.integers(0, 2, 200)
    both = [captions(groups, strength, random) for strength in (0.9, 0.2)]
    loud, quiet = (np.stack([guesses(one, groups)]) for one in both)
    leak = leak_of(loud, quiet, swapped(*both, groups, 8, 0), 0.95)
    assert leak.low > 0
    assert leak.value == pytest.approx(leakage(loud[0], loud[0] > 0) - leakage(quiet[0], quiet[0] > 0), abs=1e-12)
    assert leak_of(loud, loud, np.zeros(8), 0.95).p_value == 1.0


def test_lic_of_the_worked_example():
    assert leakage([0.9, 0.6, 0.8, 0.7], [1, 1, 0, 1]) == pytest.approx(0.55, abs=1e-12)


def test_each_guess_is_made_once():
    one = GuessingTask(("a", "b"), (0, 1), 2, 2, 0, "bag-of-words")
    assert isinstance(table([one, one]), pa.Table)
    assert table([one, one]).num_rows == 1


def test_copies_of_an_image_are_guessed_in_one_fold():
    # Each text tells its own image and nothing of its group: it can be guessed from a copy alone.
    groups = np.repeat(np.arange(30) % 2, 6)
    texts = tuple(f"picture{number}" for number in np.repeat(np.arange(30), 6))
    firsts = tuple(np.repeat(np.arange(0, 180, 6), 6).tolist())
    plain = GuessingTask(texts, tuple(groups.tolist()), 2, 5, 0, "bag-of-words")
    apart = GuessingTask(texts, tuple(groups.tolist()), 2, 5, 0, "bag-of-words", firsts)
    of_plain, of_apart = (np.array(row["scores"]) for row in guess(table([plain, apart]), BagOfWords()).to_pylist())
    assert (of_plain > 0).mean() > 0.9
    assert (of_apart > 0).mean() < 0.6
