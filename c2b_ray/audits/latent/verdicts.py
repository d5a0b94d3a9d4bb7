"""Turns evidence on a direction into a verdict, found, nothing found or undetermined, and the reason.

"Nothing found" requires that a relevant effect would have been seen: few latents, or a target that is hardly known,
allow no conclusion. It knows evidence and vectors, not models or how a direction was found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from c2b_ray.config.latent import EvidenceConfig
from c2b_ray.stats.intervals import benjamini_hochberg
from c2b_ray.stats.latent import Evidence
from c2b_ray.tables.latent import DirectionRow

Vectors = NDArray[np.float64]
FOUND, NOTHING, UNDETERMINED = "found", "nothing found", "undetermined"
POWER = 0.8
SEEN = 2.0
""""Nothing found" requires that an effect of this many margins is found in `POWER` of samples."""
_PARALLEL = 1e-9


@dataclass(frozen=True)
class EntangledAttribute:
    """A labelled attribute that moves with the target in the generator's images.

    `cosine`: of their normals. `most`: the largest effect of the attribute itself that the answers do not exclude.
    """

    name: str
    cosine: float
    most: float


def decide(evidence: Evidence, ties: list[EntangledAttribute], config: EvidenceConfig) -> tuple[str, str]:
    """Returns the verdict on one direction, and its reason."""
    change = f"P(label) changes by {evidence.effect:.3f} ({evidence.low:.3f} to {evidence.high:.3f})"
    sentence = (
        f"{change} on a straight line from one standard deviation below the mean to one above, the target held fixed:"
    )
    if evidence.passes(config.level):
        return FOUND, f"{sentence} more than {evidence.margin:.3f}"
    reason = f"{sentence} not shown to be more than {evidence.margin:.3f}"
    if blind := _blind(evidence, config):
        return UNDETERMINED, f"{reason}; {blind}"
    return NOTHING, "; ".join([reason, *([_of_ties(ties)] if ties else [])])


def ties_with(
    target: Vectors,
    attributes: Mapping[str, Vectors],
    weigh: Callable[[Vectors], Evidence],
    margin: float,
    directions: Vectors | None = None,
) -> list[EntangledAttribute]:
    """Returns the attributes whose possible effect is `SEEN` margins or more, given the movement apart from the target
    and from `directions`, (m, d), which are reported themselves; the closest first.

    An attribute at an angle t to the target moves the answer along its component orthogonal to the target by sin(t) of
    its effect; so that movement's limits over sin(t) are the attribute's.
    """
    unit, result = target / np.linalg.norm(target), []
    for name, normal in attributes.items():
        direction = normal / np.linalg.norm(normal)
        cosine = float(direction @ unit)
        perpendicular = direction - cosine * unit
        sine = float(np.linalg.norm(perpendicular))
        if sine < _PARALLEL:
            result.append(EntangledAttribute(name, abs(cosine), 1.0))
            continue
        unexplained = (
            perpendicular if directions is None else perpendicular - directions.T @ (directions @ perpendicular)
        )
        share = float(np.linalg.norm(unexplained)) / sine
        if share < _PARALLEL:
            continue
        evidence = weigh(unexplained / (share * sine))
        most = min(float(np.abs([evidence.low, evidence.high]).max()) * share / sine, 1.0)
        if not most <= SEEN * margin:
            result.append(EntangledAttribute(name, abs(cosine), most))
    return sorted(result, key=lambda tie: -tie.cosine)


def _blind(evidence: Evidence, config: EvidenceConfig) -> str:
    """Returns why a relevant effect would go unseen; "" where it would be seen, or where the interval excludes one."""
    margin, matters = config.margin, SEEN * config.margin
    if np.isnan(evidence.effect):
        return f"of {evidence.count:,} latents nothing can be said"
    if margin == 0 or max(-evidence.low, evidence.high) <= margin:  # every effect matters, or none that does can be
        return ""
    deviations = stats.norm.ppf(1 - config.level) + stats.norm.ppf(POWER)
    margin_left = matters - evidence.margin
    if margin_left <= 0:
        return (
            f"what is known of the target leaves room for {evidence.margin:.3f}, so an effect of {matters:g} would go "
            "unseen: label latents, or name references"
        )
    if not deviations * evidence.error > margin_left:
        return ""
    latents_needed = ceil(evidence.count * (deviations * evidence.error / margin_left) ** 2)
    return (
        f"{evidence.count:,} latents are too few: an effect of {matters:g} would be found in less than "
        f"{100 * POWER:.0f} % of such samples; it takes about {latents_needed}"
    )


def _of_ties(ties: list[EntangledAttribute]) -> str:
    tie_texts = [f"{tie.name} (cosine {tie.cosine:.2f}; an effect of up to {tie.most:.2f} is possible)" for tie in ties]
    return f"in this generator's images the target moves with {', '.join(tie_texts)}: of that it does not speak"


# Verdicts over all searches of a run, with the false discovery rate controlled: some of many problems seem biased
# by chance.


def with_q_values(rows: Sequence[DirectionRow], evidence: EvidenceConfig) -> list[DirectionRow]:
    """Returns the rows with `q_value`; where that exceeds the level, "found" becomes "nothing found" if the interval
    excludes an effect that must not go unseen, and "undetermined" if not.

    Directions of one problem are tested in order until the first that is none, so each counts with the largest p-value
    up to its rank, and testing many of them costs nothing. Over the problems of one method, which form one family,
    Benjamini and Hochberg's procedure is applied. Methods are alternatives, each a separate family. `rows`: for each
    problem and method by rising rank.
    """
    largest: dict[tuple[str, str], float] = {}
    families: dict[str, list[int]] = {}
    p_values = np.full(len(rows), np.nan)
    for number, row in enumerate(rows):
        if row["p_value"] is None:
            continue
        key = (row["problem"], row["method"])
        largest[key] = p_values[number] = max(row["p_value"], largest.get(key, 0.0))
        families.setdefault(row["method"], []).append(number)
    result: list[DirectionRow] = [{**row, "q_value": None} for row in rows]
    for numbers in families.values():
        q_values = benjamini_hochberg(p_values[numbers])
        for number, q_value in zip(numbers, q_values.tolist(), strict=True):
            result[number] = _decided(rows[number], q_value, evidence, len(numbers))
    return result


def _decided(row: DirectionRow, q_value: float, evidence: EvidenceConfig, count: int) -> DirectionRow:
    level, matters = evidence.level, SEEN * evidence.margin
    if row["verdict"] != FOUND or q_value <= level:
        return {**row, "q_value": q_value}
    alone_text = f"{row['reason']}, taken alone (p = {row['p_value']:.3g})"
    among_text = f"among {count} directions tested so much comes by chance (q = {q_value:.3g}, above {level:g})"
    reason, verdict = f"{alone_text}; {among_text}", NOTHING
    limits = (row["effect_low"], row["effect_high"])
    if evidence.margin and not max(abs(limit) for limit in limits if limit is not None) <= matters:
        verdict = UNDETERMINED
        reason += f"; yet an effect of {matters:g} is not excluded: more latents can decide"
    return {**row, "q_value": q_value, "verdict": verdict, "reason": reason}
