"""What shuffled groups and bootstrap samples of a ranking's items show of its shares.

Knows rankings of pictures, each of which may be several items: copies of one picture move together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2b_ray.metrics.disparity import Chance
from c2b_ray.metrics.resampling import bootstrap_weights
from c2b_ray.metrics.scores import Floats, Ints

__all__ = ["Pictures", "largest_log", "mean_max", "resampled", "shuffled"]

CELLS_AT_ONCE = 8_000_000


@dataclass(frozen=True)
class Pictures:
    """Different pictures in rankings. `order` (rankings, pictures): their numbers, best first; `groups` (pictures,) in
    0 .. number - 1; `sizes` (pictures,): how many items each of them is."""

    order: Ints
    groups: Ints
    sizes: Ints
    number: int

    @staticmethod
    def of(order: Ints, groups: Ints, number: int, copies: Ints | None) -> Pictures:
        """`copies` (items,): items with equal numbers and groups are one picture, at the place of the first of them;
        None: every item is a picture of its own."""
        if copies is None:
            return Pictures(order, groups, np.ones(len(groups), np.int64), number)
        kinds, which, sizes = np.unique(np.stack([copies, groups]), axis=1, return_inverse=True, return_counts=True)
        ranked = which.ravel()[order]
        firsts = [np.sort(np.unique(row, return_index=True)[1]) for row in ranked]
        found = np.array([row[first] for row, first in zip(ranked, firsts, strict=True)], np.int64)
        return Pictures(found.reshape(len(order), kinds.shape[1]), kinds[1], sizes, number)

    @property
    def single(self) -> bool:
        return bool((self.sizes == 1).all())

    @property
    def items(self) -> int:
        return int(self.sizes.sum())

    @property
    def ideal(self) -> Floats:
        """The share of each group among all items."""
        return np.bincount(self.groups, self.sizes, self.number) / self.items

    @property
    def held(self) -> Floats:
        """The number of pictures of each group; of unequal sizes, the number of equal ones that vary as much
        (Kish 1965)."""
        result: Floats = np.bincount(self.groups, self.sizes, self.number) ** 2 / np.bincount(
            self.groups, self.sizes**2, self.number
        )
        return result


def mean_max(ratios: Floats) -> Floats:
    """Averages the largest log ratio over rankings, from (..., rankings, groups) to (...,)."""
    result: Floats = largest_log(ratios).mean(axis=-1)
    return result


def largest_log(ratios: Floats) -> Floats:
    """Returns the log of the largest ratio, from (..., groups) to (...,)."""
    result: Floats = np.log(np.maximum(ratios.max(axis=-1), 1e-12))
    return result


def shuffled(pictures: Pictures, k: int, chance: Chance) -> Floats:
    """Returns the mean skew where pictures change places with one another, in all rankings alike, (permutations,).

    A picture takes its group and its copies along, so the shares of all items stay as they are.
    """
    random = np.random.default_rng(chance.seed)
    kinds, which = np.unique(np.stack([pictures.groups, pictures.sizes]), axis=1, return_inverse=True)
    kind, top = which.ravel().astype(np.int16), pictures.order[:, :k]  # k items are at most k pictures
    size = max(1, CELLS_AT_ONCE // max(top.size, len(kind)))
    parts = []
    for start in range(0, chance.permutations, size):
        some = random.permuted(np.tile(kind, (min(size, chance.permutations - start), 1)), axis=1)
        picked = some[:, top]  # (some, rankings, pictures)
        groups = picked if pictures.single else kinds[0].astype(np.int16)[picked]
        kept = None if pictures.single else _kept(kinds[1][picked], k)
        shares = np.stack([_share(groups == group, kept) for group in range(pictures.number)], axis=-1)
        parts.append(mean_max(shares / pictures.ideal))
    return np.concatenate(parts)


def resampled(pictures: Pictures, k: int, chance: Chance) -> Floats:
    """Computes the ratios f/f' of bootstrap samples of pictures, (resamples, rankings, groups)."""
    first = pictures.order[:, : _reach(pictures, k)]
    member, sizes = np.eye(pictures.number)[pictures.groups], pictures.sizes
    weights = bootstrap_weights(len(sizes), chance.resamples, chance.seed)
    ideal = weights @ (member * sizes[:, None]) / (weights @ sizes)[:, None]
    result = np.empty((len(weights), len(first), pictures.number))
    for row, ranked in enumerate(first):
        kept = _kept(weights[:, ranked] * sizes[ranked], k)
        result[:, row] = kept @ member[ranked] / kept.sum(axis=1, keepdims=True)
    return result / np.maximum(ideal, 0.5 / pictures.items)[:, None, :]


def _reach(pictures: Pictures, k: int) -> int:
    """Returns beyond how many pictures no sample's top k reaches. Where one does, its shares are of what it has."""
    if pictures.single:
        return min(len(pictures.sizes), int(k + 8 * np.sqrt(k) + 20))
    through = np.cumsum(pictures.sizes[pictures.order], axis=1) >= k
    most = int(through.argmax(axis=1).max(initial=0)) + 1
    return min(len(pictures.sizes), int(2 * most + 8 * np.sqrt(most) + 20))


def _kept(sizes: Floats | Ints, k: int) -> Floats:
    """Returns how many items of each picture are among the first k, from sizes (..., pictures) in the order of
    ranks."""
    before = np.cumsum(sizes, axis=-1) - sizes
    result: Floats = np.clip(k - before, 0, sizes)
    return result


def _share(inside: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], kept: Floats | None) -> Floats:
    result: Floats = inside.mean(axis=-1) if kept is None else (inside * kept).sum(axis=-1) / kept.sum(axis=-1)
    return result
