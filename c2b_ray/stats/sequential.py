"""Evidence on bias scores that stays valid under continuous monitoring, by betting on contrasts.

Knows outcomes (right or wrong) in rounds of one image per cell; does not know where the images come from or what a
further round costs. For counts of a size fixed beforehand `intervals` are sharper.

A round's contrast X_j = Y_j - mean of Y_k over k != j lies in [-1, 1] and has expectation phi_j. A gambler who starts
with 1 and stakes the share c of his capital on "E[X] > m" holds, after rounds 1..t,

    E_c(m) = product over s of (1 - c + c * (1 + X_s) / (1 + m))

whose expectation is at most 1 at any stopping time if E[X] <= m. A weighted mean over stakes keeps that, does not
depend on the order of the rounds, and needs no estimate: it is what is used here. Waudby-Smith & Ramdas 2024,
"Estimating means of bounded random variables by betting", section 4 (capital processes) and Appendix B (grids of bets).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from c2b_ray.stats.intervals import Verdict, benjamini_hochberg
from c2b_ray.stats.roots import checked_levels, deviations
from c2b_ray.stats.sample_size import MOST_IMAGES
from c2b_ray.stats.scores import Floats, Ints

STAKES = np.geomspace(0.05, 0.995, 10)
"""Stakes, as shares of the capital: the smallest suit small differences at medium accuracies, the largest near
certainties."""

WEIGHTS = STAKES / STAKES.sum()
"""Weights of the stakes in the average: most cells of most classifiers are near certainties, where high stakes pay
sooner."""

TWO_SIDED = 0.03  # by simulation: from here on the larger of both sides keeps its level

HALVINGS = 30
MOST_GAIN = 700.0  # of a capital's logarithm: exp(710) is beyond float64


@dataclass(frozen=True)
class Evidence:
    """E-values on each cell's phi, float64 (cells,), 0 or more: large where the opposite of the named claim is refuted.

    An e-value e has expectation at most 1 if the claim is false; P(it ever reaches 1/alpha) <= alpha (Ville 1939).
    """

    phi: Floats  # the estimate, mean of the contrasts
    above_tau: Floats  # phi > tau
    below_minus_tau: Floats  # phi < -tau
    below_tau: Floats  # phi < tau
    above_minus_tau: Floats  # phi > -tau
    tau: float = 0.0


def sequential_evidence(outcomes: ArrayLike, tau: float) -> Evidence:
    """Computes the evidence on every cell of one attribute after any number of rounds.

    Args: outcomes: booleans of shape (rounds, cells), a round being one image of every cell; tau: in [0, 1).
    Returns: `Evidence`. No rounds: phi is NaN and every e-value 1. With fewer than two cells likewise.
    Raises: ValueError for another shape, other values than right and wrong, or for tau.
    """
    return evidence_paths(outcomes, tau)[-1]


def evidence_paths(outcomes: ArrayLike, tau: float, step: int | None = None) -> list[Evidence]:
    """Returns `sequential_evidence` after `step`, 2 * `step`, ... and all rounds; only after all rounds where step is
    None."""
    x = _contrasts(outcomes)
    _checked_tau(tau)
    rounds, cells = x.shape
    if not rounds:
        ones = np.ones(cells)
        return [Evidence(np.full(cells, np.nan), ones, ones, ones, ones, tau)]
    ends = np.array([*range(step, rounds, step), rounds] if step else [rounds]) - 1
    phi = np.cumsum(x, axis=0)[ends] / (ends + 1)[:, None]
    gains = [_gains(side, m)[ends] for side in (x, -x) for m in (tau, -tau)]
    return [
        Evidence(phi[i], above_tau=a, above_minus_tau=b, below_minus_tau=c, below_tau=d, tau=tau)
        for i, (a, b, c, d) in enumerate(zip(*gains, strict=True))
    ]


def confidence_sequence(outcomes: ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Computes limits of every cell's phi that hold at all rounds at once: all m that neither gambler has refuted by
    2/alpha.

    Args: outcomes: booleans of shape (rounds, cells); confidence: in (0, 1).
    Returns: (low, high), float64 (cells,), within [-1, 1]; (-1, 1) before the first round. With probability
    `confidence` phi_j lies within them after every round, so drawing may be stopped at any time by looking at them.
    Raises: ValueError as `sequential_evidence`, or for the confidence.
    """
    x = _contrasts(outcomes)
    checked_levels(confidence=confidence)
    threshold = np.log(2 / (1 - confidence))
    return _refuted_up_to(x, threshold), -_refuted_up_to(-x, threshold)


def sequential_p_values(evidence: Evidence) -> Floats:
    """Returns 1/e of the claim "|phi| > tau": p-values that hold at any stopping time.

    e is that of the claim on phi's side, "phi > tau" or "phi < -tau": taking the side from the data costs nothing where
    tau is beyond chance's reach. Below a tau of `TWO_SIDED` either side can lead by chance: there e is the mean of
    both, which is an e-value whatever the side (at tau = 0 the larger one is above 20 in .066 of runs).

    The contrast of a round is assumed to have the mean phi given all earlier rounds: images of each cell come in random
    order. Where captions differ, the evidence is about these captions' images, not about other captions.

    Returns: float64 (cells,) in [0, 1]; NaN where phi is.
    """
    sides = evidence.above_tau, evidence.below_minus_tau
    e_value = (sides[0] + sides[1]) / 2 if evidence.tau < TWO_SIDED else np.where(evidence.phi > 0, *sides)
    p_values: Floats = np.where(np.isnan(evidence.phi), np.nan, 1 / np.maximum(e_value, 1.0))
    return p_values


def sequential_verdicts(
    evidence: Evidence, tau: float, alpha: float, tested: NDArray[np.bool_] | None = None
) -> list[Verdict]:
    """Returns the four-valued verdict on every cell of one family, at any stopping time.

    "for" or "against" where |phi| > tau and Benjamini & Hochberg's rule rejects at 1/e: e-BH (Wang & Ramdas 2022),
    which controls the false discovery rate whatever the dependence between cells. "none" where both "phi >= tau" and
    "phi <= -tau" are refuted at alpha. Else "undetermined".

    Args: evidence of all cells, concatenated over attributes (`joined`); tau as it was for the evidence; alpha: in (0,
    1); tested: the cells of the family; all cells where None. The others are "undetermined".
    Returns: one string per cell.
    """
    among = np.ones(len(evidence.phi), dtype=bool) if tested is None else tested
    q = benjamini_hochberg(np.where(among, sequential_p_values(evidence), np.nan))
    is_finding = (q <= alpha) & (np.abs(evidence.phi) > tau)
    small = (np.minimum(evidence.below_tau, evidence.above_minus_tau) >= 1 / alpha) & among
    answers: list[Verdict] = []
    for finding, is_for, is_small in zip(is_finding.tolist(), (evidence.phi > 0).tolist(), small.tolist(), strict=True):
        if finding:
            answers.append("for" if is_for else "against")
        else:
            answers.append("none" if is_small else "undetermined")
    return answers


def rounds_to_settle(outcomes: ArrayLike, tau: float, alpha: float = 0.05, step: float | None = None) -> Ints:
    """Predicts the total number of rounds until a verdict if outcomes go on as so far: the verdict of a bias where
    |phi| > tau, else "none".

    The share w of the capital that is on the stake c grows by g = mean of log(1 - c + c * (1 + X) / (1 + m)) a round;
    it reaches 1/alpha after (log(1/alpha) - log(w)) / g rounds. The soonest stake counts.

    Args: outcomes: booleans of shape (rounds, cells); tau: in [0, 1); alpha: in (0, 1); step: the level of Benjamini &
    Hochberg's procedure that a bias has to pass, in (0, 1); alpha where None.
    Returns: int64 (cells,); -1 without rounds, and where more than `MOST_IMAGES` would be needed.
    """
    x = _contrasts(outcomes)
    step = alpha if step is None else step
    checked_levels(alpha=alpha, step=step)
    _checked_tau(tau)
    if not len(x):
        return np.full(x.shape[1], -1)
    phi = x.mean(axis=0)
    sign = np.where(phi > 0, 1.0, -1.0)
    biased = _rounds_until(sign * x, tau, step / 2 if tau < TWO_SIDED else step)
    none = np.maximum(_rounds_until(x, -tau, alpha), _rounds_until(-x, -tau, alpha))
    rounds = np.ceil(np.where(np.abs(phi) > tau, biased, none))
    return np.where(rounds <= MOST_IMAGES, rounds, -1).astype(np.int64)


def _rounds_until(x: Floats, m: float, alpha: float) -> Floats:
    """Computes the rounds until "E[X] <= m" is refuted by 1/alpha, infinite where no stake gains; (cells,)."""
    growth = np.log1p(STAKES[:, None, None] * ((1 + x) / (1 + m) - 1)).mean(axis=1)
    to_gain = np.log(1 / alpha) - np.log(WEIGHTS)[:, None]
    rounds = np.divide(to_gain, growth, out=np.full(growth.shape, np.inf), where=growth > 0)
    soonest: Floats = rounds.min(axis=0)
    return soonest


def chances_to_settle(
    outcomes: ArrayLike,
    rounds: int,
    tau: float,
    alpha: float = 0.05,
    step: float | None = None,
    between: ArrayLike = 0.0,
) -> tuple[Floats, Floats]:
    """Predicts how likely each cell has a verdict after `rounds` rounds in all, given those so far.

    An approximation, on which no verdict depends. The mean contrast after N rounds is taken as normal around phi so
    far, with the variance s^2 * (1 / n - 1 / N). s^2 is that of a round's contrast, shrunk towards 1/2 by the weight of
    two rounds, since equal outcomes do not prove that there is no variance. The best stake's capital after N rounds
    with a mean d beyond the limit is about exp(N * min(d^2 / (2 * (s^2 + d^2)), d)) (Waudby-Smith & Ramdas 2024,
    section 4), of which a stake has a share of 1 / `len(STAKES)`; that must reach 1/step for a bias and 1/alpha for
    "none". A verdict also needs a score that agrees, whose deviation sqrt(s^2 / N + B^2) allows for the captions: the
    mean must lie z_(1 - alpha) of these deviations beyond tau for a bias, z_(1 - alpha / 2) within it for "none".
    Where captions differ much, no number of images brings "none".

    Args: outcomes: booleans of shape (rounds so far, cells); rounds: the number in all; tau, alpha and step as for
    `rounds_to_settle`; between: B, the standard deviation of phi over samples of captions, 0 or more, of a shape that
    broadcasts to (cells,) (`stats.bias_score_deviations`).
    Returns: (of a bias, of "none"), float64 (cells,) in [0, 1]. Before the first round, 1 each; without further rounds,
    0 each.
    """
    x = _contrasts(outcomes)
    step = alpha if step is None else step
    checked_levels(alpha=alpha, step=step)
    _checked_tau(tau)
    n, cells = x.shape
    if rounds <= n:
        return np.zeros(cells), np.zeros(cells)
    if not n:
        return np.ones(cells), np.ones(cells)
    phi, variance = x.mean(axis=0), (n * x.var(axis=0) + 1) / (n + 2)
    spread = np.sqrt(variance * (1 / n - 1 / rounds))
    of_score = np.sqrt(variance / rounds + np.square(between))
    above_tau = tau + np.maximum(_excess_needed(variance, rounds, step), -ndtri(alpha) * of_score)
    within_tau = np.maximum(
        tau - np.maximum(_excess_needed(variance, rounds, alpha), deviations(1 - alpha) * of_score), 0
    )
    bias: Floats = ndtr((phi - above_tau) / spread) + ndtr((-phi - above_tau) / spread)
    none: Floats = np.where(within_tau > 0, ndtr((within_tau - phi) / spread) - ndtr((-within_tau - phi) / spread), 0.0)
    return bias, none


def _excess_needed(variance: Floats, rounds: int, level: float) -> Floats:
    """Computes the distance beyond a limit at which the capital reaches 1/level after these rounds; infinite where no
    distance suffices."""
    gain = np.log(len(STAKES) / level)
    if rounds <= 2 * gain:
        return np.full(len(variance), np.inf)
    distance: Floats = np.maximum(np.sqrt(2 * gain * variance / (rounds - 2 * gain)), gain / rounds)
    return distance


def joined(families: list[Evidence]) -> Evidence:
    """Joins the evidence of several attributes' cells into one family."""

    def column(name: str) -> Floats:
        return np.concatenate([*(getattr(family, name) for family in families), np.zeros(0)])

    return Evidence(
        column("phi"),
        above_tau=column("above_tau"),
        below_minus_tau=column("below_minus_tau"),
        below_tau=column("below_tau"),
        above_minus_tau=column("above_minus_tau"),
        tau=families[0].tau if families else 0.0,
    )


def _checked_tau(tau: float) -> None:
    if not 0 <= tau < 1:
        raise ValueError(f"tau = {tau} must lie in [0, 1)")


def _contrasts(outcomes: ArrayLike) -> Floats:
    """Returns X of every round and cell; no rounds where there are fewer than two cells to compare."""
    y = np.asarray(outcomes)
    if y.ndim != 2:
        raise ValueError(f"outcomes must have shape (rounds, cells), got {y.shape}")
    y = y.astype(np.float64)
    if not np.isin(y, (0.0, 1.0)).all():
        raise ValueError("outcomes must be right (1) or wrong (0)")
    cells = y.shape[1]
    if cells < 2:
        return np.zeros((0, cells))
    contrasts: Floats = y - (y.sum(axis=1, keepdims=True) - y) / (cells - 1)
    return contrasts


def _log_gain(x: Floats, m: float | Floats) -> Floats:
    """Computes the log of the average capital against "E[X] <= m", (cells,)."""
    ratio: NDArray[np.float64] = (1 + x) / (1 + np.asarray(m))
    log_gains = np.log1p(STAKES[:, None, None] * (ratio - 1)).sum(axis=1)
    return _log_of_sum(log_gains + np.log(WEIGHTS)[:, None])


def _log_of_sum(logs: Floats) -> Floats:
    """Computes the log of the sum of exp(logs) over the first axis; SciPy's function takes longer on small arrays."""
    highest = logs.max(axis=0)
    summed: Floats = highest + np.log(np.exp(logs - highest).sum(axis=0))
    return summed


def _gains(x: Floats, m: float) -> Floats:
    """Computes the average capital against "E[X] <= m" after every round, (rounds, cells)."""
    log_gains = np.log1p(STAKES[:, None, None] * ((1 + x) / (1 + m) - 1)).cumsum(axis=1)
    logs = _log_of_sum(log_gains + np.log(WEIGHTS)[:, None, None])
    gains: Floats = np.exp(np.minimum(logs, MOST_GAIN))
    return gains


def _refuted_up_to(x: Floats, threshold: float) -> Floats:
    """Finds by bisection the largest m for which "E[X] <= m" is refuted, -1 where none is; the gain falls as m
    grows."""
    refuted, not_refuted = np.full(x.shape[1], -1.0), np.ones(x.shape[1])
    for _ in range(HALVINGS):
        middle = (refuted + not_refuted) / 2
        is_refuted = _log_gain(x, middle) >= threshold
        refuted, not_refuted = np.where(is_refuted, middle, refuted), np.where(is_refuted, not_refuted, middle)
    return refuted
