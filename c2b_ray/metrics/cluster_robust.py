"""Images in clusters, such as those of one camera, patient or video: the variance of a weighted sum of means.

Works on sums and numbers of images by cell and cluster. Clusters are taken as the independent samples; within one, and
also between its cells, images may depend on each other in any way. A design has a factor and degrees of freedom, which
`contrast_interval` and its tests take: the binomial counts keep the right skewness, and the clusters give the width.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc

from c2b_ray.metrics.contrasts import Design
from c2b_ray.metrics.scores import Floats

__all__ = ["beside", "cluster_correlation", "cluster_design"]

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
    whole = n.sum(axis=-1)
    per_image = np.divide(1.0, whole, out=np.zeros(whole.shape), where=whole > 0)
    left = 1 - n * per_image[..., None]  # share of the cell's images in other clusters
    single = (left < 1e-12).any(axis=-1)
    correction = np.divide(1.0, np.sqrt(left), out=np.zeros(n.shape), where=left >= 1e-12) * per_image[..., None]
    residual = (y - n * (y.sum(axis=-1) * per_image)[..., None]) * correction
    robust = ((w @ residual) ** 2).sum(axis=-1)
    independent = (w**2 * (v * per_image)[..., None, :]).sum(axis=-1)
    degrees = _degrees(w, n, v[..., None] * correction**2, per_image)
    factor = np.divide(robust, independent, out=np.ones(robust.shape), where=independent > 0)
    unknown = ((w != 0) & single[..., None, :]).any(axis=-1)
    factor = np.where(unknown, whole.max(axis=-1, keepdims=True, initial=1.0), np.maximum(factor, LEAST_FACTOR))
    missing = np.isnan(w).any(axis=-1)
    degrees = np.where(unknown, LEAST_DEGREES, np.maximum(degrees, LEAST_DEGREES))
    return Design(np.where(missing, np.nan, factor), np.where(missing, np.nan, degrees))


def beside(design: Design, independent: ArrayLike, whole: ArrayLike) -> Design:
    """Returns the design of sums whose variance has parts beside that of images, such as that between captions.

    factor = (V + W - U) / W,   degrees = degrees of V * ((V + W - U) / V)^2,   V = design.factor * U

    U is the variance of independent images, W the whole variance without clusters, of which U is a part, and V the
    variance with clusters. Variances of crossed factors add, and that of images alone counts once (Cameron, Gelbach &
    Miller 2011, Journal of Business & Economic Statistics 29: 238-249, for two factors of clusters). The degrees are
    Satterthwaite's, with W - U taken as known: effective counts hold how well it is known.

    Args: independent, whole: U and W, float64 of the design's shape, U <= W.
    Returns: `Design` relative to W: for counts that are effective in W. The same design where U = W.
    """
    u, w = np.asarray(independent, np.float64), np.asarray(whole, np.float64)
    share = np.divide(u, w, out=np.ones(np.broadcast_shapes(u.shape, w.shape)), where=w > 0)
    factor = design.factor * share + (1 - share)
    return Design(factor, design.degrees * (factor / (design.factor * share)) ** 2)


def _degrees(w: Floats, n: Floats, square: Floats, per_image: Floats) -> Floats:
    """Computes tr(M)^2 / tr(M^2) for M = diag(D) - B'B, which is not formed: it has a row and column per cluster."""
    own = w**2 @ (square * n)  # D, (..., sums, clusters)
    # B_jkg, up to the weight of its cell: sqrt(square) * n_g / sqrt(n).
    shared = np.sqrt(square * per_image[..., None]) * n
    of_shared = w**2 @ shared**2  # the sum over cells of B^2
    inner = np.einsum("...kg,...lg->...kl", shared, shared)
    trace = (own - of_shared).sum(axis=-1)
    squares = (own**2 - 2 * own * of_shared).sum(axis=-1) + np.einsum("...jk,...kl,...jl->...j", w**2, inner**2, w**2)
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
    at, y, n = np.asarray(cell, np.int64), np.asarray(right, np.float64), np.asarray(images, np.float64)
    if not at.shape == y.shape == n.shape or y.ndim != 1 or (n < 1).any():
        raise ValueError(
            f"cell, right and images need one shape (parts,) and images of 1 or more, got {at.shape}, {y.shape} and "
            f"{n.shape}"
        )
    parts = np.bincount(at, np.ones(len(at))), np.bincount(at, n), np.bincount(at, y), np.bincount(at, 1 / n)
    sums = np.stack([*parts, np.bincount(at, y**2 / n), np.bincount(at, n**2)])
    clusters, whole, total = sums[:3]
    tells = (clusters > 1) & (whole > clusters) & (whole > 3) & (total > 0) & (total < whole)
    if not tells.any():
        return float("nan"), 1.0
    clusters, whole, total, inverse, squares, sizes = sums[:, tells]
    degrees = clusters - 1
    between = squares - total**2 / whole
    within = (total - squares) / (whole - clusters) * degrees  # right answers are 0 or 1: each is its square
    size = (whole - sizes / whole) / degrees
    rho = float((between - within).sum() / (between + (size - 1) * within).sum())
    scale = total * (whole - total) / whole**2
    mean = float((scale * whole / (whole - 1) * degrees).sum())
    variance = float((scale**2 * _chi_squared_variance(clusters, whole, total, inverse)).sum())
    if variance <= 1e-12 * mean**2:
        return rho, 1.0  # wherever the right answers fall, the sum is the same
    return rho, float(gammaincc(mean**2 / variance, between.sum() * mean / variance))


def _chi_squared_variance(clusters: Floats, whole: Floats, total: Floats, inverse: Floats) -> Floats:
    """Returns the variance of the chi-squared statistic of each table of right and wrong answers by cluster, given its
    margins: `total` right ones of `whole`, at least 4, in `clusters` whose inverse sizes sum to `inverse`."""
    of_answers = 1 / total + 1 / (whole - total)
    v_clusters, v_answers = ((k - 1) * (whole - k) / (whole - 1) for k in (clusters, 2))
    w_clusters, w_answers = ((whole * a - k**2) / (whole - 2) for k, a in ((clusters, inverse), (2, of_answers)))
    first = 2 * whole / (whole - 3) * (v_clusters - w_clusters) * (v_answers - w_answers)
    variance: Floats = first + whole**2 / (whole - 1) * w_clusters * w_answers
    return variance
