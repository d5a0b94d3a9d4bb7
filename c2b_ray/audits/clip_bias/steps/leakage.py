"""LIC: whether an attribute can be guessed from captions that a model wrote better than from those that people wrote.

captions → words of the attribute masked → groups guessed, fold by fold, from the other folds → score of each caption
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.special import stdtr, stdtrit

from c2b_ray.audits.prompts.steps.words import inflections
from c2b_ray.roles import GroupGuesser
from c2b_ray.stats import Floats, Ints
from c2b_ray.tables import content_id
from c2b_ray.tables.clip_bias import CLIP_GUESSES


@dataclass(frozen=True)
class GuessingTask:
    """Texts of known groups, one text per image, to be guessed in `folds` folds that `seed` draws.

    `copies`: for each text's image, the number of the first image that is the same picture; empty: all differ. Copies
    are guessed in one fold, because a guesser that learnt from one would know the other.
    """

    texts: tuple[str, ...]
    groups: tuple[int, ...]
    number: int
    folds: int
    seed: int
    guesser: str
    copies: tuple[int, ...] = ()

    @property
    def guess_id(self) -> str:
        fixed = [self.number, self.folds, self.seed, self.guesser]
        return content_id("clip-bias guess", list(self.texts), list(self.groups), fixed, list(self.copies))


@dataclass(frozen=True)
class LeakageResult:
    """`value`: LIC, the captioner's leakage minus people's. `captions`, `people`: the two leakages."""

    value: float
    low: float
    high: float
    p_value: float
    captions: float
    people: float


def table(guesses: Sequence[GuessingTask]) -> pa.Table:
    """Returns the rows of the guessing stage, each once."""
    distinct = {guessing_task.guess_id: guessing_task for guessing_task in guesses}
    return pa.table(
        {
            "guess_id": pa.array(list(distinct), pa.string()),
            "texts": pa.array(
                [list(guessing_task.texts) for guessing_task in distinct.values()], pa.list_(pa.string())
            ),
            "groups": pa.array(
                [list(guessing_task.groups) for guessing_task in distinct.values()], pa.list_(pa.int64())
            ),
            "settings": pa.array(
                [
                    [guessing_task.number, guessing_task.folds, guessing_task.seed]
                    for guessing_task in distinct.values()
                ],
                pa.list_(pa.int64()),
            ),
            "copies": pa.array(
                [list(guessing_task.copies) for guessing_task in distinct.values()], pa.list_(pa.int64())
            ),
        }
    )


def guess(rows: pa.Table, guesser: GroupGuesser) -> pa.Table:
    """Returns a table of `CLIP_GUESSES`: for each text the confidence in the true group where that is the likeliest,
    else 0.

    Ramos et al. 2025, Eq. 7 (the summands); Hirota et al. 2022.
    """
    scores = []
    for row in rows.to_pylist():
        number, folds, seed = row["settings"]
        groups = np.array(row["groups"], np.int64)
        copies = np.array(row["copies"] or range(len(groups)), np.int64)
        scores.append(_scores(row["texts"], groups, number, (_folds(groups, copies, folds, seed), seed), guesser))
    columns = {
        "guess_id": rows["guess_id"],
        "scores": pa.array([scores_of_text.tolist() for scores_of_text in scores], pa.list_(pa.float64())),
        "error": pa.nulls(rows.num_rows, pa.string()),
    }
    return pa.table(columns).cast(CLIP_GUESSES)


def _scores(
    texts: list[str], groups: Ints, number: int, fold_and_seed: tuple[Ints, int], guesser: GroupGuesser
) -> Floats:
    fold, seed = fold_and_seed
    result = np.zeros(len(texts))
    for out in range(int(fold.max()) + 1):
        train, test = np.flatnonzero(fold != out), np.flatnonzero(fold == out)
        if not len(test):
            continue
        chances = guesser.probabilities(
            [texts[i] for i in train], groups[train], [texts[i] for i in test], number, seed + out
        )
        of_group = chances[np.arange(len(test)), groups[test]]
        result[test] = np.where(chances.argmax(axis=1) == groups[test], of_group, 0.0)
    return result


def _folds(groups: Ints, copies: Ints, folds: int, seed: int) -> Ints:
    """Returns a fold for each text, the same for copies of an image; each group is spread evenly over the folds."""
    random = np.random.default_rng(seed)
    _, first, image = np.unique(copies, return_index=True, return_inverse=True)
    group_of = groups[first]
    result = np.empty(len(first), np.int64)
    for group in np.unique(group_of):
        members = random.permutation(np.flatnonzero(group_of == group))
        result[members] = (np.arange(len(members)) + random.integers(folds)) % folds
    of_text: Ints = result[image]
    return of_text


def leak_of(captions: Floats, people: Floats, null: Floats, confidence: float) -> LeakageResult:
    """Returns LIC = LIC_model - LIC_people, each the mean of its scores over images and draws of folds.

    Args: captions, people: (draws, images), the scores of the same images under each draw of folds; null: (swaps,), LIC
    where each image's two captions are swapped at random and all guessers are trained again. Most of LIC's scatter
    comes from training on other captions, which no image's score contains: an interval from the images' scores holds
    the truth only 7 times in 10. The null is centred on 0; its spread and Student's t give interval and p.
    """
    value = float(captions.mean() - people.mean())
    error = float(np.sqrt((null**2).mean()))
    reach = float(stdtrit(len(null), (1 + confidence) / 2)) * error
    p_value = float(2 * stdtr(len(null), -abs(value) / error)) if error > 0 else (1.0 if value == 0 else 0.0)
    return LeakageResult(value, value - reach, value + reach, p_value, float(captions.mean()), float(people.mean()))


# Splits captions into words, and masks words that reveal an attribute.


MASK, UNKNOWN = "[MASK]", "[UNK]"
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words_of(text: str) -> list[str]:
    """Returns lower-case words without punctuation, as the Penn Treebank tokenizer of the COCO evaluation leaves plain
    captions, without its Java. "dog's" is one word here and two there."""
    return [match[0].replace("’", "'") for match in _WORD.finditer(text.lower())]


def mask_of(values: Iterable[str], extra: Iterable[str]) -> frozenset[str]:
    """Returns the words that reveal an attribute: those of its values and the extra ones, with their inflections, such
    as men of man."""
    single = {_without_s(word) for text in (*values, *extra) for word in words_of(text.replace("_", " "))}
    return frozenset(form for word in single for form in inflections(word))


def masked(text: str, mask: Collection[str], known: Collection[str] | None = None) -> str:
    """Returns the caption with each word of the mask, and each word that is not `known`, replaced by a sign.

    Hirota et al. 2022, section 4.1: words that the captioner never uses are masked in human captions; otherwise its
    small vocabulary alone would make it look fair. A possessive reveals as much as its word: "woman's" is masked too.
    """
    signs = [
        MASK if _without_s(word) in mask else word if known is None or word in known else UNKNOWN
        for word in words_of(text)
    ]
    return " ".join(signs)


def _without_s(word: str) -> str:
    return word.removesuffix("'s")


def says_nothing(text: str) -> bool:
    """Returns whether no word is left after masking."""
    return all(word in (MASK, UNKNOWN) for word in text.split())


def vocabulary_of(texts: Sequence[str]) -> frozenset[str]:
    return frozenset(word for text in texts for word in words_of(text))
