"""What a model's numbers are: logits, probabilities, their logarithms or percentages, by what it gives.

A graph's last node tells little: a softmax may be followed by a product with one, be averaged with another, or be
written out. So the numbers themselves decide, on pictures that are varied enough (`trial_pictures`):

    probabilities        no number below 0, and the rows sum to 1 while the numbers vary
    percent              likewise, to 100
    log-probabilities    none above 0, and exp of the rows sums to 1
    logits               what is left

What fits two of them, or none well, is refused with the option that states it, and so is a statement that contradicts
the numbers. Scores of each label on its own (sigmoids, and the one number of a model with one output) are logits or
probabilities that need not sum to 1; a graph whose last node is a Sigmoid gives such, and otherwise the head is stated.
It knows no library of models.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import shake_256
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from c2b_ray.errors import ServiceError, SpecError, nearest
from c2b_ray.roles import Floats, Head, Pixels

Rows = NDArray[np.float64]
"""Numbers on the trial pictures, (pictures, labels), without rows that hold none."""

Kind = Literal["logits", "probabilities", "log-probabilities", "percent"]
Hint = Literal["softmax", "sigmoid", ""]
"""The operator that gives a graph's output, where it is known. It settles what the numbers leave open."""
KINDS: tuple[Kind, ...] = get_args(Kind)
TINY = float(np.finfo(np.float32).tiny)
"""Replaces a probability of 0: its logarithm, −87, is finite, and softmax maps it back to 0."""
SURE, NEAR = 1e-3, 2e-2
"""How far sums may be from 1: by computing in half precision; and where that is too far to be sure and too near to be
chance."""
RUNNING = 0.05
"""The tolerance for sums on real pictures, once the kind is known."""
VARIED = 1e-3
"""The least difference between two pictures' numbers that tells anything, as a part of the largest number."""


@dataclass(frozen=True)
class OutputKind:
    """The `kind`, the evidence for it in words, how far a row's probabilities may sum from 1, and whether the kind is
    `assumed`, because the numbers were the same for all pictures. `scores`: whether each number is a label's on its
    own, whatever the others are."""

    kind: Kind
    evidence: str
    tolerance: float = RUNNING
    assumed: bool = False
    scores: bool = False

    def as_logits(self, rows: Floats) -> Floats:
        """Returns logits whose softmax, or of scores whose sigmoid, is the model's probabilities; NaN stays NaN.

        Raises ServiceError for a row that is not of this kind.
        """
        if self.kind == "logits":
            return rows
        if self.scores:
            return self._log_odds(rows)
        if self.kind == "log-probabilities":
            return np.maximum(rows, np.float32(np.log(TINY)))
        shares = rows / np.float32(100) if self.kind == "percent" else rows
        finite = shares[np.isfinite(shares).all(axis=1)]
        deviation = np.abs(finite.sum(axis=1, dtype=np.float64) - 1)
        wrong = (deviation > self.tolerance) | (finite < -SURE).any(axis=1)
        if wrong.any():
            row = ", ".join(f"{value:.4g}" for value in finite[wrong][0][:5])
            raise ServiceError(
                f"its numbers are {self.kind}, {self.evidence}, but for one of these pictures it gives {row}, …; "
                "if they are logits, state that the output is logits"
            )
        return np.log(np.maximum(shares, np.float32(TINY)))

    def _log_odds(self, rows: Floats) -> Floats:
        """Returns log p / (1 − p) of each number's probability p."""
        p = rows.astype(np.float64)
        p = (
            np.exp(np.minimum(p, NEAR))
            if self.kind == "log-probabilities"
            else p / (100 if self.kind == "percent" else 1)
        )
        wrong = (p < -SURE) | (p > 1 + SURE)
        if wrong.any():
            raise ServiceError(
                f"its numbers are {self.kind}, {self.evidence}, but for one of these pictures it gives "
                f"{rows[wrong][0]:.4g}; if they are logits, state that the output is logits"
            )
        p = np.clip(p, TINY, 1 - 2.0**-24)
        odds: Floats = (np.log(p) - np.log1p(-p)).astype(np.float32)
        return odds


@dataclass(frozen=True)
class _Fit:
    """How well rows fit a distribution: `off` is the largest distance of a sum from 1, `rounding` what rounding to few
    digits explains of it, `spread` the largest difference of a number between pictures, `most` the largest number."""

    off: float
    rounding: float
    spread: float
    most: float

    @property
    def near(self) -> bool:
        return self.off <= NEAR + self.rounding

    @property
    def sure(self) -> bool:
        """Whether the sums stay at 1 while the numbers vary by much more than the sums do."""
        unexplained = max(0.0, self.off - self.rounding)
        return unexplained <= SURE and self.spread >= max(VARIED * self.most, 20 * unexplained)


def kind_named(text: str, where: str) -> Kind:
    """Returns the kind that a text states. Raises SpecError for another word."""
    for kind in KINDS:
        if text == kind:
            return kind
    raise SpecError(f"{where}: output={text!r}; {nearest(text, KINDS)}")


def judged(
    rows: Floats,
    where: str,
    stated: Kind | None = None,
    hint: Hint = "",
    how: str = "?output=",
    assuming: bool = False,
    head: Head | None = None,
) -> OutputKind:
    """Returns what a model's numbers on varied pictures are; `rows` is float32 (pictures, labels).

    `head`: whether the labels exclude each other, where that is stated. `how`: what states the kind, for messages.
    `assuming`: numbers that are the same for all pictures are taken for probabilities where they can be, else for
    logits, and not asked about.

    Raises SpecError where the numbers contradict what is `stated`, are of no kind that can be used, or leave it open.
    """
    valid = rows[~(np.isnan(rows) | np.isposinf(rows)).any(axis=1)].astype(np.float64)
    valid = np.where(np.isneginf(valid), np.log(TINY), valid)
    if rows.shape[1] == 1 or head == "sigmoid":
        return _of_scores(valid, where, stated, hint, how, assuming)
    if assuming and not stated and (not len(valid) or np.ptp(valid, axis=0).max() < VARIED):
        is_distribution = (
            len(valid)
            and (distribution := _distribution(valid)) is not None
            and distribution.off <= SURE + distribution.rounding
        )
        return OutputKind(
            "probabilities" if is_distribution else "logits", "the same numbers for each picture", assumed=True
        )
    if not len(valid):
        if stated or hint == "softmax":
            return OutputKind(stated or "probabilities", "as stated" if stated else "by its last node, Softmax")
        raise SpecError(f"{where}: it gives no number on any of the trial pictures, so {_ask(how)}")
    if stated:
        return _agreeing(valid, where, stated, hint, how)
    by_node = None if head else _by_last_node(valid, hint)
    return by_node or _found(valid, where, hint, how)


def _of_scores(rows: Rows, where: str, stated: Kind | None, hint: Hint, how: str, assuming: bool) -> OutputKind:
    """Returns what the scores of labels on their own are. Raises SpecError where that is left open."""
    low, high = (float(rows.min()), float(rows.max())) if len(rows) else (0.0, 1.0)
    unit = low >= -1e-4 and high <= 1 + SURE
    if hint == "softmax":
        raise SpecError(
            f"{where}: its last node is Softmax, whose probabilities are of labels that exclude each other, and no "
            "scores of each on its own; of one output it is 1 for every picture. Export the score before it"
        )
    if stated:
        limits: dict[Kind, tuple[float, float]] = {
            "probabilities": (-1e-4, 1 + SURE),
            "percent": (-1e-2, 100 * (1 + SURE)),
            "log-probabilities": (-np.inf, SURE),
        }
        least, most = limits.get(stated, (-np.inf, np.inf))
        if low < least or high > most or (stated == "logits" and hint == "sigmoid" and unit):
            last = ", by its last node, Sigmoid" if stated == "logits" else ""
            raise SpecError(
                f"{where}: {how}{stated}, but its numbers on the trial pictures reach from {low:.4g} to "
                f"{high:.4g}{last}"
            )
        return OutputKind(stated, f"as {how}{stated} states", scores=True)
    if hint == "sigmoid" and unit:
        return OutputKind("probabilities", "by its last node, Sigmoid", scores=True)
    if assuming and (not len(rows) or np.ptp(rows, axis=0).max() < VARIED):
        return OutputKind("logits", "the same numbers for each picture", assumed=True, scores=True)
    if low >= 0 and high <= 100 * (1 + SURE):
        seen = f"reach from {low:.4g} to {high:.4g} on the trial pictures" if len(rows) else "are unknown"
        raise SpecError(f"{where}: its scores {seen}, and may be probabilities or logits, so {_ask(how)}")
    return OutputKind("logits", "scores that are no probabilities", scores=True)


def _by_last_node(rows: Rows, hint: Hint) -> OutputKind | None:
    """Returns the kind of scores whose graph ends in a Sigmoid, and which are no distribution; None of others."""
    fit = _distribution(rows) if hint == "sigmoid" else None
    return None if fit is None or fit.near else OutputKind("probabilities", "by its last node, Sigmoid", scores=True)


def looks_like_probabilities(rows: Floats) -> bool:
    """Returns whether all rows are distributions, as logits can be by accident only where they hardly vary."""
    finite = rows[np.isfinite(rows).all(axis=1)].astype(np.float64)
    return (
        len(finite) > 1
        and finite.shape[1] > 1
        and (distribution := _distribution(finite)) is not None
        and distribution.sure
    )


def _found(rows: Rows, where: str, hint: Hint, how: str) -> OutputKind:
    scales: tuple[tuple[Kind, float, str], ...] = (("probabilities", 1, "1"), ("percent", 100, "100"))
    for kind, scale, total in scales:
        distribution = _distribution(rows / scale)
        if distribution is None or (scale > 1 and rows.max() <= 1):
            continue
        if distribution.sure or (distribution.near and hint == "softmax"):
            return OutputKind(kind, f"none below 0, and rows sum to {total}", max(RUNNING, 2 * distribution.rounding))
        if distribution.near:
            reason = (
                "hardly differ between pictures"
                if distribution.off <= SURE + distribution.rounding
                else f"sum to {total} but for {distribution.off:.2g}"
            )
            raise SpecError(
                f"{where}: its numbers on the trial pictures look like {kind} and {reason}, so {_ask(how)} "
                f"({_example(rows)})"
            )
    if _sum_off(np.exp(np.minimum(rows, 1))) <= SURE and rows.max() <= SURE:
        return OutputKind("log-probabilities", "none above 0, and exp of the rows sums to 1")
    _refuse_scores(rows, where, hint, how)
    return OutputKind("logits", "rows that are no distribution")


def _refuse_scores(rows: Rows, where: str, hint: Hint, how: str) -> None:
    """Raises SpecError for numbers that are neither logits nor a distribution."""
    sums = rows.sum(axis=1)
    steady = rows.min() >= 0 and np.ptp(sums) <= SURE * max(1.0, abs(sums[0])) and np.ptp(rows, axis=0).max() >= VARIED
    if hint == "softmax":
        raise SpecError(
            f"{where}: its last node is Softmax, but the rows sum to {sums[0]:.4g}: it is not over the labels; export "
            "the softmax along the axis of labels, or the logits"
        )
    if hint == "sigmoid" or (rows.min() >= 0 and rows.max() <= 1):
        heads = f"; all sum to {sums[0]:.4g}, as those of several heads do" if steady else ""
        unless = "" if hint else f"; if they are logits by training, state {how}logits"
        raise SpecError(
            f"{where}: its numbers lie between 0 and 1 and do not sum to 1{heads}: if they are scores of each label on "
            f"its own (sigmoids, multi-label), state {how.replace('output', 'head')}sigmoid; if the labels exclude "
            f"each other, export their softmax{unless} ({_example(rows)})"
        )
    if steady and (np.count_nonzero(rows, axis=1) > 1).any():
        raise SpecError(
            f"{where}: its numbers are none below 0 and all rows sum to {sums[0]:.4g}, as probabilities times a factor "
            f"do; export the probabilities themselves, or state {how}logits if they are logits ({_example(rows)})"
        )
    bounded = np.clip(rows, -300, 300)
    is_spread = (np.count_nonzero(rows, axis=1) > 1).any()  # those of nine times one label are logits
    for name, shares in (("−log p", np.exp(-bounded)), ("log2 p", np.exp2(bounded)), ("log10 p", 10.0**bounded)):
        if is_spread and _sum_off(shares) <= SURE / 10 and np.ptp(shares, axis=0).max() >= 20 * SURE:
            raise SpecError(
                f"{where}: its numbers are {name} of probabilities p; export p, or log p to base e; if they are "
                f"logits, state {how}logits ({_example(rows)})"
            )


def _agreeing(rows: Rows, where: str, stated: Kind, hint: Hint, how: str) -> OutputKind:
    """Returns the stated kind. Raises SpecError where the numbers contradict it."""
    evidence = f"as {how}{stated} states"
    if stated == "logits":
        for kind, scale in (("probabilities", 1), ("percent", 100)):
            distribution = _distribution(rows / scale)
            if (
                distribution is not None
                and (scale == 1 or rows.max() > 1)
                and (distribution.sure or (distribution.near and hint == "softmax"))
            ):
                raise SpecError(
                    f"{where}: {how}logits, but on the trial pictures its rows are {kind}: none below 0, and they sum "
                    f"to {scale}; state {how}{kind}, or nothing ({_example(rows)})"
                )
        if hint and rows.min() >= 0 and rows.max() <= 1:
            _refuse_scores(rows, where, hint, how)
        return OutputKind(stated, evidence)
    if stated == "log-probabilities":
        if rows.max() > NEAR or _sum_off(np.exp(np.minimum(rows, 1))) > NEAR:
            raise SpecError(
                f"{where}: {how}{stated}, but exp of the rows on the trial pictures does not sum to 1; {_example(rows)}"
            )
        return OutputKind(stated, evidence)
    distribution = _distribution(rows / (100 if stated == "percent" else 1))
    if distribution is None or not distribution.near:
        total = rows.sum(axis=1)
        raise SpecError(
            f"{where}: {how}{stated}, but on the trial pictures its rows are none: they reach from {rows.min():.4g} to "
            f"{rows.max():.4g} and sum to {total.min():.4g} to {total.max():.4g} ({_example(rows)})"
        )
    return OutputKind(stated, evidence, max(RUNNING, 2 * distribution.rounding))


def _distribution(rows: Rows) -> _Fit | None:
    """Returns how well rows fit a distribution; None where a number is below 0 or above 1."""
    if rows.min() < -1e-4 or rows.max() > 1 + SURE:
        return None
    rounding = 0.0
    for digits in (2, 3, 4, 5):
        if np.abs(rows - np.round(rows, digits)).max() <= 2e-7:
            rounding = min(0.3, rows.shape[1] * 0.5 * 10.0**-digits)
            break
    return _Fit(_sum_off(rows), rounding, float(np.ptp(rows, axis=0).max()), float(rows.max()))


def _sum_off(shares: Rows) -> float:
    with np.errstate(over="ignore"):
        return float(np.abs(shares.sum(axis=1) - 1).max())


def _ask(option: str) -> str:
    return f"state what they are: {option}{' or '.join((', '.join(KINDS[:-1]), KINDS[-1]))}"


def _example(rows: Rows) -> str:
    row = rows[-1]
    return f"a row is {', '.join(f'{value:.4g}' for value in row[:5])}{', …' if len(row) > 5 else ''}"


# The pictures on which a model is tried before it is used, the same in every process and on every machine: blank,
# coloured, graded, patterned and noisy, so that numbers which sum to one on all of them do so by the model's making and
# not by accident.


BLANK = ((0, 0, 0), (128, 128, 128), (255, 255, 255), (230, 25, 25), (25, 200, 40), (30, 60, 235))


def trial_pictures(height: int, width: int) -> list[Pixels]:
    """Returns fourteen pictures, uint8 (height, width, 3), the most telling ones last."""
    pictures = [np.full((height, width, 3), color, np.uint8) for color in BLANK]
    rows, columns = np.indices((height, width))
    fades = 255 * columns // max(1, width - 1), 255 * rows // max(1, height - 1)
    pictures.append(np.stack([fades[0], fades[1], 255 - fades[0]], axis=2).astype(np.uint8))
    pictures.append(np.stack([255 - fades[1]] * 3, axis=2).astype(np.uint8))
    squares = (columns * 8 // width + rows * 8 // height) % 2 == 0
    pictures.append(np.where(squares[..., None], (250, 220, 40), (20, 30, 90)).astype(np.uint8))
    for seed, cells in enumerate((4, 7, 16, 32, max(height, width))):
        # Of a hash, because NumPy may change its generators' streams.
        data = np.frombuffer(shake_256(f"trial {seed}".encode()).digest(cells * cells * 3), np.uint8)
        pictures.append(data.reshape(cells, cells, 3)[rows * cells // height, columns * cells // width])
    return pictures
