"""Whether a score is equally high in several groups: KL of the groups' means from uniform, with its expected value
under chance.

Knows sums of scores by image and the images' groups; knows nothing of what a score is of. KL from finite samples is
never below 0 and above it on average, however fair the model: so it comes with the value that chance alone gives, an
interval that holds 0 unless equality is refuted, and a p-value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, xlogy

from c2b_ray.stats.resampling import LEAST_SAMPLED, bootstrap_weights, upper_tail
from c2b_ray.stats.scores import Floats, Ints

# The least and the largest KL from uniform among the rates that a test with a given limit does not reject
# (Fieller's region).


STEPS = 80


def extreme_divergences(rates: Floats, errors: tuple[Floats, Floats], limit: Floats) -> tuple[Floats, Floats]:
    """Finds the least and largest KL(p || uniform) over all true rates t >= 0 with sum of ((t_a - r_a) / e_a)^2 <=
    limit, e_a the first error where t_a is below r_a, the second where it is above.

    p = t / sum of t does not depend on the scale of t: the region of p is then that of Fieller (1954), all p for which
    some scale is within the limit. Two groups: the angle that the region subtends, exactly. More: steps along the
    gradient on the sphere, from every corner (`STEPS`; the tests compare with a general optimiser).

    Args: rates: (models, groups); errors: downwards and upwards, each of that shape and above 0; limit: (models,).
    Returns: (low, high), float64 (models,), 0 <= low <= high <= log(groups); NaN where a rate is NaN.
    """
    if rates.shape[1] == 2:
        return _of_two(rates, errors, limit)
    low, high = (_along(rates, errors, limit, sign) for sign in (-1.0, 1.0))
    below = errors[0]
    contains_zero = (np.divide(rates, below, where=below > 0, out=np.full(rates.shape, np.inf)) ** 2).sum(1) <= limit
    return np.where(contains_zero, 0.0, low), np.where(contains_zero, np.log(rates.shape[1]), high)


def _kl(rates: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        p = rates / rates.sum(axis=-1, keepdims=True)
        value: Floats = np.maximum(xlogy(p, p).sum(axis=-1) + np.log(rates.shape[-1]), 0.0)
    return value


def _of_two(rates: Floats, errors: tuple[Floats, Floats], limit: Floats) -> tuple[Floats, Floats]:
    below, above = errors
    # Where the region ends, one rate is larger and the other smaller than observed.
    first = _ends(rates, np.stack([above[:, 0], below[:, 1]], axis=1), limit)[0]
    second = _ends(rates, np.stack([below[:, 0], above[:, 1]], axis=1), limit)[1]
    values = _kl(np.stack([first, second], axis=1))
    contains_equal = (first[:, 1] <= first[:, 0]) & (second[:, 0] <= second[:, 1])
    return np.where(contains_equal, 0.0, values.min(axis=1)), values.max(axis=1)


def _ends(rates: Floats, errors: Floats, limit: Floats) -> tuple[Floats, Floats]:
    """Returns the rates, (models, 2) each, at the two ends of the angle that the ellipse with these errors subtends:
    those in favour of the first group, and of the second."""
    scale = np.maximum(errors, 1e-300)
    z = rates / scale
    length = np.hypot(z[:, 0], z[:, 1])
    with np.errstate(invalid="ignore", divide="ignore"):
        half = np.where(length**2 > limit, np.arcsin(np.minimum(np.sqrt(limit) / length, 1.0)), np.pi)
    middle = np.arctan2(z[:, 1], z[:, 0])
    low, high = (np.clip(middle + side * half, 0, np.pi / 2) for side in (-1, 1))
    return (
        np.stack([np.cos(low), np.sin(low)], axis=1) * scale,
        np.stack([np.cos(high), np.sin(high)], axis=1) * scale,
    )


def _along(rates: Floats, errors: tuple[Floats, Floats], limit: Floats, sign: float) -> Floats:
    groups = rates.shape[1]
    below, above = (side[:, None] for side in errors)
    corners = np.concatenate([np.eye(groups), -np.eye(groups)])
    radius = np.sqrt(limit)[:, None, None]
    z = corners[None] * radius
    step = 1.0
    floor = 1e-12 * np.maximum(rates.max(axis=1), errors[0].max(axis=1) + 1e-300)[:, None, None]
    extreme = _kl(rates)[:, None].repeat(len(corners), axis=1)
    for number in range(STEPS):
        point = np.maximum(rates[:, None] + z * np.where(z > 0, above, below), floor)
        value = _kl(point)
        extreme = np.fmax(extreme, value) if sign > 0 else np.fmin(extreme, value)
        p = point / point.sum(axis=-1, keepdims=True)
        logs = np.log(p)
        slope = (logs - (p * logs).sum(axis=-1, keepdims=True)) * sign
        slope *= np.where(slope > 0, above, below)
        size = np.linalg.norm(slope, axis=-1, keepdims=True)
        towards = radius * np.divide(slope, size, out=np.zeros_like(slope), where=size > 0)
        z = (1 - step) * z + step * towards
        step = 1.0 if number < STEPS // 4 else max(2.0 / (number - STEPS // 4 + 2), 0.02)
    result: Floats = extreme.max(axis=1) if sign > 0 else extreme.min(axis=1)
    return result


CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Chance:
    """Settings of the chance computation: numbers of `permutations` and `resamples`, the `seed` that fixes them, and
    `confidence` in (0, 1)."""

    permutations: int = 2000
    resamples: int = 400
    seed: int = 0
    confidence: float = 0.95


@dataclass(frozen=True)
class Scores:
    """Scores summed by image. `totals` (models, images): the sum of an image's scores; `counts` (models, images): the
    number of scores in it (one per question or per caption). An image without scores has 0 and 0."""

    totals: Floats
    counts: Floats


@dataclass(frozen=True)
class Disparity:
    """Arrays over models. `value`: KL; `low`, `high`: its interval; `expected`: its mean where groups are alike;
    `p_value`: of the null that they are alike. `rates`, `errors` (models, groups): means and their standard errors;
    `reach`: the half-width of an interval of the contrasts, in standard errors. `replicates` (resamples, models): KL of
    bootstrap samples; NaN where they say little (`_told`)."""

    value: Floats
    low: Floats
    high: Floats
    expected: Floats
    p_value: Floats
    rates: Floats
    errors: Floats
    reach: Floats
    replicates: Floats


def kl_of_rates(rates: ArrayLike) -> Floats:
    """`kl_from_uniform` along the last axis of an array (..., groups); NaN where a rate is NaN or none is above 0."""
    r = np.asarray(rates, np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = r / r.sum(axis=-1, keepdims=True)
        value: Floats = np.maximum((xlogy(p, p)).sum(axis=-1) + np.log(r.shape[-1]), 0.0)
    return np.where(np.isfinite(value), value, np.nan)


def disparity(scores: Scores, groups: Ints, number: int, chance: Chance) -> Disparity:
    """Computes KL of the groups' mean scores from uniform, for several models on the same images.

    d = sum over a of p_a * log(p_a * |A|),   p_a = r_a / sum of r,   r_a = sum of scores / number of scores in group a

    Ramos et al. 2025, Eqs. 1 and 3. Images are the unit of permutation and resampling: the questions or captions of one
    image stay together. Equality is tested by permuting groups over images, with Welch's statistic

    W = sum over a of (r_a - m)^2 / v_a,   m the mean weighted by 1/v_a, v_a the linearised variance of a ratio

    which keeps its level where groups differ in variance (Chung & Romano 2013); `_p_values` has its tail. The interval
    is Fieller's: the range of KL over all rates that the test, with the permutations' quantile, does not reject, and
    that a group of few scores above 0 may have (`_errors_upwards`). So it contains 0 wherever equality is not rejected.
    For more than two groups it is a projection, and conservative.

    Args: scores; groups: shape (images,), 0 .. number - 1, or -1 for an image that is left out; chance.
    Returns: `Disparity`. NaN where a group has no score, and where no rate is above 0. 0: all rates equal.
    Raises: ValueError for shapes that differ, a negative total or count, or fewer than two groups.
    """
    grouped, codes = _checked(scores, groups, number)
    x, n = scores.totals[:, grouped], scores.counts[:, grouped]
    sums = _sums(np.eye(number)[codes].T[None], x, n)[0]
    rates, errors = _rates(sums, _noise(x, n))
    value = np.where((sums[..., 1] > 0).all(axis=0), kl_of_rates(rates.T), np.nan)
    observed = _welch(rates, errors)
    null_w, null_s, null_kl = _null(x, n, codes, number, chance)
    p_value = _p_values((observed, null_w), (_pooled(sums), null_s), _share_of_orders(x, n, codes, number))
    limit = np.maximum(
        np.quantile(null_w, chance.confidence, axis=0), scipy.stats.chi2.ppf(chance.confidence, number - 1)
    )
    above = _errors_upwards(rates, errors, sums, _noise(x, n), limit)
    low, high = extreme_divergences(rates.T, (errors.T, above.T), limit)
    unknown = np.isnan(value)
    return Disparity(
        value=value,
        low=np.where(unknown, np.nan, np.where(observed <= limit, 0.0, np.minimum(low, value))),
        high=np.where(unknown, np.nan, np.maximum(high, value)),
        expected=np.where(unknown, np.nan, np.nan_to_num(null_kl, nan=0.0).mean(axis=0)),
        p_value=np.where(unknown, np.nan, p_value),
        rates=rates.T,
        errors=errors.T,
        reach=np.sqrt(limit),
        replicates=np.where(_told(x, n, codes, number), _bootstrap(x, n, codes, number, chance), np.nan),
    )


def _checked(scores: Scores, groups: Ints, number: int) -> tuple[Ints, Ints]:
    codes = np.asarray(groups, np.int64)
    if number < 2:
        raise ValueError(f"{number} group(s): a disparity needs two or more")
    if scores.totals.shape != scores.counts.shape or scores.totals.shape[1:] != codes.shape:
        raise ValueError(f"totals {scores.totals.shape}, counts {scores.counts.shape}, groups {codes.shape}")
    if not (scores.totals >= 0).all() or not (scores.counts >= 0).all():
        raise ValueError("totals and counts must be 0 or more")
    grouped = np.flatnonzero(codes >= 0)
    return grouped, codes[grouped]


def _sums(members: Floats, x: Floats, n: Floats) -> Floats:
    """(..., groups, models, 5): sums of x, n, x^2, x*n, n^2 and so on over the images of each group."""
    columns = np.stack([x, n, x * x, x * n, n * n], axis=-1)  # (models, images, 5)
    flat = np.moveaxis(columns, 0, 1).reshape(x.shape[1], -1)
    result: Floats = (members @ flat).reshape(*members.shape[:-1], len(x), 5)
    return result


def _noise(x: Floats, n: Floats) -> Floats:
    """Computes the variance of one image's total about the pooled rate, per model, so that a group without variance of
    its own is given some."""
    images = np.maximum((n > 0).sum(axis=1), 1)
    total = np.maximum(n.sum(axis=1), 1e-300)
    rate = x.sum(axis=1) / total
    spread = ((x - rate[:, None] * n) ** 2).sum(axis=1) / images
    smooth = (rate * images + 0.5) / (images + 1)
    is_constant = (spread < 1e-12) & (
        rate <= 1
    )  # shares that are all 0 or all 1: as uncertain as one more image would make
    floor = np.where(is_constant, smooth * (1 - smooth) * (total / images) ** 2, 0.0)
    result: Floats = np.maximum(spread, floor)
    return result


def _rates(sums: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Means and standard errors (..., groups, models); to each group's variance the noise of one image is added."""
    x, n, xx, xn, nn = np.moveaxis(sums, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = x / n
        squares = np.maximum(xx - 2 * rates * xn + rates**2 * nn, 0.0) + noise
        images = n * n / np.maximum(nn, 1e-300)  # as many of one size
        variance = squares * (images + 1) / np.maximum(images, 1.0) / n**2
    return rates, np.sqrt(variance)


def _errors_upwards(rates: Floats, errors: Floats, sums: Floats, noise: Floats, limit: Floats) -> Floats:
    """Returns by how much a true rate may lie above the observed one, as a standard error, (groups, models).

    A group whose scores are nearly all 0 hardly varies, and its true rate may still be far higher. So the limit upwards
    is that of a score test, where variance is that of the true rate t: v * t/m, v that of all images at their pooled
    rate m, and at most v.

    t - r <= h/2 + sqrt(h * r + h^2/4),   h = limit * v/m
    """
    n, nn = sums[..., 1], sums[..., 4]
    images_at_rate = n * n / np.maximum(nn, 1e-300)
    pooled = sums[..., 0].sum(axis=0) / np.maximum(n.sum(axis=0), 1e-300)
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = noise * images_at_rate / n**2
        half = limit * variance / pooled / 2
        reach = (half + np.sqrt(2 * half * rates + half**2)) / np.sqrt(limit)
        result: Floats = np.fmax(errors, np.fmin(reach, np.sqrt(variance)))
    return result


def _welch(rates: Floats, errors: Floats) -> Floats:
    """W along the groups' axis, the last but one; 0 where nothing varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        weight = np.where(errors > 0, errors**-2.0, 0.0)
        middle = (weight * rates).sum(axis=-2) / weight.sum(axis=-2)
        value: Floats = (weight * (rates - middle[..., None, :]) ** 2).sum(axis=-2)
    return np.where(np.isfinite(value), value, 0.0)


def _pooled(sums: Floats) -> Floats:
    """Computes the sum over a of (X_a - m N_a)^2 / (s^2 M_a), from (..., groups, models, 5) to (..., models): m the
    pooled rate, s^2 the mean over all images of their squared distance from it, M_a the sum of n^2; 0 where nothing
    varies."""
    totals = sums.sum(axis=-3, keepdims=True)
    rate = totals[..., 0] / np.maximum(totals[..., 1], 1e-300)
    squares = totals[..., 2] - 2 * rate * totals[..., 3] + rate**2 * totals[..., 4]
    with np.errstate(invalid="ignore", divide="ignore"):
        statistic = (sums[..., 0] - rate * sums[..., 1]) ** 2 / sums[..., 4] * totals[..., 4] / np.maximum(squares, 0.0)
        value: Floats = statistic.sum(axis=-2)
    return np.where(np.isfinite(value), value, 0.0)


def _p_values(welch: tuple[Floats, Floats], pooled: tuple[Floats, Floats], least: Floats) -> Floats:
    """Returns p from the observed and the permuted values of both statistics, (models,) and (permutations, models).

    Below what permutations can count, W's p is no smaller than that of the pooled statistic, nor than `least`, the
    share of orders with exactly these scores in these groups. W divides by the variances of small groups, so that its
    tail is far heavier than its moments tell: three images that all failed had 1e-14 where the exact p is 1e-4.
    """
    observed, permuted = welch
    largest = (1.0 + (permuted >= observed - 1e-12 * (1 + observed)).sum(axis=0)) / (1.0 + len(permuted))
    careful = np.minimum(np.maximum(upper_tail(*pooled), least), largest)
    result: Floats = np.maximum(upper_tail(observed, permuted), careful)
    return result


def _share_of_orders(x: Floats, n: Floats, codes: Ints, number: int) -> Floats:
    """Returns for each model the share of all orders of images that give every group exactly the scores that it has, a
    lower limit of any permutation test's p (multivariate hypergeometric)."""
    shares = []
    for scores in np.stack([x, n], axis=-1):
        kind = np.unique(scores, axis=0, return_inverse=True)[1].ravel()
        table = np.zeros((number, kind.max(initial=0) + 1))
        np.add.at(table, (codes, kind), 1)
        margins = gammaln(table.sum(axis=0) + 1).sum() + gammaln(table.sum(axis=1) + 1).sum()
        shares.append(margins - gammaln(len(codes) + 1) - gammaln(table + 1).sum())
    result: Floats = np.exp(np.array(shares))
    return result


def _null(x: Floats, n: Floats, codes: Ints, number: int, chance: Chance) -> tuple[Floats, Floats, Floats]:
    """Returns W, the pooled statistic and KL of permuted groups, (permutations, models) each."""
    noise, parts = _noise(x, n), []
    for members in _permuted(codes, number, chance):
        sums = _sums(members, x, n)
        rates, errors = _rates(sums, noise)
        parts.append((_welch(rates, errors), _pooled(sums), kl_of_rates(np.moveaxis(rates, -2, -1))))
    of_w, of_s, of_kl = zip(*parts, strict=True)
    return np.concatenate(of_w), np.concatenate(of_s), np.concatenate(of_kl)


def _permuted(codes: Ints, number: int, chance: Chance) -> Iterator[Floats]:
    """Indicators (some, groups, images) of permuted groups."""
    random = np.random.default_rng(chance.seed)
    size = max(1, CELLS_AT_ONCE // max(len(codes) * number, 1))
    for start in range(0, chance.permutations, size):
        count = min(size, chance.permutations - start)
        shuffled = random.permuted(np.tile(codes, (count, 1)), axis=1)
        yield (shuffled[:, None, :] == np.arange(number)[:, None]).astype(np.float64)


def _told(x: Floats, n: Floats, codes: Ints, number: int) -> NDArray[np.bool_]:
    """Returns for which models bootstrap samples show how KL varies, (models,): not where a group has few images, or
    no score above 0, for then all samples have the same rate."""
    member = np.eye(number)[codes]
    return np.asarray((((n > 0) @ member >= LEAST_SAMPLED) & (x @ member > 0)).all(axis=1))


def _bootstrap(x: Floats, n: Floats, codes: Ints, number: int, chance: Chance) -> Floats:
    weights = bootstrap_weights(len(codes), chance.resamples, chance.seed)
    member = np.eye(number)[codes]  # (images, groups)
    flat = np.stack([x, n], axis=-1)  # (models, images, 2)
    columns = (member[:, :, None, None] * np.moveaxis(flat, 0, 1)[:, None]).reshape(len(codes), -1)
    sums = (weights @ columns).reshape(len(weights), number, len(x), 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return kl_of_rates(np.moveaxis(sums[..., 0] / sums[..., 1], 1, -1))
