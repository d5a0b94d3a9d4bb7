"""Small models of texts: which group a text is of (`bag-of-words`, or a BERT, `bert:…`), and its keywords (YAKE)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from c2b_ray.errors import InputError, SpecError
from c2b_ray.extras import needed_by
from c2b_ray.models.catalog import parse
from c2b_ray.roles import GroupGuesser

# Guesses groups from texts by a logistic regression on their words and pairs of words.


Floats = NDArray[np.float64]
PENALTY = 1.0
LEAST_TEXTS = 2  # that hold a word for it to count
MOST_STEPS = 200


class BagOfWords:
    """Implements `roles.GroupGuesser`: multinomial logistic regression with an L2 penalty, unregularised intercepts."""

    name = "bag-of-words"

    def probabilities(
        self, texts: Sequence[str], groups: NDArray[np.int64], others: Sequence[str], number: int, seed: int
    ) -> Floats:
        """Returns the group probabilities of each of the `others`: float64 (others, number), rows summing to 1. `seed`
        is not used."""
        grams = [_grams(text) for text in texts]
        counts = Counter(gram for grams_of_text in grams for gram in grams_of_text)
        columns = {gram: i for i, gram in enumerate(sorted(g for g, count in counts.items() if count >= LEAST_TEXTS))}
        train, test = (_matrix(grams_of_text, columns) for grams_of_text in (grams, [_grams(text) for text in others]))
        target = np.eye(number)[groups]
        shape = (len(columns) + 1, number)

        def loss(flat: Floats) -> tuple[float, Floats]:
            weights = flat.reshape(shape)
            logs = log_softmax(train @ weights, axis=1)
            slope = train.T @ (np.exp(logs) - target)
            slope[:-1] += PENALTY * weights[:-1]
            value = -float((logs * target).sum()) + PENALTY / 2 * float((weights[:-1] ** 2).sum())
            return value, slope.ravel()

        start = np.zeros(shape)
        start[-1] = np.log((target.sum(axis=0) + 0.5) / (len(groups) + 0.5 * number))
        solution = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS})
        result: Floats = softmax(test @ solution.x.reshape(shape), axis=1)
        return result


def _grams(text: str) -> set[str]:
    words = text.split()
    return {*words, *(f"{a} {b}" for a, b in pairwise(words))}


def _matrix(grams: Sequence[set[str]], columns: dict[str, int]) -> sparse.csr_matrix:
    """Returns indicators of the columns, and a last column of ones."""
    rows = [
        [*sorted({columns[gram] for gram in grams_of_text if gram in columns}), len(columns)] for grams_of_text in grams
    ]
    ends = np.cumsum([0, *(len(row) for row in rows)])
    flat = np.array([column for row in rows for column in row], np.int64)
    return sparse.csr_matrix((np.ones(len(flat)), flat, ends), shape=(len(grams), len(columns) + 1))


def load(spec: str) -> GroupGuesser:
    """Loads a group guesser. Raises SpecError for a spec that names neither."""
    if spec == BagOfWords.name:
        return BagOfWords()
    parsed = parse(spec)
    if parsed.scheme != "bert":
        raise SpecError(f"{spec}: expected {BagOfWords.name}, bert:org/name or bert:local-dir:PATH")
    from c2b_ray.models.bert_guesser import load as load_bert

    return load_bert(parsed)


# Keywords of a text by YAKE (Campos et al. 2020), with the settings that Bias-to-Text uses. It knows text alone.


LANGUAGE, SAME = "en", 0.9
"""SAME: keywords more similar than this to a better one are dropped (YAKE's dedupLim)."""


def keywords(text: str, words: int = 3, most: int = 20) -> list[str]:
    """Returns at most `most` keywords of at most `words` words, the best first; none for a text without words."""
    with needed_by("keywords of captions", InputError, "'c2b-ray[evaluate]'"):
        from yake import KeywordExtractor
    if not text.strip():
        return []
    extractor = KeywordExtractor(lan=LANGUAGE, n=words, dedupLim=SAME, top=most, features=None)
    return [" ".join(str(word).lower().split()) for word, _ in extractor.extract_keywords(text)]


def sentence(caption: str) -> str:
    """Returns the caption with a full stop, so no keyword spans two captions."""
    text = caption.rstrip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
