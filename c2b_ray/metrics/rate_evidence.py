"""Evidence that failures are more frequent than at baseline, valid whenever one looks and however draws are allotted.

Knows failures and draws in batches: n1 draws of a caption beside n0 of its baseline, both numbers fixed before any of
them is drawn (they may depend on all that was drawn earlier, of whatever caption). Does not know what is drawn next.

The claim against which evidence is gathered is "pi1 <= rho * pi0", pi1 and pi0 unknown. A bet on a batch names an
alternative (a1, a0) and pays

    S = prod over draws of a_i(y)/q_i(y),   y fails or not,   (q1, q0) = argmin over q1 <= rho*q0 of
                                            D(q) = n1*KL(a1||q1) + n0*KL(a0||q0)

S is an e-variable: E[S] <= 1 for all pi1 <= rho*pi0, exactly, for Bernoulli draws and any n1, n0. Proof: a draw of arm
i multiplies by E[a_i(y)/q_i(y)] = 1 + (pi_i - q_i)(a_i - q_i)/(q_i(1 - q_i)) on average, and log(1 + x) <= x, so

    log E[S] <= sum over i of n_i (pi_i - q_i)(a_i - q_i)/(q_i(1 - q_i)) = -<grad D(q), pi - q> <= 0,

since q minimises the convex D over a convex set that has pi in it. Turner, Ly & Grünwald 2024, "Generic E-variables for
exact sequential k-sample tests", Theorem 1 (rho = 1: q is the weighted mean); Turner & Grünwald 2023, "Exact
anytime-valid confidence intervals for contingency tables and beyond", section 3 (convex claims). The claim "pi1 >= rho
* pi0" is the same with the sides swapped.

Given the past, each batch has E[S] <= 1, so the product over batches is a supermartingale under the claim for every
rule of betting and of allotting draws that looks at the past only, and so is a weighted mean of such products. By Ville
(1939) P(it ever reaches 1/alpha) <= alpha, and stopped at any time it is an e-value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, xlogy

from c2b_ray.metrics.rates import Trials
from c2b_ray.metrics.scores import Floats
from c2b_ray.metrics.testing import benjamini_hochberg

__all__ = ["RateBatch", "RateEvidence", "e_q_values", "more_evidence", "no_evidence"]

RATIOS = np.geomspace(1.6, 200, 10)
"""Alternatives a1/a0 of the claim p1 <= p0."""
WEIGHTS = np.full(len(RATIOS), 1 / len(RATIOS))

HOPELESS_RATIOS = np.array([0.0, 0.5, 1.0])
"""Alternatives a1/a0 of the claim p1 >= worth * p0."""
LEAST_RATE = 1e-12
MOST_GAIN = 700.0  # of a capital's logarithm: exp(710) is beyond float64


@dataclass(frozen=True)
class RateBatch:
    """One batch of each of H hypotheses, of shape (H,): a caption's draws beside those of its baseline.

    A hypothesis with no draws on either side learns nothing from the batch: it is left as it is.
    """

    failed: Trials
    baseline: Trials

    @classmethod
    def of(
        cls, failures: ArrayLike, draws: ArrayLike, baseline_failures: ArrayLike, baseline_draws: ArrayLike
    ) -> RateBatch:
        """Checked. Raises: ValueError for unequal shapes, or where not 0 <= failures <= draws in whole numbers."""
        failed, baseline = Trials.of(failures, draws), Trials.of(baseline_failures, baseline_draws)
        if failed.draws.ndim != 1 or failed.draws.shape != baseline.draws.shape:
            raise ValueError(f"need counts of one shape (hypotheses,), got {failed.draws.shape, baseline.draws.shape}")
        return cls(failed, baseline)


@dataclass(frozen=True)
class RateEvidence:
    """What is known of H hypotheses after some batches: sums, and the capital of each bet. Flat in the batches' number.

    It is rebuilt by `more_evidence` from the batches in their order. Arrays of shape (H,); capitals (H, bets).
    """

    seen: RateBatch  # sums over the batches that counted
    above: Floats  # log capital of bets against p1 <= p0
    below: Floats  # log capital of bets against p1 >= worth * p0
    worth: float

    @property
    def e_values(self) -> Floats:
        """Evidence for p1 > p0, float64 (H,), 0 or more; 1 without draws."""
        return _capital(self.above, WEIGHTS)

    @property
    def hopeless_e_values(self) -> Floats:
        """Evidence for p1 < worth * p0: P(it ever reaches 1/beta) <= beta if p1 >= worth * p0."""
        return _capital(self.below, np.full(len(HOPELESS_RATIOS), 1 / len(HOPELESS_RATIOS)))


def no_evidence(hypotheses: int, worth: float = 2.0) -> RateEvidence:
    """Before the first batch. worth: the least ratio p1/p0 that a caption is drawn on for, above 1."""
    if not 1 < worth < np.inf:
        raise ValueError(f"worth = {worth} must be finite and above 1")
    nothing = Trials(np.zeros(hypotheses), np.zeros(hypotheses))
    return RateEvidence(
        RateBatch(nothing, nothing),
        np.zeros((hypotheses, len(RATIOS))),
        np.zeros((hypotheses, len(HOPELESS_RATIOS))),
        worth,
    )


def more_evidence(evidence: RateEvidence, batch: RateBatch) -> RateEvidence:
    """The evidence after one more batch. Raises: ValueError for another number of hypotheses."""
    hypotheses = evidence.seen.failed.draws.shape[0]
    if batch.failed.draws.shape[0] != hypotheses:
        raise ValueError(f"the batch has {batch.failed.draws.shape[0]} hypotheses, expected {hypotheses}")
    counted = (batch.failed.draws > 0) & (batch.baseline.draws > 0)
    taken = RateBatch(_where(counted, batch.failed), _where(counted, batch.baseline))
    past = _sum(evidence.seen.failed, evidence.seen.baseline)
    level = np.clip(past.failures / (past.draws + 1), LEAST_RATE, 0.98)
    return replace(
        evidence,
        seen=RateBatch(_sum(evidence.seen.failed, taken.failed), _sum(evidence.seen.baseline, taken.baseline)),
        above=evidence.above + _log_factors(taken, level, RATIOS, 1.0),
        below=evidence.below + _log_factors(taken, level, HOPELESS_RATIOS, evidence.worth),
    )


def e_q_values(e_values: ArrayLike) -> Floats:
    """False-discovery-rate-adjusted p-values of e-values: e-BH.

    `benjamini_hochberg` of 1/e (at most 1). Wang & Ramdas 2022, "False discovery rate control with e-values", Theorem
    5.1: rejecting where q <= alpha keeps the expected share of false rejections at most alpha whatever the dependence
    between the e-values. So hypotheses of one label may share its baseline draws, hypotheses of one caption its images,
    and each may be stopped at a time of its own that looks at all of them.

    Args: e_values: floats of any shape, 0 or more, all of it one family: a hypothesis without draws has e = 1 and
    counts. NaN: not of the family.
    Returns: float64 of that shape in [0, 1].
    """
    e = np.asarray(e_values, dtype=np.float64)
    for index in np.argwhere(e < 0):
        raise ValueError(f"e_values{index.tolist()} = {e[tuple(index)]} is negative")
    return benjamini_hochberg(1 / np.maximum(e, 1.0))


def _where(counted: NDArray[np.bool_], trials: Trials) -> Trials:
    return Trials(np.where(counted, trials.failures, 0.0), np.where(counted, trials.draws, 0.0))


def _sum(one: Trials, other: Trials) -> Trials:
    return Trials(one.failures + other.failures, one.draws + other.draws)


def _capital(logs: Floats, weights: Floats) -> Floats:
    capital: Floats = np.exp(np.minimum(logsumexp(logs + np.log(weights), axis=1), MOST_GAIN))
    return capital


def _log_factors(batch: RateBatch, level: Floats, ratios: Floats, rho: float) -> Floats:
    """log S of each hypothesis and of each alternative with a1/a0 = ratio, (H, ratios); 0 without draws.

    level: the failure rate of both sides together that is taken for granted when naming the alternative, (H,).
    """
    n1, n0 = batch.failed.draws[:, None], batch.baseline.draws[:, None]
    counted = n1 + n0 > 0
    n1, n0 = np.where(counted, n1, 1.0), np.where(counted, n0, 1.0)
    a1, a0 = _alternatives(n1, n0, level[:, None], ratios)
    q0 = _nearest_of_claim(n1, n0, a1, a0, rho)
    q1 = rho * q0
    f1, f0 = batch.failed.failures[:, None], batch.baseline.failures[:, None]
    logs = _log_likelihood_ratio(f1, n1, a1, q1) + _log_likelihood_ratio(f0, n0, a0, q0)
    return np.where(counted, logs, 0.0)


def _alternatives(n1: Floats, n0: Floats, level: Floats, ratios: Floats) -> tuple[Floats, Floats]:
    """(a1, a0) with a1/a0 = ratio and n1*a1 + n0*a0 = (n1 + n0)*level; less where either would near 1."""
    base, most = (n1 + n0) * level / (n1 * ratios + n0), (1 + level) / 2
    return np.minimum(ratios * base, most), np.minimum(base, most)


def _nearest_of_claim(n1: Floats, n0: Floats, a1: Floats, a0: Floats, rho: float) -> Floats:
    """q0 of the q = (rho * q0, q0) that minimises n1*KL(a1||q1) + n0*KL(a0||q0): the lesser root of the derivative's

    rho*(n1 + n0)*q^2 - (n1*a1 + n1*rho + n0 + n0*rho*a0)*q + n1*a1 + n0*a0 = 0   (Farrington & Manning 1990).
    """
    b, c = n1 * (a1 + rho) + n0 * (1 + rho * a0), n1 * a1 + n0 * a0
    root: Floats = 2 * c / (b + np.sqrt(np.maximum(b * b - 4 * rho * (n1 + n0) * c, 0.0)))
    return root


def _log_likelihood_ratio(failures: Floats, draws: Floats, a: Floats, q: Floats) -> Floats:
    ratio: Floats = xlogy(failures, a / q) + (draws - failures) * (np.log1p(-a) - np.log1p(-q))
    return ratio
