"""Captions as the sampling unit: the effective number of independent images, or pairs of answers, in a cell whose
images come from few captions.

Works on counts by cell and caption. Images of one caption share its wording, and with it what makes them easier or
harder: a cell of 400 images from one caption says much about the caption and little about the cell.

A caption's accuracy is the cell's plus an effect. How far effects spread is one number for a family of cells: the mean
square between a cell's captions has expectation A(1-A) + (m-1) * sigma^2, m images a caption (analysis of variance,
Donner 1986). It is averaged over its posterior rather than estimated and cut off at 0, so that few captions that happen
to agree do not pass for no effects. Two shapes are averaged by how well they fit: effects of one standard deviation for
all cells, cut off at an accuracy of 1 (or 0), and effects that shrink with A(1-A), as they do on the log-odds scale.

Where two classifiers answer the same images, the same holds of the difference of their accuracies: on one wording the
one may be better, on another the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, ndtr, stdtrit

from c2b_ray.stats.contrasts import Design, contrast_interval, contrast_p_values
from c2b_ray.stats.rates import RateEstimate, ratios_of
from c2b_ray.stats.roots import checked_levels, deviations
from c2b_ray.stats.scores import Floats, checked_counts, checked_pairs

SCALES = np.linspace(0.0, 0.3, 31)
"""The grid of standard deviations of caption effects, at an accuracy of .8."""

USUAL = 0.06
TAILS = 3.0
"""Their prior: half of Student's t with this scale and these degrees of freedom.

Half-normal it kept few captions from being believed where they differ much: at a standard deviation of .15, one null
audit of two values in eighteen had a finding from five captions a cell, one in ten from two.
"""

AT_USUAL = 0.4
"""The standard deviation of one answer at that accuracy: sqrt(.8 * .2)."""

PSEUDO = 0.5
LEAST_DEGREES_OF_CAPTIONS = 3.0

_CUTS = np.linspace(-4.0, 6.0, 201)
_DENSITY, _BELOW = np.exp(-(_CUTS**2) / 2) / np.sqrt(2 * np.pi), ndtr(_CUTS)
_MEAN = -_DENSITY + _CUTS * (1 - _BELOW)
_ROOM = _CUTS - _MEAN
"""How far the mean of a standard normal cut off at t lies below t, for t of `_CUTS`."""
_LEFT = np.sqrt(np.maximum(_BELOW - _CUTS * _DENSITY + _CUTS**2 * (1 - _BELOW) - _MEAN**2, 0.0))
"""Its standard deviation."""


@dataclass(frozen=True)
class EffectiveImages:
    """`effective` (cells,): the number of independent images that carry the same information on a cell's accuracy.
    `spread` (cells,): standard deviation of the accuracies of a cell's captions; NaN where no cell of the family has
    two captions."""

    effective: Floats
    spread: Floats


def effective_images(right: ArrayLike, total: ArrayLike, confidence: float = 0.95) -> EffectiveImages:
    """Computes the effective number of images of each cell of a family, where several captions drew the images.

    v/n_eff = (v/n + sigma^2 * sum over captions of (n_c/n)^2) * (t/z)^2,   v = s(1-s), s = (right + .5)/(n + 1)

    sigma^2 is the posterior mean of the variance between captions at the cell's accuracy. t is Student's quantile with
    the degrees of freedom at which a variance is as uncertain as this one (Satterthwaite 1946: 2 * mean^2 / variance),
    z the normal one: few captions make wider intervals. To be used as `contrast_test(accuracy, effective, ...)`.

    Args: right, total: whole numbers of shape (cells, captions), 0 where a cell has no such caption; an image that two
    captions drew counts for one of them. All cells of one classifier make a good family. confidence: of the limits.
    Returns: `EffectiveImages`; 0 < effective <= n, 0 for a cell without images. Where no cell has two captions with
    images, the spread between captions is unknown: effective is then n and the spread NaN, and callers have to report
    it. If captions differed by .05, a fifth (100 images a cell) to a third (400) of findings would then be false.
    Raises: ValueError where not 0 <= right <= total in whole numbers, where there are not two axes, or the confidence.
    """
    r, n = (np.asarray(counts, dtype=np.float64) for counts in checked_counts(right, total))
    if r.ndim != 2:
        raise ValueError(f"right and total need axes of cells and captions, got shape {r.shape}")
    smooth = (r.sum(axis=1) + PSEUDO) / (n.sum(axis=1) + 2 * PSEUDO)
    between = np.stack([_spread(smooth[:, None], SCALES, shape) ** 2 for shape in (0, 1)])  # (shape, cell, scale)
    return _effective(r, n, smooth * (1 - smooth), between, deviations(confidence))


def effective_pairs(
    only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike, confidence: float = 0.95
) -> EffectiveImages:
    """Computes the effective number of pairs of answers of each cell of a family, where several captions drew the
    images that two classifiers answered.

    The formulas of `effective_images`, for the difference of the accuracies: v = a + b - (b - a)^2, with a and b the
    shares of images that A alone and B alone get right. The variance between captions is a share of v, the intraclass
    correlation, with the prior that it has in `effective_images` at an accuracy of .8.

    Args: only_a, only_b, total: numbers of shape (cells, captions); images that A alone, B alone got right, and that
    both answered. confidence: of the limits.
    Returns: `EffectiveImages`, with the spread of the differences of a cell's captions; as above where no cell has two
    captions with images.
    Raises: ValueError where not 0 <= only_a + only_b <= total, for other axes, or the confidence.
    """
    a, b, n = checked_pairs(only_a, only_b, total)
    if n.ndim != 2:
        raise ValueError(f"the counts need axes of cells and captions, got shape {n.shape}")
    images = n.sum(axis=1)
    share_a, share_b = ((counts.sum(axis=1) + PSEUDO) / (images + 2 * PSEUDO) for counts in (a, b))
    noise = share_a + share_b - (share_b - share_a) ** 2
    between = (SCALES / AT_USUAL) ** 2 * noise[:, None]
    return _effective(b - a, n, noise, between[None], deviations(confidence))


def _effective(sums: Floats, n: Floats, noise: Floats, between: Floats, z: Floats | float) -> EffectiveImages:
    """`sums`, `n` (cells, captions): of a number for each image, and how many images. `noise` (cells,): variance of
    that number. `between` (shapes, cells, scales): variances of the captions' means that are considered."""
    images = n.sum(axis=1)
    has_captions = (n > 0).sum(axis=1) >= 2
    if not has_captions.any():
        return EffectiveImages(images, np.full(len(n), np.nan))
    between = np.minimum(between, noise[:, None])
    posterior = _posterior(sums[has_captions], n[has_captions], noise[has_captions], between[:, has_captions])
    counts = np.maximum(images, 1.0)
    parts = (n**2).sum(axis=1) / counts**2
    variances = noise[:, None] / counts[:, None] + between * (parts - 1 / counts)[:, None]
    mean = np.einsum("as,ajs->j", posterior, variances)
    uncertainty = np.einsum("as,ajs->j", posterior, (variances - mean[:, None]) ** 2)
    degrees = np.maximum(2 * mean**2 / np.maximum(uncertainty, 1e-12 * mean**2), LEAST_DEGREES_OF_CAPTIONS)
    student = stdtrit(np.minimum(degrees, 1e6), ndtr(z))
    effective = np.where(images > 0, np.minimum(noise / (mean * (student / z) ** 2), images), 0.0)
    return EffectiveImages(effective, np.sqrt(np.einsum("as,ajs->j", posterior, between)))


def _spread(accuracy: Floats, scale: Floats, shape: int) -> Floats:
    """Standard deviation of caption accuracies in a cell, for a scale of effects; arrays that broadcast."""
    headroom = np.minimum(accuracy, 1 - accuracy)
    if shape:
        # As large as the scale at an accuracy of .8.
        result: Floats = scale * np.sqrt(accuracy * (1 - accuracy)) / AT_USUAL
        return result
    share = np.divide(
        headroom, scale, out=np.full(np.broadcast_shapes(headroom.shape, scale.shape), np.inf), where=scale > 0
    )
    cut: Floats = scale * np.interp(share, _ROOM, _LEFT)
    return cut


def _posterior(sums: Floats, n: Floats, noise: Floats, between: Floats) -> Floats:
    """Weights of (shape, scale) that sum to 1: from cells of two captions and more.

    The mean square of a cell is taken for scaled chi-square with a degree of freedom less than captions; fewer where
    wrong (or right) answers are so few that counts of them scatter more than normal ones: kurtosis 3 + 1/expected.
    """
    images = n.sum(axis=1)
    free = (n > 0).sum(axis=1) - 1.0
    mean = (sums.sum(axis=1) / images)[:, None]
    square = (n * (np.divide(sums, n, out=np.zeros(n.shape), where=n > 0) - mean) ** 2).sum(axis=1) / free
    size = (images - (n**2).sum(axis=1) / images) / free
    expected = noise[:, None] + np.maximum(size - 1, 0.0)[:, None] * between
    scarce = 2 / (2 + 1 / (size * noise))
    logs = -0.5 * ((free * scarce)[:, None] * (np.log(expected) + square[:, None] / expected)).sum(axis=1)
    logs -= (TAILS + 1) / 2 * np.log1p((SCALES / USUAL) ** 2 / TAILS)
    weights = np.exp(logs - logs.max())
    result: Floats = weights / weights.sum()
    return result


# Images in clusters, such as those of one camera, patient or video: the variance of a weighted sum of means.
#
# Clusters are taken as the independent samples; within one, and also between its cells, images may depend on each
# other in any way. A design has a factor and degrees of freedom, which `contrast_interval` and its tests take: the
# binomial counts keep the right skewness, and the clusters give the width.


LEAST_FACTOR = 1e-2  # of a design whose clusters happen to agree: keeps counts finite
LEAST_DEGREES = 0.5


def cluster_design(sums: ArrayLike, images: ArrayLike, variance: ArrayLike, weights: ArrayLike) -> Design:
    """Estimates how much clusters add to the variance of every weighted sum of cells' means.

    S_j = sum over cells k of w_jk * Y_k / n_k
    V_j = sum over clusters g of ( sum over k of w_jk * (y_gk - n_gk * Y_k / n_k) / (n_k * sqrt(1 - n_gk / n_k)) )^2
    factor_j = V_j / (sum over k of w_jk^2 * v_k / n_k),   degrees_j = tr(M)^2 / tr(M^2)

    y_gk is the sum, n_gk the number of a cluster's images in a cell, and Y_k, n_k are a cell's. V is the cluster-robust
    variance with Bell and McCaffrey's correction for few clusters (2002, Survey Methodology 28: 169-181; "CR2"), which
    for means of cells has this closed form. The degrees are Satterthwaite's (1946), as they propose, with M the
    covariance of the clusters' terms if images were independent with the variances v. The factor is Kish's design
    effect, so that counts divided by it are Rao and Scott's (1992, Biometrics 48: 577-585) effective ones.

    Args: sums, images: (..., cells, clusters), images 0 or more; variance: v, of one image's number, (..., cells),
    above 0 where a cell has images; weights: signed, (..., sums, cells), 0 where a cell has none.
    Returns: `Design`, (..., sums); below 1 where clusters hold images of both sides and differences cancel. Where one
    cluster holds all images of a cell that counts, nothing is known of its variance: the factor leaves one image, and
    the degrees are .5. NaN where a weight is.
    Raises: ValueError where shapes do not fit.
    """
    y, n = np.asarray(sums, np.float64), np.asarray(images, np.float64)
    v, w = np.asarray(variance, np.float64), np.asarray(weights, np.float64)
    if y.shape != n.shape or n.ndim < 2 or v.shape[-1:] != n.shape[-2:-1] or w.shape[-1:] != v.shape[-1:]:
        raise ValueError(
            f"need sums and images (..., cells, clusters), variance (..., cells) and weights (..., sums, cells); "
            f"got {y.shape}, {n.shape}, {v.shape} and {w.shape}"
        )
    images_of_cell = n.sum(axis=-1)
    per_image = np.divide(1.0, images_of_cell, out=np.zeros(images_of_cell.shape), where=images_of_cell > 0)
    other_share = 1 - n * per_image[..., None]  # share of the cell's images in other clusters
    single = (other_share < 1e-12).any(axis=-1)
    correction = (
        np.divide(1.0, np.sqrt(other_share), out=np.zeros(n.shape), where=other_share >= 1e-12) * per_image[..., None]
    )
    residual = (y - n * (y.sum(axis=-1) * per_image)[..., None]) * correction
    robust = ((w @ residual) ** 2).sum(axis=-1)
    independent = (w**2 * (v * per_image)[..., None, :]).sum(axis=-1)
    degrees = _degrees(w, n, v[..., None] * correction**2, per_image)
    factor = np.divide(robust, independent, out=np.ones(robust.shape), where=independent > 0)
    unknown = ((w != 0) & single[..., None, :]).any(axis=-1)
    factor = np.where(
        unknown, images_of_cell.max(axis=-1, keepdims=True, initial=1.0), np.maximum(factor, LEAST_FACTOR)
    )
    missing = np.isnan(w).any(axis=-1)
    degrees = np.where(unknown, LEAST_DEGREES, np.maximum(degrees, LEAST_DEGREES))
    return Design(np.where(missing, np.nan, factor), np.where(missing, np.nan, degrees))


def with_other_variance(design: Design, independent: ArrayLike, total_variance: ArrayLike) -> Design:
    """Returns the design of sums whose variance has parts beside that of images, such as that between captions.

    factor = (V + W - U) / W,   degrees = degrees of V * ((V + W - U) / V)^2,   V = design.factor * U

    U is the variance of independent images, W the whole variance without clusters, of which U is a part, and V the
    variance with clusters. Variances of crossed factors add, and that of images alone counts once (Cameron, Gelbach &
    Miller 2011, Journal of Business & Economic Statistics 29: 238-249, for two factors of clusters). The degrees are
    Satterthwaite's, with W - U taken as known: effective counts hold how well it is known.

    Args: independent, whole: U and W, float64 of the design's shape, U <= W.
    Returns: `Design` relative to W: for counts that are effective in W. The same design where U = W.
    """
    u, w = np.asarray(independent, np.float64), np.asarray(total_variance, np.float64)
    share = np.divide(u, w, out=np.ones(np.broadcast_shapes(u.shape, w.shape)), where=w > 0)
    factor = design.factor * share + (1 - share)
    return Design(factor, design.degrees * (factor / (design.factor * share)) ** 2)


def _degrees(w: Floats, n: Floats, square: Floats, per_image: Floats) -> Floats:
    """Computes tr(M)^2 / tr(M^2) for M = diag(D) - B'B, which is not formed: it has a row and column per cluster."""
    diagonal = w**2 @ (square * n)  # D, (..., sums, clusters)
    # B_jkg, up to the weight of its cell: sqrt(square) * n_g / sqrt(n).
    loadings = np.sqrt(square * per_image[..., None]) * n
    of_loadings = w**2 @ loadings**2  # the sum over cells of B^2
    inner = np.einsum("...kg,...lg->...kl", loadings, loadings)
    trace = (diagonal - of_loadings).sum(axis=-1)
    squares = (diagonal**2 - 2 * diagonal * of_loadings).sum(axis=-1) + np.einsum(
        "...jk,...kl,...jl->...j", w**2, inner**2, w**2
    )
    result: Floats = np.divide(trace**2, squares, out=np.full(trace.shape, LEAST_DEGREES), where=squares > 0)
    return result


def cluster_correlation(cell: ArrayLike, right: ArrayLike, images: ArrayLike) -> tuple[float, float]:
    """Estimates the intraclass correlation of right answers within clusters, and tests it.

    rho = (sum over cells of d_k * (MSB_k - MSW_k)) / (sum over cells of d_k * (MSB_k + (m_k - 1) * MSW_k))
    d_k = G_k - 1,   m_k = (n_k - sum over clusters of n_gk^2 / n_k) / d_k

    by the one-way analysis of variance of each cell (Donner 1986, International Statistical Review 54: 67-82). Each
    cell is compared with itself, so that neither cells which differ in accuracy nor clusters that are small in the
    cells where answers vary most feign it.

    The p-value is that of the sum of squares between clusters if a cell's right answers fell on its images at random.
    Its mean and variance then are those of a chi-squared statistic of a table with fixed margins, times a constant
    (Haldane 1940, Biometrika 31: 346-355), and a gamma distribution with these moments stands for it: the F
    distribution is wrong for answers that are nearly all right.

    Args: cell, right, images: whole numbers of shape (parts,), a part being the images of one cluster in one cell:
    the number of its cell, from 0, its right answers, and its images, 1 or more.
    Returns: (rho, p). rho is at most 1, 0: images of a cluster are no more alike than others. (NaN, 1) where no cell
    has two clusters, one of them of two images, and both right and wrong answers.
    Raises: ValueError where shapes differ or are not one-dimensional, or a part has no image.
    """
    cells, y, n = np.asarray(cell, np.int64), np.asarray(right, np.float64), np.asarray(images, np.float64)
    if not cells.shape == y.shape == n.shape or y.ndim != 1 or (n < 1).any():
        raise ValueError(
            f"cell, right and images need one shape (parts,) and images of 1 or more, got {cells.shape}, {y.shape} and "
            f"{n.shape}"
        )
    parts = (
        np.bincount(cells, np.ones(len(cells))),
        np.bincount(cells, n),
        np.bincount(cells, y),
        np.bincount(cells, 1 / n),
    )
    sums = np.stack([*parts, np.bincount(cells, y**2 / n), np.bincount(cells, n**2)])
    clusters, sizes_of_cell, total = sums[:3]
    usable = (clusters > 1) & (sizes_of_cell > clusters) & (sizes_of_cell > 3) & (total > 0) & (total < sizes_of_cell)
    if not usable.any():
        return float("nan"), 1.0
    clusters, sizes_of_cell, total, inverse, squares, sizes = sums[:, usable]
    degrees = clusters - 1
    between_squares = squares - total**2 / sizes_of_cell
    mean_square = (
        (total - squares) / (sizes_of_cell - clusters) * degrees
    )  # right answers are 0 or 1: each is its square
    size = (sizes_of_cell - sizes / sizes_of_cell) / degrees
    rho = float((between_squares - mean_square).sum() / (between_squares + (size - 1) * mean_square).sum())
    scale = total * (sizes_of_cell - total) / sizes_of_cell**2
    mean = float((scale * sizes_of_cell / (sizes_of_cell - 1) * degrees).sum())
    variance = float((scale**2 * _chi_squared_variance(clusters, sizes_of_cell, total, inverse)).sum())
    if variance <= 1e-12 * mean**2:
        return rho, 1.0  # wherever the right answers fall, the sum is the same
    return rho, float(gammaincc(mean**2 / variance, between_squares.sum() * mean / variance))


def _chi_squared_variance(clusters: Floats, n: Floats, total: Floats, inverse: Floats) -> Floats:
    """Returns the variance of the chi-squared statistic of each table of right and wrong answers by cluster, given its
    margins: `total` right ones of `n`, at least 4, in `clusters` whose inverse sizes sum to `inverse`."""
    of_answers = 1 / total + 1 / (n - total)
    v_clusters, v_answers = ((k - 1) * (n - k) / (n - 1) for k in (clusters, 2))
    w_clusters, w_answers = ((n * a - k**2) / (n - 2) for k, a in ((clusters, inverse), (2, of_answers)))
    first = 2 * n / (n - 3) * (v_clusters - w_clusters) * (v_answers - w_answers)
    variance: Floats = first + n**2 / (n - 1) * w_clusters * w_answers
    return variance


# Failure rates of images in clusters, such as those of one camera: rates, ratios and tests of two sides.
#
# Clusters are the independent samples; one cluster may hold images of both sides.


OWN, OTHERS = 0, 1


class Correlation(NamedTuple):
    """An intraclass correlation of failures, at most 1, below 0 taken as 0, and the degrees of freedom with which it is
    known."""

    value: float
    degrees: float


UNKNOWN = Correlation(0.0, 0.0)


@dataclass(frozen=True)
class ClusteredSides:
    """Failures and images by side and cluster, float64 (..., 2, clusters), 0 <= failures <= images: first the images
    with a caption, then those that it is compared with."""

    failures: Floats
    images: Floats

    @classmethod
    def of(cls, failures: ArrayLike, images: ArrayLike) -> ClusteredSides:
        """Builds checked sides. Raises: ValueError where shapes or counts are invalid."""
        f, n = np.asarray(failures, np.float64), np.asarray(images, np.float64)
        if f.shape != n.shape or f.ndim < 2 or f.shape[-2] != 2 or not ((f >= 0) & (f <= n)).all():
            raise ValueError(
                f"need failures and images of one shape (..., 2, clusters), 0 <= failures <= images; got shapes "
                f"{f.shape} and {n.shape}"
            )
        return cls(f, n)

    @property
    def rates(self) -> Floats:
        """Failures over images of each side, (..., 2); NaN for a side without images."""
        images = self.images.sum(axis=-1)
        rates: Floats = np.divide(
            self.failures.sum(axis=-1), images, out=np.full(images.shape, np.nan), where=images > 0
        )
        return rates

    @property
    def clusters(self) -> Floats:
        """The number of clusters of each side, (..., 2)."""
        count: Floats = (self.images > 0).sum(axis=-1).astype(np.float64)
        return count

    def _variance(self) -> Floats:
        smooth: Floats = (self.failures.sum(axis=-1) + 0.5) / (self.images.sum(axis=-1) + 1)
        return smooth * (1 - smooth)


def clustered_rates(sides: ClusteredSides, confidence: float = 0.95, known: Correlation = UNKNOWN) -> RateEstimate:
    """Computes the failure rate of each side with limits.

    rate = f/n;  limits: those of a sum with the one weight 1 in `contrast_interval`, under the design

    factor = (d * F + d0 * F0) / (d + d0),   degrees = d + d0,   F0 = 1 + (sum over clusters of n_g^2 / n - 1) * rho

    F and d are those of `cluster_design`, rho and d0 the correlation of more images and its degrees (Kish 1965, section
    5.4, for F0; moderated as variances of few samples are by those of many, Smyth 2004, Statistical Applications in
    Genetics and Molecular Biology 3: 3, section 3). Failures are rare, and most clusters of a side may have none: then
    its own variance between clusters says little. A side of one cluster says nothing, and is not moderated.

    Args: sides: (..., 2, clusters); confidence: in (0, 1); known: what other images tell too.
    Returns: `RateEstimate` (..., 2) in [0, 1]. Without images NaN within (0, 1); nearly so with images of one cluster.
    Raises: ValueError for the confidence.
    """
    checked_levels(confidence=confidence)
    f, n, rates = sides.failures.sum(axis=-1), sides.images.sum(axis=-1), sides.rates
    weights = np.where(n > 0, 1.0, np.nan)[..., None, None]
    design = cluster_design(
        sides.failures[..., None, :], sides.images[..., None, :], sides._variance()[..., None], weights
    )
    sizes = np.divide((sides.images**2).sum(axis=-1), n, out=np.ones(n.shape), where=n > 0)
    expected = (1 + (sizes - 1) * max(known.value, 0.0))[..., None]
    extra_degrees = np.where(design.degrees > LEAST_DEGREES, known.degrees, 0.0)
    degrees = design.degrees + extra_degrees
    design = Design((design.degrees * design.factor + extra_degrees * expected) / degrees, degrees)
    low, high = contrast_interval(f[..., None, None], n[..., None, None], weights, confidence, design)
    low, high = np.clip(np.nan_to_num(low[..., 0], nan=0.0), 0, 1), np.clip(np.nan_to_num(high[..., 0], nan=1.0), 0, 1)
    return RateEstimate(rates, low, high)


def clustered_rate_ratios(
    sides: ClusteredSides, confidence: float = 0.95, known: Correlation = UNKNOWN
) -> RateEstimate:
    """Computes the ratio of the first side's failure rate to the second's, with limits.

    The limits follow from those of both rates as `rate_ratios` has it (MOVER-R, Donner & Zou 2012), as if the rates
    were independent: where clusters hold images of both sides and fail more on both, the interval is too wide, never
    too narrow.

    Args: as for `clustered_rates`.
    Returns: `RateEstimate` (...), 0 or more, as `rate_ratios`.
    Raises: ValueError for the confidence.
    """
    rates = clustered_rates(sides, confidence, known)
    rates_of_side, baseline_rates = (RateEstimate(*(values[..., side] for values in rates)) for side in (OWN, OTHERS))
    return ratios_of(rates_of_side, baseline_rates)


def clustered_more_p_values(sides: ClusteredSides) -> Floats:
    """Computes the p-value of "the first side fails no more often than the second".

    p = P(T beyond t | rates equal), one-sided: half of `contrast_p_values` of the difference where it is above 0, else
    1 less that half

    Args: sides: (..., 2, clusters).
    Returns: float64 (...) in [0, 1]; 1 where a side has no images.
    """
    f, n = sides.failures.sum(axis=-1), sides.images.sum(axis=-1)
    weights = np.where((n > 0).all(axis=-1, keepdims=True), np.array([1.0, -1.0]), np.nan)[..., None, :]
    design = cluster_design(sides.failures, sides.images, sides._variance(), weights)
    half = contrast_p_values(f[..., None, :], n[..., None, :], weights, design=design)[..., 0] / 2
    rates = sides.rates
    p: Floats = np.where(rates[..., OWN] > rates[..., OTHERS], half, 1 - half)
    return np.nan_to_num(p, nan=1.0)
