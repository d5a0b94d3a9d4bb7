"""Evidence that failures are more frequent than at baseline, valid at any stopping time and however draws are allotted.

Knows failures and draws in batches: n1 draws of a caption beside n0 of its baseline, both numbers fixed before any of
them is drawn (they may depend on all earlier draws of any caption). Does not know what is drawn next.

The claim against which evidence is gathered is "p1 <= p0", both unknown. Of a batch with F failures in all, the number
f1 of the caption's is a hypergeometric variable given F if p1 = p0, whatever p0 is, and tends to be smaller if p1 < p0.
So a payoff g(f1, F) >= 0 that rises with f1 and has mean 1 over the hypergeometric has E[g] <= 1 under the claim:
exactly, for Bernoulli draws of any rate and any n1, n0 (the proof stands above `Outcomes`). Given the past each
batch has that, so the capital, which is the product over batches, is a supermartingale under the claim for every rule
of betting and of allotting draws that looks at the past alone. By Ville (1939) P(it ever reaches 1/alpha) <= alpha, and
stopped at any time it is an e-value. Conditioning away the unknown rate: Fisher 1935; as e-values: Hao, Grünwald,
Lardy, Long & Adams 2024, "E-values for k-sample tests with exponential families". Unconditional and of like power:
Turner, Ly & Grünwald 2024, "Generic E-variables for exact sequential k-sample tests".

The bet is a mixture over odds ratios, updated by Bayes' rule: the bet with the largest expected growth for a bettor who
believes in its weights (Kelly 1956). Gains beyond a target are useless, and so are gains once a caption is given up, so
they can be moved to where they are useful (`payoffs`): such a test spends all its level. A caption is given
up when "p1 >= worth * p0" (in odds) is refuted at `risk`, by bets of the same kind on the opposite. So a caption with
at least that ratio is missed with probability `risk` at most, at any length of the test, and giving up never adds to
false findings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp

from c2b_ray.stats.intervals import benjamini_hochberg
from c2b_ray.stats.rates import Trials
from c2b_ray.stats.roots import checked_levels
from c2b_ray.stats.scores import Floats, Ints

# Bets on one batch of draws: payoffs under which a caption that fails like its baseline gains nothing on average.
#
# Of a batch with n1 draws of a caption, n0 of its baseline and F failures in all, the caption's share of the failures,
# f1, is Fisher's noncentral hypergeometric with w the odds ratio of the two rates: P(f1 = k | F) is in proportion to
# C(n1, k) * C(n0, F - k) * w^k. It does not depend on the unknown rates. A payoff g(k) >= 0 that rises with k and has
# E[g] = 1 at w = 1 has E[g] <= 1 at every w <= 1, because f1 tends to grow with w (its likelihood ratio is monotone).
# Likewise one that falls with k and has E[g] = 1 at w has E[g] <= 1 at every larger w. Exactly, for Bernoulli draws,
# for any n1 and n0.


NEWTON_STEPS = 20
ENOUGH = 1 + 1e-9
"""The factor by which a capital may exceed its target, so that rounding cannot keep it below."""


@dataclass(frozen=True)
class Outcomes:
    """The possible numbers f1 in one batch of each of H hypotheses, given F: arrays (H, W), W the widest range."""

    failures: Floats
    log_chance: Floats  # of each under equal odds; -inf beyond a hypothesis's range
    observed: Ints  # (H,), which of them came

    @classmethod
    def of(cls, failed: Trials, baseline: Trials) -> Outcomes:
        together = failed.failures + baseline.failures
        low = np.maximum(together - baseline.draws, 0.0)
        high = np.minimum(together, failed.draws)
        offsets = np.arange(int((high - low).max(initial=0)) + 1, dtype=np.float64)
        possible = offsets <= (high - low)[:, None]
        k: Floats = low[:, None] + np.where(possible, offsets, 0.0)
        baseline_failures = together[:, None] - k
        sides = (k, failed.draws[:, None] - k, baseline_failures, baseline.draws[:, None] - baseline_failures)
        log_ways = np.where(possible, -sum(gammaln(side + 1) for side in sides), -np.inf)
        chance = log_ways - logsumexp(log_ways, axis=1, keepdims=True)
        return cls(k, chance, (failed.failures - low).astype(np.int64))

    def log_ratios(self, log_odds: Floats) -> Floats:
        """Returns log of P(k | odds ratio) / P(k | equal odds), (H, ratios, W), for log odds ratios (H, ratios)."""
        tilted = self.failures[:, None, :] * log_odds[:, :, None]
        total = logsumexp(tilted + self.log_chance[:, None, :], axis=2, keepdims=True)
        ratios: Floats = tilted - total
        return ratios

    def taken(self, values: Floats) -> Floats:
        """Returns the values at the observed outcomes: (H,) of (H, W)."""
        of_observed: Floats = np.take_along_axis(values, self.observed[:, None], axis=1)[:, 0]
        return of_observed


def payoffs(chance: Floats, fair: Floats, most: Floats, worthless: NDArray[np.bool_]) -> Floats:
    """Redistributes the payoffs of a fair bet: useless gains are moved to outcomes where gains are useful.

    A gain above `most` is useless, and so is any gain where the outcome is `worthless`. All other payoffs are raised by
    one factor, up to `most`, as far as a mean of 1 allows. Payoffs that rise (or fall) with the outcome still do where
    the worthless outcomes are at the lower (or upper) end.

    Args: chance: of each outcome, rows sum to 1, (H, W). fair: payoffs with mean 1, (H, W). most: (H,).
    Returns: float64 (H, W), with mean 1 at most.
    """
    useful = np.where(worthless, 0.0, fair)
    factor = np.ones(len(fair))
    for _ in range(NEWTON_STEPS):  # from below, of a concave function: it never passes 1
        raised = factor[:, None] * useful
        capped = raised >= most[:, None]
        mean = (chance * np.where(capped, most[:, None], raised)).sum(axis=1)
        slope = (chance * np.where(capped, 0.0, useful)).sum(axis=1)
        shortfall = np.maximum(1 - mean, 0.0)
        factor = factor + np.divide(
            shortfall, slope, out=np.zeros_like(shortfall), where=(slope > 1e-12) & (shortfall > 1e-12)
        )
    paid: Floats = np.minimum(factor[:, None] * useful, most[:, None])
    return paid


RATIOS = np.array([2.1, 8.0, 20.0])
WEIGHTS = np.array([0.61, 0.09, 0.3])
"""Weights of the odds ratios where no ratio is expected. The smallest worthwhile ratio is the hardest to show, so it
gets the most: where less than 2 is worthwhile, the first bet is less as well."""

MOST_GAIN = 300.0  # of a capital's logarithm: its square is within float64
MOST_CELLS = 2_000_000  # of an array of hypotheses x ratios x outcomes


@dataclass(frozen=True)
class RateBatch:
    """One batch of each of H hypotheses, of shape (H,): a caption's draws beside those of its baseline.

    A batch without draws on either side leaves the hypothesis unchanged.
    """

    failed: Trials
    baseline: Trials

    @classmethod
    def of(
        cls, failures: ArrayLike, draws: ArrayLike, baseline_failures: ArrayLike, baseline_draws: ArrayLike
    ) -> RateBatch:
        """Builds a checked batch. Raises: ValueError for unequal shapes, or where not 0 <= failures <= draws in whole
        numbers."""
        failed, baseline = Trials.of(failures, draws), Trials.of(baseline_failures, baseline_draws)
        if failed.draws.ndim != 1 or failed.draws.shape != baseline.draws.shape:
            raise ValueError(f"need counts of one shape (hypotheses,), got {failed.draws.shape, baseline.draws.shape}")
        return cls(failed, baseline)


@dataclass(frozen=True)
class RateEvidence:
    """Evidence on H hypotheses after some batches. Its size does not grow with the number of batches, and
    `more_evidence` rebuilds it from the batches in order. Arrays have shape (H,); beliefs (H, ratios)."""

    seen: RateBatch  # sums over the batches that counted
    e_values: Floats  # for p1 > p0, 0 or more; 1 before the first batch
    hopeless: Floats  # e-values for p1 < worth * p0, 0 to 1/risk: given up at 1/risk
    log_beliefs: Floats  # weights of the odds ratios that are bet on
    log_ratios: Floats  # these odds ratios
    worth: float
    risk: float

    @property
    def abandoned(self) -> NDArray[np.bool_]:
        return self.hopeless * self.risk >= 1


def no_evidence(
    hypotheses: int,
    worth: float = 2.0,
    risk: float = 0.05,
    expected: ArrayLike | None = None,
    trust: float = 0.5,
) -> RateEvidence:
    """Returns the evidence before the first batch.

    Args: worth: the least odds ratio worth detecting, above 1; a caption is given up once this ratio is refuted. risk:
    the probability of giving up a caption that has it, in (0, 1). expected: each hypothesis's odds ratio as planned or
    suggested by earlier draws, (H,), NaN where none is expected. trust: the share of the bets on that ratio, in (0, 1).
    A wrong expectation costs draws, not validity.
    Raises: ValueError for worth, risk, trust, or another shape of `expected`.
    """
    checked_levels(risk=risk, trust=trust)
    if not 1 < worth < np.inf:
        raise ValueError(f"worth = {worth} must be finite and above 1")
    no_trials = Trials(np.zeros(hypotheses), np.zeros(hypotheses))
    bets = RATIOS.copy()
    bets[0] = min(bets[0], bets[0] / 2 * worth)  # slightly above the ratio that is worth detecting
    ratios, weights = np.tile(bets, (hypotheses, 1)), np.tile(WEIGHTS, (hypotheses, 1))
    if expected is not None:
        promised = np.asarray(expected, dtype=np.float64)
        if promised.shape != (hypotheses,):
            raise ValueError(f"expected has shape {promised.shape}, need ({hypotheses},)")
        is_promised = np.isfinite(promised)
        extra = np.where(is_promised, np.maximum(promised, worth), worth)[:, None]
        share = np.where(is_promised, trust, 0.0)[:, None]
        ratios, weights = np.hstack([ratios, extra]), np.hstack([weights * (1 - share), share])
    with np.errstate(divide="ignore"):
        beliefs = np.log(weights)
    ones = np.ones(hypotheses)
    return RateEvidence(RateBatch(no_trials, no_trials), ones, ones, beliefs, np.log(ratios), worth, risk)


def more_evidence(evidence: RateEvidence, batch: RateBatch, target: ArrayLike, beyond: float = 1.0) -> RateEvidence:
    """Returns the evidence after one more batch.

    Args: target: the e-value at which a hypothesis will be decided, above 0, a number or (H,): 1/alpha for one
    hypothesis, e-BH's threshold for the next rejection for several. It is fixed before the batch is drawn. beyond:
    gains are paid up to this multiple of the target, 1 or more. At 1 no gain is wasted and the target is reached under
    the null with probability alpha; with more, e-values show how strong the evidence is and false findings are fewer,
    at the cost of some more draws.
    Raises: ValueError for another number of hypotheses.
    """
    hypotheses = len(evidence.e_values)
    if len(batch.failed.draws) != hypotheses:
        raise ValueError(f"the batch has {len(batch.failed.draws)} hypotheses, expected {hypotheses}")
    has_draws = (batch.failed.draws > 0) & (batch.baseline.draws > 0)
    usable = RateBatch(_where(has_draws, batch.failed), _where(has_draws, batch.baseline))
    targets = np.broadcast_to(np.asarray(target, dtype=np.float64), (hypotheses,))
    gains, losses = np.ones(hypotheses), np.ones(hypotheses)
    beliefs = evidence.log_beliefs.copy()
    for rows in _blocks(usable, evidence.log_beliefs.shape[1]):
        gains[rows], losses[rows], beliefs[rows] = _bet(evidence, usable, targets, beyond, rows)
    return replace(
        evidence,
        seen=RateBatch(_sum(evidence.seen.failed, usable.failed), _sum(evidence.seen.baseline, usable.baseline)),
        e_values=evidence.e_values * gains,
        hopeless=evidence.hopeless * losses,
        log_beliefs=beliefs,
    )


def _bet(
    evidence: RateEvidence, batch: RateBatch, targets: Floats, beyond: float, rows: Ints
) -> tuple[Floats, Floats, Floats]:
    """Returns, for some hypotheses, the factors by which the batch multiplies e_values and hopeless, and the beliefs
    after it."""
    outcomes = Outcomes.of(_rows(batch.failed, rows), _rows(batch.baseline, rows))
    capital, hopeless = evidence.e_values[rows], evidence.hopeless[rows]
    by_ratio = evidence.log_beliefs[rows][:, :, None] + outcomes.log_ratios(evidence.log_ratios[rows])
    fair = np.exp(np.minimum(logsumexp(by_ratio, axis=1), MOST_GAIN))
    log_worth = outcomes.log_ratios(np.full((len(rows), 1), np.log(evidence.worth)))[:, 0]
    against = np.exp(np.minimum(-log_worth, MOST_GAIN))
    with np.errstate(divide="ignore"):
        to_find, most_lost = ENOUGH * targets[rows] / capital, ENOUGH / evidence.risk / hopeless
    chance = np.exp(outcomes.log_chance)
    abandoned = (fair < to_find[:, None]) & (against >= most_lost[:, None])
    gain = payoffs(chance, fair, np.maximum(to_find * beyond, 1.0), abandoned)
    reaches = gain >= to_find[:, None]
    loss = payoffs(np.exp(outcomes.log_chance + log_worth), against, most_lost, reaches)
    observed = np.take_along_axis(by_ratio, outcomes.observed[:, None, None], axis=2)[:, :, 0]
    beliefs = observed - logsumexp(observed, axis=1, keepdims=True)
    return outcomes.taken(gain), outcomes.taken(loss), beliefs


def e_q_values(e_values: ArrayLike) -> Floats:
    """Computes false-discovery-rate-adjusted p-values of e-values (e-BH).

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


def _blocks(batch: RateBatch, ratios: int) -> list[Ints]:
    """Groups the hypotheses with failures in the batch into blocks with similar numbers of outcomes, so that arrays
    stay small. A batch without failures carries no information."""
    together = batch.failed.failures + batch.baseline.failures
    width = np.minimum(together, batch.failed.draws) - np.maximum(together - batch.baseline.draws, 0.0) + 1
    order = np.argsort(width, kind="stable")
    order = order[together[order] > 0]
    blocks: list[Ints] = []
    while len(order):
        cells = width[order] * ratios * np.arange(1, len(order) + 1)
        size = max(1, int(np.searchsorted(cells, MOST_CELLS, side="right")))
        blocks.append(order[:size])
        order = order[size:]
    return blocks


def _where(has_draws: NDArray[np.bool_], trials: Trials) -> Trials:
    return Trials(np.where(has_draws, trials.failures, 0.0), np.where(has_draws, trials.draws, 0.0))


def _rows(trials: Trials, rows: Ints) -> Trials:
    return Trials(trials.failures[rows], trials.draws[rows])


def _sum(first: Trials, second: Trials) -> Trials:
    return Trials(first.failures + second.failures, first.draws + second.draws)
