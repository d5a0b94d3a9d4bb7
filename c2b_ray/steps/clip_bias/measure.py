"""Turns scores and rankings of images into rows of bias: one attribute in one view, all models at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from c2b_ray.metrics import Floats, Ints
from c2b_ray.metrics.disparity import Chance, Scores, disparity
from c2b_ray.metrics.skew import SkewRule, scored_max_skew
from c2b_ray.metrics.skew_chance import MeanSkew, mean_max_skew
from c2b_ray.metrics.skew_few import FEW
from c2b_ray.schemas import seed_of
from c2b_ray.steps.clip_bias.attributes import Attribute, View
from c2b_ray.steps.clip_bias.retrieval import Vectors
from c2b_ray.steps.clip_bias.rows import BiasRow, Key, Measured, RateRow


@dataclass(frozen=True)
class Skew:
    """How MaxSkew is computed: over at most `most` images, and at most `share` of the ranked ones, by `rule`."""

    most: int
    share: float
    rule: SkewRule

    def k(self, images: int) -> int:
        return max(1, min(self.most, int(images * self.share)))


def seeded(chance: Chance, *what: object) -> Chance:
    """Returns the settings with a seed that follows from what is tested, so that the order of work changes no
    result."""
    return replace(chance, seed=seed_of("clip-bias", chance.seed, *what))


def measure_disparity(
    measured: Measured,
    key: Key,
    scores: Mapping[str, tuple[Floats, Floats]],
    at: tuple[Attribute, View],
    chance: Chance,
    copies: Ints | None = None,
) -> None:
    """Adds rows of the KL of a score's group means, and of these means. `scores`: model → totals and counts
    (images,). `copies`: for each image, the number of the first that is the same picture; these count as one."""
    attribute, view = at
    members = view.members[attribute.within(view.members) >= 0]
    models = list(scores)
    totals, counts = (np.stack([scores[model][which][members] for model in models]) for which in (0, 1))
    answered = members[(counts > 0).all(axis=0)]
    if (problem := attribute.problem(answered)) is not None:
        measured.unknown(models, key, len(answered), problem)
        return
    codes = attribute.within(members)
    if copies is not None:
        totals, counts, codes = _by_picture(totals, counts, codes, copies[members])
    chance = seeded(chance, key.dataset, key.attribute, key.view, key.group)
    result = disparity(Scores(totals, counts), codes, len(attribute.values), chance)
    seen = np.bincount(attribute.within(answered), minlength=len(attribute.values))
    for number, model in enumerate(models):
        note = None if np.isfinite(result.value[number]) else "no group has a score above 0"
        value, low, high = result.value[number], result.low[number], result.high[number]
        row = BiasRow(
            model, key, float(value), float(low), float(high), len(answered), float(result.expected[number]),
            float(result.p_value[number]), note=note, replicates=result.replicates[:, number],
        )  # fmt: skip
        measured.biases.append(row)
        for group, name in enumerate(attribute.values):
            rate, error = float(result.rates[number, group]), float(result.errors[number, group])
            of = key.metric.removeprefix("kl_")
            measured.rates.append(
                RateRow(model, key, of, name, rate, error, float(result.reach[number]), int(seen[group]))
            )


def _by_picture(totals: Floats, counts: Floats, codes: Ints, copies: Ints) -> tuple[Floats, Floats, Ints]:
    """Adds up the scores of copies with one value: means stay as they are, and copies are one picture's evidence."""
    pictures, which = np.unique(np.stack([copies, codes]), axis=1, return_inverse=True)
    of, number = which.ravel(), pictures.shape[1]
    sums = np.stack([[np.bincount(of, of_model, number) for of_model in some] for some in (totals, counts)])
    return sums[0].astype(np.float64), sums[1].astype(np.float64), pictures[1]


def measure_skew(
    measured: Measured,
    key: Key,
    scores: Mapping[str, Vectors],
    at: tuple[Attribute, View],
    how: tuple[Skew, Chance],
    copies: Ints | None = None,
) -> None:
    """Adds rows of the mean MaxSkew@k over texts. `scores`: model → similarities (texts, images). `copies`: as for
    `measure_disparity`; they count in the shares, and are one picture's evidence."""
    (attribute, view), (skew, chance) = at, how
    members = view.members[attribute.within(view.members) >= 0]
    if (problem := attribute.problem(members)) is not None:
        measured.unknown(list(scores), key, len(members), problem)
        return
    codes, k = attribute.within(members), skew.k(len(members))
    alike = None if copies is None else copies[members]
    chance = seeded(chance, key.dataset, key.attribute, key.view, key.group)
    for model, similar in scores.items():
        ranked = similar[:, members]
        order = np.argsort(-ranked, axis=1, kind="stable")
        result = mean_max_skew(order, codes, len(attribute.values), k, chance, alike)
        value, low, high = result.value, result.low, result.high
        note = _by_chance(result, attribute.values) + _few(codes, alike, attribute)
        if skew.rule != "formula":
            value = _by_rule(ranked, codes, k, skew.rule)
            note = (
                f"the value is by the rule; expected value, p and interval, widened to it, are of the formula; {note}"
            )
            low, high = min(low, value), max(high, value)
        row = BiasRow(
            model, key, value, low, high, len(members), result.expected, result.p_value, k=k,
            rule=skew.rule, note=note, replicates=result.replicates,
        )  # fmt: skip
        measured.biases.append(row)


def _by_chance(skew: MeanSkew, values: Sequence[str]) -> str:
    """Returns a note: the value under shuffles, and the direction in which texts lean, because a mean of maxima is
    above 0 also where texts lean in opposite directions."""
    if np.isnan(skew.value):
        return "there is no neutral text"
    texts = int(skew.leads.sum())
    leading = [f"{value} in {count}" for value, count in zip(values, skew.leads.tolist(), strict=True)]
    return (
        f"by chance {skew.expected:.3g}, in 95 % of shuffles below {skew.expected_high:.3g}; of {texts} texts the most "
        f"over-represented is {', '.join(leading)}"
    )


def _few(codes: Ints, alike: Ints | None, attribute: Attribute) -> str:
    """Returns a remark where the rarest value has few images: the interval allows for what others would show."""
    pictures = np.arange(len(codes)) if alike is None else alike
    counts = np.array([len(np.unique(pictures[codes == number])) for number in range(len(attribute.values))])
    rarest = int(counts.argmin())
    if counts[rarest] >= FEW:
        return ""
    what = "image has" if counts[rarest] == 1 else "different images have"
    few = f"{counts[rarest]} {what} the {attribute.name} {attribute.values[rarest]!r}"
    return f"; only {few}, so the interval is wide"


def _by_rule(ranked: Vectors, codes: Ints, k: int, rule: SkewRule) -> float:
    return float(np.mean([scored_max_skew(scores, codes, k, rule) for scores in ranked]))


def views_of(images: int, groups: Sequence[Ints]) -> list[View]:
    """Returns views of all images, and of each group, numbered from 1."""
    return named_views(images, {str(number): members for number, members in enumerate(groups, start=1)})


def named_views(images: int, groups: Mapping[str, Ints]) -> list[View]:
    """Returns views of all images, and of each group by its name."""
    return [View.everything(images), *(View("local", name, np.sort(members)) for name, members in groups.items())]
