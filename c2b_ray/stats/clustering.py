"""Groups from numbers alone: clusters of vectors, clusters whose answers are right or wrong alike, cuts of one number
into ordered values, and a plane to look at vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from c2b_ray.stats.scores import Ints

ROUNDS = 200


def kmeans(vectors: ArrayLike, k: int, seed: int = 0, starts: int = 10) -> Ints:
    """Assigns each vector to a cluster by Lloyd's algorithm from k-means++ centres, the best of several starts.

    minimises sum over vectors of min over centres of |x - c|^2   (Lloyd 1982; Arthur & Vassilvitskii 2007)

    Args: vectors: (items, dimension), finite; k: 1 or more; starts: 1 or more.
    Returns: int64 (items,) in 0 .. k - 1; the same input gives the same result. Clusters are numbered by size, the
    largest 0. No items in, none out.
    Raises: ValueError for k or starts below 1, fewer items than k, or values that are not finite.
    """
    x = np.asarray(vectors, np.float64)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise ValueError(f"vectors must be finite, of shape (items, dimension), got {x.shape}")
    if k < 1 or starts < 1:
        raise ValueError(f"k = {k} and starts = {starts} must be 1 or more")
    if not len(x):
        return np.zeros(0, np.int64)
    if len(x) < k:
        raise ValueError(f"{len(x)} items cannot make {k} clusters")
    x = x - x.mean(axis=0)
    squares = (x**2).sum(axis=1)
    random = np.random.default_rng(seed)
    runs = [_lloyd(x, squares, _plus_plus(x, squares, k, random)) for _ in range(starts)]
    labels = min(runs, key=lambda result: result[1])[0]
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    rank = np.empty(k, np.int64)
    rank[order] = np.arange(k)
    return rank[labels]


def _distances(x: Floats, squares: Floats, centres: Floats) -> Floats:
    result: Floats = np.maximum(squares[:, None] - 2 * (x @ centres.T) + (centres**2).sum(axis=1), 0.0)
    return result


def _plus_plus(x: Floats, squares: Floats, k: int, random: np.random.Generator) -> Floats:
    centres = x[[random.integers(len(x))]]
    nearest = _distances(x, squares, centres)[:, 0]
    while len(centres) < k:
        total = nearest.sum()
        chances = nearest / total if total > 0 else None
        centres = np.concatenate([centres, x[[random.choice(len(x), p=chances)]]])
        nearest = np.minimum(nearest, _distances(x, squares, centres[-1:])[:, 0])
    return centres


def _lloyd(x: Floats, squares: Floats, centres: Floats) -> tuple[Ints, float]:
    labels = np.full(len(x), -1)
    distances = _distances(x, squares, centres)
    for _ in range(ROUNDS):
        new = distances.argmin(axis=1)
        if (new == labels).all():
            break
        labels = new
        counts = np.bincount(labels, minlength=len(centres))
        sums = np.eye(len(centres))[labels].T @ x
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        distances = _distances(x, squares, centres)
    return distances.argmin(axis=1), float(distances.min(axis=1).sum())


# Clusters of several clusterings of the same items, matched: which combinations of clusters share the most items.


Reuse = Literal["shared", "once"]


@dataclass(frozen=True)
class MatchedClusters:
    """Matched clusters. `clusters`: one of each clustering; `members`: the items that lie in all of them, ascending."""

    clusters: tuple[int, ...]
    members: NDArray[np.int64]


def intersections(labels: ArrayLike) -> list[MatchedClusters]:
    """Finds every combination of clusters, one of each clustering, whose intersection is not empty; the largest first.

    An item lies in exactly one cluster of each clustering, so in the intersection of exactly one combination: that of
    its own labels. Of the k^M combinations at most as many as there are items hold any, and sorting the items by their
    labels finds them all, exactly, in O(M n log n): nothing has to be searched. Ties: the lower labels first.

    Args: labels: integers (clusterings, items).
    Returns: a list of `MatchedClusters`, whose members together are all items, each once. Empty for no items.
    Raises: ValueError for an input without two axes or without clusterings.
    """
    table = np.asarray(labels, np.int64)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"labels need axes of clusterings and items, got shape {table.shape}")
    if not table.shape[1]:
        return []
    combinations, inverse, counts = np.unique(table.T, axis=0, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(inverse.ravel(), kind="stable"), np.cumsum(counts)[:-1])
    order = np.argsort(-counts, kind="stable")
    return [MatchedClusters(tuple(combinations[i].tolist()), members[i]) for i in order.tolist()]


def matched_groups(labels: ArrayLike, least: int = 1, reuse: Reuse = "shared") -> list[MatchedClusters]:
    """Returns the combinations that share `least` items or more, the largest first.

    `shared`: all of them: a cluster of one clustering may serve two groups (its items are still in one group each).
    `once`: a set of them in which no two have a cluster in common, with the most items in all; found exactly by branch
    and bound over combinations in order of size. The bound on the remaining gain: for each clustering, the sum over its
    clusters of the largest combination that is still free there; the least of these sums.

    Ramos et al. 2025, section 4.1: "the combination of clusters across different clusterings that provide the maximal
    cardinality over the intersection"; "at least 100 images". The paper does not say whether clusters are used again.

    Args: labels: integers (clusterings, items); least: 1 or more; reuse.
    Returns: a list of `MatchedClusters`. Empty where no combination has that many items.
    Raises: ValueError as `intersections` does, or for least < 1.
    """
    if least < 1:
        raise ValueError(f"least = {least} must be 1 or more")
    candidates = [group for group in intersections(labels) if len(group.members) >= least]
    if reuse == "shared" or not candidates:
        return candidates
    clusters = np.array([group.clusters for group in candidates], np.int64)
    sizes = np.array([len(group.members) for group in candidates], np.int64)
    return [candidates[i] for i in _packed(clusters, sizes)]


def _packed(clusters: Ints, sizes: Ints) -> list[int]:
    """Returns the rows of the packing with the largest sum of sizes; rows are in order of size, largest first.

    Sets of rows are the bits of an integer, row r the bit of value 2^r, so that the lowest bit is the largest row.
    """
    masks = [[_bits(column == cluster) for cluster in np.unique(column)] for column in clusters.T]
    weight: list[int] = sizes.tolist()
    compatible: dict[int, int] = {}
    largest_packing: list[int] = []
    largest_size = 0
    stack: list[tuple[list[int], int, int]] = [([], 0, (1 << len(weight)) - 1)]
    while stack:
        packing, total, free = stack.pop()
        if total > largest_size:
            largest_packing, largest_size = packing, total
        if not free or not _promising(free, largest_size - total, masks, weight):
            continue
        first = _lowest(free)
        if first not in compatible:
            compatible[first] = _bits((clusters != clusters[first]).all(axis=1))
        stack.append((packing, total, free ^ (1 << first)))
        stack.append(([*packing, first], total + weight[first], free & compatible[first]))
    return largest_packing


def _promising(free: int, needed: int, masks: list[list[int]], weight: list[int]) -> bool:
    """Tells whether a packing of these rows may hold more than `needed` items: in every clustering the largest free
    rows of its clusters, one per cluster, must add up to more."""
    for of_clusters in masks:
        bound = 0
        for mask in of_clusters:
            if free_rows := free & mask:
                bound += weight[_lowest(free_rows)]
                if bound > needed:
                    break
        else:
            return False
    return True


def _bits(rows: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(rows, bitorder="little").tobytes(), "little")


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


# Clusters of vectors whose members a classifier gets right, or wrong, alike.


EM_ROUNDS, CLOSE = 100, 1e-4
LEAST_VARIANCE = 0.05
"""The least variance of a component along an axis, as a share of the variance of all vectors along it."""


@dataclass(frozen=True)
class ErrorMixture:
    """A fitted mixture of k components over vectors that were projected to p axes.

    `origin` (dimension,), `axes` (p, dimension): a vector x has the coordinates axes (x - origin). `shares` (k,): of
    the components; `means`, `variances` (k, p); `wrong` (k,): the share of wrong answers of each.
    """

    origin: Floats
    axes: Floats
    shares: Floats
    means: Floats
    variances: Floats
    wrong: Floats

    def assigned(self, vectors: ArrayLike) -> Ints:
        """Returns the likeliest component of each vector (items, dimension) by the vector alone; int64 (items,)."""
        x = np.asarray(vectors, np.float64)
        joint = _densities((x - self.origin) @ self.axes.T, self.shares, self.means, self.variances)
        return np.asarray(joint.argmax(axis=1), np.int64)


def error_mixture(
    vectors: ArrayLike, wrong: ArrayLike, k: int, weight: float = 10.0, axes: int = 16, seed: int = 0
) -> ErrorMixture:
    """Fits an error-aware mixture (Domino: Eyuboglu et al. 2022, Eq. 4) by EM from k-means clusters:

    sum over images of log sum over s of P(s) N(x | m_s, diag v_s) P(wrong | s)^weight

    on the first principal axes. Domino models the label and the predicted label; within one class the label is
    constant, and the prediction enters as right or wrong.

    Args: vectors: (items, dimension), finite. wrong: booleans (items,). k: 1 to items. weight: 0 or more, of right and
    wrong beside the vector; 0 is a Gaussian mixture. axes: 1 or more; fewer where there are fewer.
    Returns: `ErrorMixture`; the same input gives the same result. A component may be empty of images that are assigned.
    Raises: ValueError for shapes that do not agree, values that are not finite, or k, weight or axes out of range.
    """
    x, y = np.asarray(vectors, np.float64), np.asarray(wrong, np.float64)
    if x.ndim != 2 or y.shape != x.shape[:1] or not np.isfinite(x).all():
        raise ValueError(f"vectors must be finite (items, dimension), and wrong (items,), got {x.shape} and {y.shape}")
    if not 1 <= k <= len(x) or weight < 0 or axes < 1:
        raise ValueError(f"k = {k} must be 1 to {len(x)}, weight = {weight} 0 or more, axes = {axes} 1 or more")
    origin = x.mean(axis=0)
    projection = np.linalg.svd(x - origin, full_matrices=False)[2][:axes]
    z = (x - origin) @ projection.T
    floor = LEAST_VARIANCE * z.var(axis=0) + 1e-12
    resp = np.eye(k)[kmeans(z, k, seed)]
    previous = -np.inf
    for _ in range(EM_ROUNDS):
        mass = resp.sum(axis=0) + 1e-9
        shares, means = mass / mass.sum(), resp.T @ z / mass[:, None]
        variances = np.maximum(resp.T @ z**2 / mass[:, None] - means**2, 0.0) + floor
        rate = (resp.T @ y + 0.5) / (mass + 1.0)
        joint = _densities(z, shares, means, variances)
        joint = joint + weight * (y[:, None] * np.log(rate) + (1 - y[:, None]) * np.log1p(-rate))
        log_total = logsumexp(joint, axis=1)
        resp = np.exp(joint - log_total[:, None])
        if abs(float(log_total.mean()) - previous) < CLOSE:
            break
        previous = float(log_total.mean())
    return ErrorMixture(origin, projection, shares, means, variances, rate)


def _densities(z: Floats, shares: Floats, means: Floats, variances: Floats) -> NDArray[np.float64]:
    """Computes log P(s) + log N(z | s), (items, k)."""
    deviations = z[:, None, :] - means[None]
    normal = -0.5 * (deviations**2 / variances + np.log(2 * np.pi * variances)).sum(axis=2)
    return np.asarray(np.log(shares) + normal)


# Projects vectors of many dimensions onto a plane, to look at them.


Floats = NDArray[np.float64]


def principal_plane(vectors: ArrayLike) -> Floats:
    """Returns the coordinates of vectors on their first two principal components: float64, shape (n, 2).

    `vectors`: shape (n, dimensions), finite. They are centred, not scaled (Pearson 1901). The sign of each component is
    the one that makes its largest loading positive, so that equal input gives equal output. A component without any
    variance, or of fewer than two vectors, is 0. No vectors give shape (0, 2).
    """
    rows = np.asarray(vectors, np.float64)
    plane = np.zeros((len(rows), 2))
    if len(rows) < 2 or rows.shape[1] == 0:
        return plane
    centred = rows - rows.mean(axis=0)
    _, sizes, loadings = np.linalg.svd(centred, full_matrices=False)
    for axis in range(min(2, len(sizes))):
        if sizes[axis] > 1e-9 * max(sizes[0], 1e-300):
            loading = loadings[axis]
            plane[:, axis] = centred @ (loading * np.sign(loading[np.argmax(np.abs(loading))]))
    return plane


# Cuts numbers into a few ordered values. Edges are quantiles of the numbers. As no answer of a classifier takes part, a
# test of the values is as valid as one of values that somebody wrote down: the cut is a function of the images alone.


LEAST_SHARE = 0.05
"""The least share of the numbers between two edges, or beyond one: the few images of a smaller part would weigh as much
in what others are compared with as all of another part."""


def quantile_edges(numbers: ArrayLike, shares: Sequence[float]) -> Floats:
    """Returns edges, ascending, at which the numbers are cut: a number below an edge is on its lower side.

    `numbers`: (n,), finite or NaN, which is left out. `shares`: ascending, in (0, 1): the intended share of the numbers
    below each edge. Equal numbers are never separated, so an edge lies between the two distinct numbers where the share
    below it is nearest to the intended one: pictures of two widths are cut between these. An edge is left out where a
    part would hold less than `LEAST_SHARE` of the numbers. Each edge is the decimal number of fewest digits between its
    two neighbours, so that what a report prints is what was used. Without edges, the numbers are too alike to be
    compared: (0,). So for no numbers.

    Raises ValueError where `shares` are not ascending within (0, 1), or a number is infinite.
    """
    targets = np.asarray(shares, np.float64)
    if not (np.all(np.diff(targets) > 0) and np.all((targets > 0) & (targets < 1))):
        raise ValueError(f"shares must ascend within (0, 1), not {list(shares)}")
    x = np.asarray(numbers, np.float64)
    x = x[~np.isnan(x)]
    if not np.isfinite(x).all():
        raise ValueError("numbers must be finite, or NaN where there is none")
    distinct, counts = np.unique(x, return_counts=True)
    if len(distinct) < 2:
        return np.zeros(0)
    shares_below = np.cumsum(counts)[:-1] / len(x)
    edge_indices: list[int] = []
    for share in targets:
        i_edge = int(np.argmin(np.abs(shares_below - share)))
        last_share = shares_below[edge_indices[-1]] if edge_indices else 0.0
        if min(shares_below[i_edge] - last_share, 1 - shares_below[i_edge]) >= LEAST_SHARE - 1e-12:
            edge_indices.append(i_edge)
    return np.array([shortest_between(distinct[i], distinct[i + 1]) for i in edge_indices], np.float64)


def assigned(numbers: ArrayLike, edges: ArrayLike) -> Ints:
    """Returns the number of edges at or below each number, 0 to len(edges); −1 for NaN. Shape of `numbers`, int64."""
    x = np.asarray(numbers, np.float64)
    places: NDArray[np.int64] = np.searchsorted(np.asarray(edges, np.float64), x, side="right").astype(np.int64)
    return np.where(np.isnan(x), -1, places)


def shortest_between(low: float, high: float) -> float:
    """Returns the decimal number x of fewest decimal places with low < x ≤ high, the one nearest to their middle.

    Raises ValueError unless low < high.
    """
    if not low < high:
        raise ValueError(f"nothing lies above {low} and up to {high}")
    exact_low, exact_high = Decimal(float(low)), Decimal(float(high))
    middle = (exact_low + exact_high) / 2
    for places in range(-max(0, exact_high.copy_abs().adjusted()), 18):
        unit = Decimal(1).scaleb(-places)
        first = (exact_low / unit).to_integral_value(ROUND_CEILING) * unit
        first = first + unit if first == exact_low else first
        if first > exact_high:
            continue
        steps = max(Decimal(0), ((middle - first) / unit).to_integral_value())
        candidate = first + steps * unit
        candidate = candidate if candidate <= exact_high else first
        if low < float(candidate) <= high:
            return float(candidate)
    return float(high)
