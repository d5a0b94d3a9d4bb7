"""logits → which answers fail, and what each image was taken for: the four failure rules of Wiles et al. (2022).

    top1          the likeliest label is none of the class's labels                                  (Table 6)
    top1_parent   nor does it share a parent with one of them                                        (Table 3)
    top3          none of the three likeliest labels is one of the class's                           (section 4.2)
    top3_parent   nor does one of the three share a parent with one of them                          (App. B.3)

Ties are decided against the classifier: an answer fails where one way of breaking them makes it fail. All is decided on
logits in float64. A class with several labels is right where one of them is hit. It knows numbers, not images or names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from c2b_ray.audits.failures.config import FailureRule
from c2b_ray.errors import ConfigError
from c2b_ray.steps.classify import SAME

TOP = 3
_TOP_K: dict[FailureRule, int] = {"top1": 1, "top1_parent": 1, "top3": TOP, "top3_parent": TOP}

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Truth:
    """A class in a classifier's label space: bool (labels,), or (images, labels) where images differ in their class.

    `members`: the class's labels. `kin`: labels that share a parent with one of them; None without a hierarchy.
    """

    members: Mask
    kin: Mask | None = None

    @staticmethod
    def stacked(truths: Sequence[Truth]) -> Truth:
        """Returns the truths of a batch of images, one each. All have one label space, and all or none have a
        hierarchy."""
        kin = [truth.kin for truth in truths if truth.kin is not None]
        return Truth(np.stack([truth.members for truth in truths]), np.stack(kin) if kin else None)


@dataclass(frozen=True)
class Decisions:
    """The decisions on each image; the first axis of all arrays is that of images."""

    failed: Mask  # False where there is no answer
    predicted: NDArray[np.int64]  # the likeliest label's position; −1 where several are, or where there is no answer
    top3: NDArray[np.int64]  # (images, 3): labels that are among the three likeliest for certain, likeliest first; −1
    confidence: NDArray[np.float32]  # the probability of the likeliest label; NaN where there is no answer
    answered: Mask  # False where the logits are not numbers (NaN or +inf)


def check_rule(rule: FailureRule, truth: Truth, name: str) -> None:
    """Raises ConfigError where no answer about class `name` could fail: too few labels, or all of them are right or
    related."""
    if needs_parents(rule) and truth.kin is None:
        raise ConfigError("hierarchy", f"the rule {rule} needs one: world, imagenet, a file or a WordNet folder")
    k, labels = _TOP_K[rule], truth.members.shape[-1]
    if labels <= k:
        raise ConfigError("rule", f"{rule} is always right among {labels} labels; use top1")
    wrong = int((~_good(rule, truth)).sum())
    if wrong < k:
        why = "are of the class or share a parent with it" if needs_parents(rule) else "are of the class"
        raise ConfigError("rule", f"{rule} can never fail for {name!r}: all but {wrong} of {labels} labels {why}")


def needs_parents(rule: FailureRule) -> bool:
    return rule.endswith("_parent")


def decide(
    logits: NDArray[np.floating],
    truth: Truth,
    rule: FailureRule,
    confidence: float = 0.0,
    true_below: float = 1.0,
) -> Decisions:
    """Decides which of `logits` (images, labels) fail by the rule.

    A failure counts only where the likeliest label has at least the probability `confidence`, and the class's labels
    together at most `true_below` (the paper's footnote 2; 1.0: any). −inf is a valid logit: a probability of 0, which
    is never among the likeliest; a row of only −inf fails, with a confidence of 0.
    """
    rows = np.asarray(logits, np.float64)
    # A maximum with NaN is NaN, which is not below; +inf is not either.
    answered = rows.max(axis=1, initial=-np.inf) < np.inf
    rows = np.where(answered[:, None], rows, -np.inf)
    best = rows.max(axis=1, initial=-np.inf)
    likeliest, several = rows.argmax(axis=1), (rows == best[:, None]).sum(axis=1) > 1
    sure, true = _probabilities(rows, best, truth.members)
    failed = answered & ~_hit(rows, _good(rule, truth), _TOP_K[rule])
    failed &= (sure >= confidence - SAME) & (true <= true_below + SAME)
    return Decisions(
        failed,
        np.where(answered & ~several, likeliest, -1),
        _top3(rows),
        np.where(answered, sure, np.nan).astype(np.float32),
        answered,
    )


def _good(rule: FailureRule, truth: Truth) -> Mask:
    """Returns the labels that keep an answer from failing."""
    return truth.members | truth.kin if needs_parents(rule) and truth.kin is not None else truth.members


def _hit(rows: NDArray[np.float64], good: Mask, k: int) -> Mask:
    """Returns whether a good label is among the likeliest, however ties at the last rank are broken."""
    last = _last(rows, k)
    above = rows > last
    tied = (rows == last) & (last > -np.inf)
    free = k - above.sum(axis=1)
    all_tied_hit = tied.any(axis=1) & ((tied & ~good).sum(axis=1) < free)
    return np.asarray((above & good).any(axis=1) | all_tied_hit)


def _last(rows: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Returns the logit of the last of the `k` ranks, (images, 1); −inf where fewer labels have any probability."""
    at = max(rows.shape[1] - k, 0)
    return np.partition(rows, at, axis=1)[:, at : at + 1]


def _top3(rows: NDArray[np.float64]) -> NDArray[np.int64]:
    last = _last(rows, TOP)
    certain = rows > last
    fit = certain.sum(axis=1) + (rows == last).sum(axis=1) == TOP  # the tied ones fill the last ranks
    certain |= fit[:, None] & (rows == last)
    certain &= rows > -np.inf
    result = np.full((len(rows), TOP), -1, np.int64)
    for rank in range(min(TOP, rows.shape[1])):
        left = certain.any(axis=1)
        position = np.where(certain, rows, -np.inf).argmax(axis=1)
        result[left, rank] = position[left]
        certain[left, position[left]] = False
    return result


def _probabilities(
    rows: NDArray[np.float64], best: NDArray[np.float64], members: Mask
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the probability of the likeliest label, and of the class's labels together; 0 where no label has any."""
    top = np.where(best > -np.inf, best, 0.0)
    parts = np.exp(rows - top[:, None])
    whole = np.maximum(parts.sum(axis=1), np.finfo(np.float64).tiny)
    return np.where(best > -np.inf, 1 / np.maximum(whole, 1), 0.0), np.where(members, parts, 0).sum(axis=1) / whole
