"""Whether a classifier's answers follow how images look rather than what class they are of.

A classifier that goes by texture, colour or background gives one answer to images of several classes that look alike.
Which look it goes by nobody has to name: the answers to other classes' images of a like look tell what this one's
would be.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Kind = TypeVar("Kind", np.int64, np.bool_)

NEIGHBOURS = 10
RESAMPLES = 1_999
_AT_ONCE = 1_024


class FollowedLook(NamedTuple):
    """What the look of n images says about the answers to them.

    `look_answer`: (n,), the answer that the image's look-alikes of other classes are given; −1 where it has none.
    `compared`: (n,), the images that the test is about: not answered by their class, and with a descriptor.
    `follows_look`, `follows_class`: (n,), which answers are the look's, and which are the class's. `neighbours`: (n,
    NEIGHBOURS), the rows of the look-alikes, nearest first; −1 for none. `beyond_chance`: (n,), in [−1, 1], whether the
    answer follows the look, less how often it would by chance. `expected`: how many would by chance. `p_value`: of as
    many or more by chance, in (0, 1].
    `share`: of all answers, those that follow the look beyond chance, in [−1, 1]; `margin`: `share` less the share that
    follows the class; both with limits, NaN where they cannot be told.
    """

    look_answer: Ints
    compared: Mask
    follows_look: Mask
    follows_class: Mask
    neighbours: Ints
    beyond_chance: Floats
    expected: float
    p_value: float
    share: float
    share_low: float
    share_high: float
    margin: float
    margin_low: float
    margin_high: float


def class_answers(truth: ArrayLike, answer: ArrayLike) -> Mask:
    """Returns which answers follow the image's class, shape (n,): the right ones, and those that more than half of the
    class's other images are given too.

    `truth`, `answer`: integers, shape (n,), the number of each image's class and of its answer. A class that is called
    another name throughout, as with labels in another order, is told apart all the same. ValueError for other shapes.
    """
    of_class, answers = _columns(truth, answer)
    follows: Mask = of_class == answers
    for one in np.unique(of_class):
        rows = np.flatnonzero(of_class == one)
        names, counts = np.unique(answers[rows], return_counts=True)
        follows[rows] |= np.isin(answers[rows], names[2 * (counts - 1) > len(rows) - 1])
    return follows


def followed_look(
    vectors: ArrayLike,
    truth: ArrayLike,
    answer: ArrayLike,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> FollowedLook:
    """Tests whether answers that do not follow the class follow the look, and estimates how many do.

    `vectors`: shape (n, d), a descriptor of each image, whose Euclidean distance says how alike two look; NaN where it
    is not known, and not needed where the answer follows the class. `truth`, `answer`: integers ≥ 0, shape (n,), as
    for `class_answers`, one row for each picture: copies would agree with themselves.

    Only answers count that are not the class's (`class_answers`), and only images with such answers are look-alikes:
    that dogs are called cats where cats that look like them are called cats is what a class's own look does. Evidence
    is that images of two classes get one answer that is neither's. The look's answer is the commonest one, without the
    image's own class, among its NEIGHBOURS nearest look-alikes of other classes, the nearest's among equals. T = #{i:
    answer_i = look's answer_i}.

    Chance permutes the answers within each class, among those that are not the class's: which answers a class gets, and
    which images are hard, stay as they are, and so does what two classes are both mistaken for. p = (1 + #{T* ≥ T}) /
    (1 + B) (Phipson & Smyth 2010). `share` = (T − E[T*]) / n, and `margin` = `share` − #{follows the class} / n. Their
    limits are those of `mean_over_classes`.

    No image with such an answer gives a share of 0 and p = 1. ValueError for other shapes.
    """
    of_class, answers = _columns(truth, answer)
    descriptors = np.asarray(vectors, np.float32)
    n = len(of_class)
    if descriptors.ndim != 2 or len(descriptors) != n:
        raise ValueError(f"vectors: {descriptors.shape}, expected ({n}, d), a row for each image")
    follows_class = class_answers(of_class, answers)
    compared = np.flatnonzero(~follows_class & np.isfinite(descriptors).all(axis=1))
    near = _nearest(descriptors[compared], of_class[compared])
    truth_compared, answers_compared = of_class[compared], answers[compared]
    predicted = _commonest(near, truth_compared, answers_compared)
    followed = predicted == answers_compared
    random, reached, by_chance = np.random.default_rng(seed), 0, np.zeros(len(compared))
    order = np.argsort(truth_compared, kind="stable")
    for _ in range(resamples if len(compared) else 0):
        shuffled = answers_compared.copy()
        shuffled[order] = answers_compared[np.lexsort((random.random(len(compared)), truth_compared))]
        hits = _commonest(near, truth_compared, shuffled) == shuffled
        reached += int(hits.sum()) >= int(followed.sum())
        by_chance += hits
    by_chance /= max(resamples, 1)
    beyond = np.zeros(n)
    beyond[compared] = followed - by_chance
    share, share_low, share_high = mean_over_classes(beyond, of_class, confidence)
    margin, margin_low, margin_high = mean_over_classes(beyond - follows_class, of_class, confidence)
    return FollowedLook(
        look_answer=_spread(predicted, compared, n),
        compared=_spread(np.ones(len(compared), bool), compared, n, False),
        follows_look=_spread(followed, compared, n, False),
        follows_class=follows_class,
        neighbours=_spread(np.where(near >= 0, compared[near] if len(compared) else near, -1), compared, n),
        beyond_chance=beyond,
        expected=float(by_chance.sum()),
        p_value=(1 + reached) / (1 + resamples) if len(compared) else 1.0,
        share=share,
        share_low=share_low,
        share_high=share_high,
        margin=margin,
        margin_low=margin_low,
        margin_high=margin_high,
    )


def mean_over_classes(values: ArrayLike, truth: ArrayLike, confidence: float) -> tuple[float, float, float]:
    """Returns the mean of a number of each image, shape (n,), and its limits.

    `truth`: integers, shape (n,), the number of each image's class. Limits are Student's t with the classes as clusters
    of images (Liang & Zeger 1986), since classes differ in how their images are answered: mean ± t √(G/(G−1) Σ_g
    (Σ_i∈g (x_i − mean))²) / n with G classes and G − 1 degrees of freedom. NaN without an image; limits are NaN with
    fewer than two classes. ValueError where lengths differ.
    """
    numbers, classes = np.asarray(values, np.float64), np.asarray(truth, np.int64)
    if numbers.shape != classes.shape or numbers.ndim != 1:
        raise ValueError(f"values {numbers.shape}, truth {classes.shape}: expected two arrays of one length")
    if not len(numbers):
        return float("nan"), float("nan"), float("nan")
    mean = float(numbers.mean())
    _, number = np.unique(classes, return_inverse=True)
    sums = np.bincount(number, numbers - mean)
    many = len(sums)
    if many < 2:
        return mean, float("nan"), float("nan")
    error = float(np.sqrt(many / (many - 1) * (sums @ sums))) / len(numbers)
    half = float(scipy.stats.t.ppf((1 + confidence) / 2, many - 1)) * error
    return mean, mean - half, mean + half


def _columns(truth: ArrayLike, answer: ArrayLike) -> tuple[Ints, Ints]:
    of_class, answers = (np.asarray(column, np.int64) for column in (truth, answer))
    if of_class.shape != answers.shape or of_class.ndim != 1:
        raise ValueError(f"truth {of_class.shape}, answer {answers.shape}: expected two arrays of one length")
    return of_class, answers


def _nearest(vectors: NDArray[np.float32], truth: Ints) -> Ints:
    """Returns the rows of the nearest images of other classes, (n, NEIGHBOURS), nearest first; −1 for none."""
    n, square = len(vectors), (vectors**2).sum(axis=1)
    near = np.full((n, NEIGHBOURS), -1, np.int64)
    if not n:
        return near
    k = min(NEIGHBOURS, n)
    for start in range(0, n, _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        distance = square[rows, None] + square - 2 * vectors[rows] @ vectors.T
        distance[truth[rows, None] == truth] = np.inf
        nearest = np.argsort(distance, axis=1, kind="stable")[:, :k]
        known = np.isfinite(np.take_along_axis(distance, nearest, axis=1))
        near[rows, :k] = np.where(known, nearest, -1)
    return near


def _commonest(near: Ints, truth: Ints, given: Ints) -> Ints:
    """Returns the commonest answer of each row's neighbours, without its own class; the nearest's among equals; −1 for
    none."""
    answers = np.where(near >= 0, given[near] if len(given) else near, -1)
    answers[answers == truth[:, None]] = -1
    votes = np.zeros(answers.shape, np.int16)
    for column in range(answers.shape[1]):
        votes += answers == answers[:, column : column + 1]
    votes[answers < 0] = 0
    best = np.argmax(votes, axis=1)  # the first of equals is the nearest
    commonest: Ints = answers[np.arange(len(answers)), best]
    return commonest


def _spread(of_asked: NDArray[Kind], rows: Ints, n: int, empty: int | bool = -1) -> NDArray[Kind]:
    """Returns rows of all images, those that were not asked about with `empty`."""
    result: NDArray[Kind] = np.full((n, *of_asked.shape[1:]), empty, of_asked.dtype)
    result[rows] = of_asked
    return result
