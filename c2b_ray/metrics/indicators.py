"""Stand-ins for what images show, where the truth is unseen and only the verifier's error rates are known.

Knows numbered values: what a verifier said that each image shows of every attribute, how it errs, and which value an
image was drawn for. Knows nothing of images, captions or classifiers.

Whether an image shows a value is 0 or 1, and is not seen. A stand-in is a number with that expectation, given what the
image shows: the row of the inverse of the verifier's confusion matrix that belongs to its answer (corrected scores:
Nakamura 1990; Fuller 1987, section 3.1). Where the image was drawn for a value of the attribute, caption and answer
together say more: with r the chances of what such an image shows, the stand-in is r' E[rr']^-1 diag(E[r]). Products of
stand-ins of two attributes have the right expectation too where the verifier's errors are independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.metrics.scores import Floats

__all__ = ["Shown", "shown"]

Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]

LEAST_SINGULAR = 0.25
"""The least singular value of a confusion matrix. Matrices are drawn towards the identity until their inverse magnifies
no more than fourfold."""

ITERATIONS = 200
LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class Shown:
    """Stand-ins for what N images show of all attributes.

    `columns` (N, 1 + all values): a column of ones, then the attributes' stand-ins side by side. `blocks`: each
    attribute's columns. `drawn` (N, attributes): the value that an image was drawn for, -1 for none. `inverses`,
    `spread`: of each attribute, the inverse of its confusion matrix, and the covariances (values, answers, answers) of
    that matrix' rows.
    """

    columns: Floats
    blocks: tuple[slice, ...]
    drawn: Whole
    inverses: tuple[Floats, ...]
    spread: tuple[Floats, ...]
    by_answer: Mask  # (N, attributes): the stand-in rests on the answer alone


def shown(answers: ArrayLike, drawn: ArrayLike, calibrations: Sequence[ArrayLike]) -> Shown:
    """Stand-ins for what images show.

    Args: answers: (N, attributes), numbers of the values that a verifier named, -1 where none. drawn: of that shape,
    numbers of the values that images were drawn for, -1 where an image was not drawn for one value of the attribute.
    calibrations: of each attribute, numbers (values, answers): images known to show a value, by answer; a value without
    any counts as always recognised.
    Returns: `Shown`. A missing answer gives the mean stand-in.
    Raises: ValueError where shapes do not agree or a number names no value.
    """
    a, d = np.asarray(answers, np.int64), np.asarray(drawn, np.int64)
    known = [np.asarray(table, np.float64) for table in calibrations]
    if a.ndim != 2 or a.shape != d.shape or a.shape[1] != len(known):
        raise ValueError(f"answers and drawn must be (images, {len(known)} attributes), got {a.shape} and {d.shape}")
    for b, table in enumerate(known):
        if table.ndim != 2 or table.shape[0] != table.shape[1]:
            raise ValueError(f"calibrations[{b}] must be square, got shape {table.shape}")
        numbers = np.concatenate([a[:, b], d[:, b], [-1]])
        if numbers.min() < -1 or numbers.max() >= len(table):
            raise ValueError(f"attribute {b} has values 0 to {len(table) - 1}, or -1 for none")
    columns, blocks, inverses, spread, plain = [np.ones((len(a), 1))], [], [], [], []
    start = 1
    for b, table in enumerate(known):
        confusion = _confusion(table)
        inverse = np.asarray(np.linalg.inv(confusion), np.float64)
        of_answer, alone = _stand_ins(a[:, b], d[:, b], confusion, inverse)
        columns.append(of_answer)
        blocks.append(slice(start, start + len(table)))
        start += len(table)
        inverses.append(inverse)
        spread.append(_row_covariances(confusion, table.sum(axis=1)))
        plain.append(alone)
    by_answer = np.stack(plain, axis=1) if plain else np.zeros(a.shape, bool)
    return Shown(np.hstack(columns), tuple(blocks), d, tuple(inverses), tuple(spread), by_answer)


def _confusion(table: Floats) -> Floats:
    """Computes P(answer | value), drawn towards the identity until the inverse is bounded by `LEAST_SINGULAR`."""
    rows = table + np.eye(len(table))
    confusion: Floats = rows / rows.sum(axis=1, keepdims=True)
    for pull in np.linspace(0, 1, 21):
        drawn: Floats = (1 - pull) * confusion + pull * np.eye(len(table))
        if np.linalg.svd(drawn, compute_uv=False).min(initial=1.0) >= LEAST_SINGULAR:
            return drawn
    return np.eye(len(table))


def _row_covariances(confusion: Floats, counts: Floats) -> Floats:
    whole = np.where(counts > 0, counts + 1, np.inf)[:, None, None]
    result: Floats = (
        np.einsum("kw,wv->kwv", confusion, np.eye(len(confusion))) - confusion[:, :, None] * confusion[:, None, :]
    ) / whole
    return result


def _stand_ins(answers: Whole, drawn: Whole, confusion: Floats, inverse: Floats) -> tuple[Floats, Mask]:
    """Returns one row per image whose expectation, given what the image shows, is 1 at that value and 0 elsewhere; and
    a mask of the rows that rest on the answer alone."""
    size = len(confusion)
    said = answers >= 0
    alone = np.ones(len(answers), bool)
    result = np.zeros((len(answers), size))
    result[said] = inverse[answers[said]]
    both = said & (drawn >= 0)
    if both.any():
        chance = _posterior(answers[both], drawn[both], confusion)
        square, shares = chance.T @ chance / len(chance), chance.mean(axis=0)
        root = np.sqrt(np.maximum(shares, 1e-9))
        if (shares > LEAST_SHARE).all() and np.linalg.eigvalsh(square / root[:, None] / root).min() > LEAST_SINGULAR**2:
            result[both] = chance @ np.linalg.solve(square, np.diag(shares))
            alone[both] = False
    if said.any():
        result[~said] = result[said].mean(axis=0)
    alone[~said] = False
    return result, alone


def _posterior(answers: Whole, drawn: Whole, confusion: Floats) -> Floats:
    """Computes P(shows k | drawn for j, answer w), with the shares of the values that cells show by maximum likelihood
    (EM)."""
    size = len(confusion)
    counts = np.zeros((size, size))
    np.add.at(counts, (drawn, answers), 1.0)
    shares = np.full((size, size), 1 / size) + np.eye(size)
    shares /= shares.sum(axis=1, keepdims=True)
    for _ in range(ITERATIONS):
        joint = shares[:, :, None] * confusion[None]  # (j, k, w)
        expected = counts[:, None] * joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-12)
        shares = expected.sum(axis=2) + 0.5 / size
        shares /= shares.sum(axis=1, keepdims=True)
    joint = shares[:, :, None] * confusion[None]
    joint /= np.maximum(joint.sum(axis=1, keepdims=True), 1e-12)
    result: Floats = joint[drawn, :, answers]
    return result
