"""Skew of a ranking: whether some groups are over-represented near its top.

Knows the groups of ranked items, best first; knows nothing of how they were ranked or of the items themselves.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

from c2b_ray.metrics.scores import Floats, Ints

__all__ = ["SkewRule", "max_skew", "ndkl", "scored_max_skew"]

Groups = Sequence[Hashable] | NDArray[Any]

SUM_TOLERANCE = 1e-6

SkewRule = Literal["formula", "from_zero", "absent_share", "ties", "usual"]
"""`formula`: Eq. 2. In the code in common use the maximum starts at 0 (`from_zero`), an absent group has the share 1/k
(`absent_share`), and all items tied with the k-th are counted while shares are still divided by k (`ties`); `usual`:
all three."""


def max_skew(groups: Groups, k: int, ideal: Mapping[Any, float] | None = None) -> float:
    """Computes MaxSkew@k: the log ratio of the most over-represented group's share in the top k to its ideal share.

    max over groups a of log(f_a / f'_a),   f_a = share of a in the first k, f'_a = ideal share, natural logarithm

    Social bias transfer in CLIP (Ramos et al. 2025), Eq. 2, with the share over all ranked items as f'; after Geyik et
    al. 2019. A group that is absent from the top k contributes log 0 = -inf, so it never makes the maximum. This is the
    formula; `scored_max_skew` has the variants of the code in common use.

    Args: groups: the group of every item, best first, shape (items,), no None or NaN; k: rows looked at, 1 to items;
    ideal: group -> share, summing to 1, every group of the ranking named. Default: the shares over all of `groups`.
    Returns: float, 0 or more because both sets of shares sum to 1. 0: the top k has the ideal shares. inf where a group
    of ideal share 0 is in the top k. NaN for an empty ranking.
    Raises: ValueError for k out of range, for a missing group label, for shares that are negative or do not sum to 1,
    and for a group without an ideal share.
    """
    codes, shares = _coded(groups, ideal)
    if codes.size == 0:
        return float("nan")
    if not 1 <= k <= codes.size:
        raise ValueError(f"k = {k} must lie in 1 to {codes.size}, the number of ranked items")
    counts = np.bincount(codes[:k], minlength=shares.size)
    present = counts > 0
    with np.errstate(divide="ignore"):
        return float(np.log(counts[present] / k / shares[present]).max())


def scored_max_skew(
    scores: ArrayLike, groups: Groups, k: int, rule: SkewRule = "formula", ideal: Mapping[Any, float] | None = None
) -> float:
    """Computes MaxSkew@k of items with scores, by the formula or by a named variant of the code in common use
    (`SkewRule`).

    `formula`: items of equal score in the order that they are in, then `max_skew`. The variants are those of the code
    that debiasing papers pass on (Berg et al. 2022 and after): the skew of each group is log(share / ideal share), its
    maximum starting at 0; an absent group counts as one item of k; `nlargest(k, keep="all")` returns every item that
    ties with the k-th, and shares are these counts over k, so that they may sum to more than 1.

    Args: scores: shape (items,), highest first; groups: of every item; k, ideal: as for `max_skew`.
    Returns: float as `max_skew`; the variants may give a positive skew to a ranking that has none.
    Raises: ValueError as `max_skew`, or for scores that are NaN or of another number.
    """
    values = np.asarray(scores, np.float64)
    codes, shares = _coded(groups, ideal)
    if values.shape != codes.shape or np.isnan(values).any():
        raise ValueError(f"need a score, not NaN, of each of the {codes.size} items; got {values.shape}")
    if codes.size == 0:
        return float("nan")
    if not 1 <= k <= codes.size:
        raise ValueError(f"k = {k} must lie in 1 to {codes.size}, the number of ranked items")
    order = np.argsort(-values, kind="stable")
    tied = rule in ("ties", "usual")
    top = codes[values >= values[order[k - 1]]] if tied else codes[order[:k]]
    share = np.bincount(top, minlength=shares.size) / k
    if rule in ("absent_share", "usual"):
        share = np.where(share == 0, 1 / k, share)
    with np.errstate(divide="ignore"):
        largest = float(np.log(share[share > 0] / shares[share > 0]).max())
    return max(largest, 0.0) if rule in ("from_zero", "usual") else largest


def ndkl(groups: Groups, ideal: Mapping[Any, float] | None = None) -> float:
    """Computes the normalised discounted cumulative KL divergence of a ranking from the ideal shares.

    1/Z * sum over i = 1..N of KL(D_top_i || D) / log2(i+1),   Z = sum over i of 1/log2(i+1), KL in natural logarithm

    Geyik et al. 2019, section 3 (NDKL); D_top_i are the groups' shares in the first i items. Some code adds an epsilon
    to both shares; here an absent group contributes 0, which is the limit, and no epsilon is needed.

    Args: groups, ideal: as for `max_skew`.
    Returns: float, 0 or more. 0: every prefix has the ideal shares (with the default ideal, one group only); a fair
    ranking of several groups is near 0 but above it, as its first items cannot hold every share. inf where a group of
    ideal share 0 is ranked. NaN for an empty ranking.
    Raises: ValueError as `max_skew` does, except for k.
    """
    codes, shares = _coded(groups, ideal)
    if codes.size == 0:
        return float("nan")
    ranks = np.arange(1, codes.size + 1)
    prefixes = np.cumsum(codes[:, None] == np.arange(shares.size), axis=0) / ranks[:, None]
    divergences = np.maximum(rel_entr(prefixes, shares).sum(axis=1), 0.0)
    discounts = 1 / np.log2(ranks + 1)
    return float((discounts * divergences).sum() / discounts.sum())


def _coded(groups: Groups, ideal: Mapping[Any, float] | None) -> tuple[Ints, Floats]:
    """Returns each item's group as a number, and each number's ideal share."""
    labels = groups.tolist() if isinstance(groups, np.ndarray) else list(groups)
    for rank, label in enumerate(labels):
        if label is None or label != label:
            raise ValueError(f"the item at rank {rank} has no group ({label!r}); leave it out of the ranking first")
    numbers = {label: number for number, label in enumerate(dict.fromkeys(labels) if ideal is None else ideal)}
    for label in labels:
        if label not in numbers:
            raise ValueError(f"group {label!r} has no ideal share; shares are given for {list(numbers)}")
    codes = np.array([numbers[label] for label in labels], dtype=np.int64)
    if ideal is None:
        return codes, np.bincount(codes, minlength=len(numbers)) / max(codes.size, 1)
    shares = np.array([float(share) for share in ideal.values()])
    if not (shares >= 0).all() or not abs(shares.sum() - 1) <= SUM_TOLERANCE:
        raise ValueError(f"ideal shares must be 0 or more and sum to 1, got {dict(ideal)}")
    return codes, shares
