"""The experiment on words: its families, contexts and blocks, which words raise which value, and what it would miss."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray
from scipy.stats import nct, norm
from scipy.stats import t as student

from c2b_ray.audits.prompts.steps.words import Occurrence, Slot, by_slot
from c2b_ray.stats import benjamini_hochberg
from c2b_ray.stats.scores import Floats
from c2b_ray.tables import seed_of

LEAST_CONTEXTS = 4
"""The fewest contexts of a look: the error of a mean of fewer cannot be estimated."""
OF_FIRST = 3
"""Before a second look, the first uses at most one in this many of a family's contexts."""
LEAST_OTHERS = 3
"""The fewest other words of a family that a word is compared with."""
REFERENCES = 2
"""How many words the tested ones are compared with in each context of the second look: in turn, all words of the family
that the first look left out."""
_INDEFINITE = ("~", "^")
"""Slots after another content word, and at the beginning: what may stand there differs from prompt to prompt."""


@dataclass(frozen=True)
class Block:
    """A context and its seeds: the prompt with each word, and without any, or None where it would lose its noun."""

    with_word: Mapping[str, str]
    without: str | None
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class SlotDesign:
    """`words` are tested, in the blocks that hold them. `references`: words that they are compared with; empty: they
    are compared with one another."""

    slot: Slot
    words: tuple[str, ...]
    blocks: tuple[Block, ...]
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """Words of one form, each tested only in this family, and the contexts in which each of them can stand.

    `contexts`: each once, in an order by hash, so that the choice of contexts does not depend on what the words do.
    `noun`: a context without any of the words would lose its subject.
    """

    slot: Slot
    words: tuple[str, ...]
    contexts: tuple[Occurrence, ...]
    noun: bool


def families(prompts: Iterable[str], words: Sequence[str], kept: Sequence[str], least: int, seed: int) -> list[Family]:
    """Returns families of the words; a word is assigned to the largest family in which it is tested.

    `kept`: nouns that prompts are about, which no context can do without. `least`: the fewest contexts of a family;
    words with fewer in every slot are in none.
    """
    slots = by_slot(prompts)
    remaining, result = list(words), []
    while remaining and slots:
        tested = {slot: _at_home(slot, remaining, slots) for slot in slots}
        slot = max(slots, key=lambda candidate: sum(len(slots[candidate][word]) for word in tested[candidate]))
        contexts = _contexts(_alike(slot, tested[slot], slots), slots, seed)
        if not tested[slot]:
            break
        if len(contexts) >= least:
            noun = any(word in kept for word in tested[slot])
            result.append(Family(slot, tuple(tested[slot]), contexts, noun))
            remaining = [word for word in remaining if word not in tested[slot]]
        del slots[slot]
    return result


Slots = dict[Slot, dict[str, list[Occurrence]]]


def _at_home(slot: Slot, words: Iterable[str], slots: Slots) -> list[str]:
    """Returns the words that stand in the slot at least half as often as in any other: "fence" is no adjective because
    one prompt has "fence posts"."""
    occurrences = slots[slot]
    return [
        w
        for w in words
        if w in occurrences and 2 * len(occurrences[w]) >= max(len(s[w]) for s in slots.values() if w in s)
    ]


def _alike(slot: Slot, words: Collection[str], slots: Slots) -> list[Slot]:
    """Returns the slot, and those in which at least half of its words stand too: "near a", "beside a"."""
    if slot[0] in _INDEFINITE:
        return [slot]
    similar = [s for s in slots if s != slot and s[1] == slot[1] and s[0] not in _INDEFINITE]
    return [slot, *(s for s in similar if 2 * sum(word in slots[s] for word in words) >= len(words))]


def _contexts(chosen_slots: Iterable[Slot], slots: Slots, seed: int) -> tuple[Occurrence, ...]:
    contexts: dict[tuple[str, ...], Occurrence] = {}
    for slot in chosen_slots:
        for of_word in slots[slot].values():
            for occurrence in of_word:
                contexts.setdefault(_rest(occurrence), occurrence)
    return tuple(
        contexts[key] for key in sorted(contexts, key=lambda key_words: seed_of("context", seed, list(key_words)))
    )


def _rest(occurrence: Occurrence) -> tuple[str, ...]:
    """Returns the context of an occurrence: its prompt without the word."""
    other_tokens = (*occurrence.tokens[: occurrence.at], "", *occurrence.tokens[occurrence.at + 1 :])
    return tuple(token.lower() for token in other_tokens)


def first_look(family: Family, kept: Collection[str], sizes: tuple[int, int], share: int, seed: int) -> SlotDesign:
    """Puts every word of the family into the same contexts.

    `sizes`: the most contexts, and the images of each. `share`: at most one in `share` of the family's contexts is
    used.
    """
    count = min(sizes[0], len(family.contexts) // share)
    contexts = family.contexts[:count]
    blocks = tuple(_block(occurrence, family, family.words, kept, (sizes[1], seed)) for occurrence in contexts)
    return SlotDesign(family.slot, family.words, blocks)


def second_look(
    family: Family, counts: Mapping[str, int], kept: Collection[str], sizes: tuple[int, int], seed: int
) -> SlotDesign | None:
    """Puts the family's words of `counts` each into as many contexts as stated there, beside other words of the family;
    None without such words.

    `sizes`: contexts that the first look has used, and the images of each context.
    """
    tested = tuple(word for word in family.words if counts.get(word))
    if not tested:
        return None
    most = max(counts[word] for word in tested)
    references = tuple(word for word in family.words if word not in tested)
    if len(references) < LEAST_OTHERS:
        tested, references = family.words, ()
    blocks = []
    for number, occurrence in enumerate(family.contexts[sizes[0] :][:most]):
        present = [word for word in tested if counts.get(word, most) > number]
        compared = [
            references[(REFERENCES * number + k) % len(references)] for k in range(REFERENCES if references else 0)
        ]
        blocks.append(_block(occurrence, family, [*present, *compared], kept, (sizes[1], seed)))
    return SlotDesign(family.slot, tested, tuple(blocks), references)


def _block(
    occurrence: Occurrence, family: Family, words: Iterable[str], kept: Collection[str], draw: tuple[int, int]
) -> Block:
    """`draw`: images, and the run's seed."""
    seeds = tuple(seed_of("association", draw[1], list(_rest(occurrence)), n) for n in range(draw[0]))
    prompt_without = None if family.noun or occurrence.word in kept else occurrence.without() or None
    return Block({word: occurrence.with_word(word) for word in words}, prompt_without, seeds)


def wanted(designs: Iterable[SlotDesign]) -> list[tuple[str, Sequence[int]]]:
    """Returns every prompt and its seeds in the experiment."""
    return [
        (prompt, block.seeds)
        for design in designs
        for block in design.blocks
        for prompt in (*block.with_word.values(), *([block.without] if block.without else []))
    ]


# Decides which words raise which value, from the judged images of an experiment's blocks.


STILL_OPEN = 0.5
"""A second look decides pairs whose first p-value is below this: their estimate is above the least effect."""
LEAST_SECOND = 16
"""The fewest contexts of a word in the second look."""
CLEAR = 5.0
"""How many standard errors above the least effect the second look should bring an effect, as the first estimates it."""
WITHOUT, OTHERS, BOTH = "without it", "other words", "without it, and other words"

Shows = NDArray[np.float64]
Judged = Callable[[str, Sequence[int]], Shows]
"""1 where the image of a prompt and a seed shows the value, 0 where not, NaN where nothing is known."""


@dataclass(frozen=True)
class Finding:
    """`effect`: what the word adds to the frequency of the value. `p_value`: one-sided, of adding no more than the
    least effect, against everything that it is compared with."""

    word: str
    attribute: str
    value: str
    effect: float
    low: float
    high: float
    p_value: float
    against: str
    contexts: int
    images: int


def analysed(
    designs: Sequence[SlotDesign], attribute: str, values: Mapping[str, Judged], least: float, alpha: float
) -> list[Finding]:
    """Returns the effect of each word on each value."""
    return [
        finding
        for design in designs
        for value, judged in values.items()
        for finding in _of_slot(design, attribute, value, judged, (least, alpha))
    ]


def _of_slot(
    design: SlotDesign, attribute: str, value: str, shows: Judged, limits: tuple[float, float]
) -> list[Finding]:
    rates = _rates(design.words, design, shows)
    references = _mean(_rates(design.references, design, shows)) if design.references else None
    bare = np.array([_rate(shows(b.without, b.seeds)) if b.without else np.nan for b in design.blocks])
    step = 1 / max((len(block.seeds) for block in design.blocks), default=1)
    result = []
    for row, word in enumerate(design.words):
        others_rates = np.delete(rates, row, axis=0) if references is None else references
        compared = _differences(rates[row], bare, others_rates)
        images = sum(len(block.seeds) for block in design.blocks if word in block.with_word)
        if not compared:
            continue
        first = next(iter(compared.values()))
        effect, low, high = _interval(first, step, limits[1])
        p_value = max(_p_value(difference, step, limits[0]) for difference in compared.values())
        comparison = BOTH if len(compared) == 2 else next(iter(compared))
        contexts = int((~np.isnan(first)).sum())
        result.append(Finding(word, attribute, value, effect, low, high, p_value, comparison, contexts, images))
    return result


def _rates(words: Sequence[str], design: SlotDesign, shows: Judged) -> Shows:
    """Returns the rate of each word in each block, (words, blocks); NaN in blocks without the word."""
    return np.array(
        [[_rate(shows(b.with_word[w], b.seeds)) if w in b.with_word else np.nan for b in design.blocks] for w in words]
    )


def _differences(rates: Shows, bare: Shows, others: Shows) -> dict[str, Shows]:
    """Returns what the word's rates are compared with → differences by context, (blocks,); NaN where one of both is
    missing.

    `others`: rates of the other words, (words, blocks), or of references, (blocks,).
    """
    compared: dict[str, Shows] = {}
    if (~np.isnan(rates - bare)).sum() >= LEAST_CONTEXTS:
        compared[WITHOUT] = rates - bare
    present = others if others.ndim == 1 else others[~np.isnan(others).all(axis=1)]
    if others.ndim == 1 or len(present) >= LEAST_OTHERS or (not compared and len(present)):
        against_others = rates - (present if others.ndim == 1 else _middle(present))
        if (~np.isnan(against_others)).sum() >= LEAST_CONTEXTS:
            compared[OTHERS] = against_others
    return compared


def _rate(shows: Shows) -> float:
    present = shows[~np.isnan(shows)]
    return float(present.mean()) if len(present) else float("nan")


def _middle(others: Shows) -> Shows:
    """Returns in each context the mean rate of the middle half of the other words, ranked over all contexts: a few
    words with a strong effect on the value do not move it."""
    means = np.nanmean(others, axis=1)
    order = np.argsort(means, kind="stable")
    cut = len(order) // 4
    return _mean(others[order[cut : len(order) - cut]])


def _mean(rates: Shows) -> Shows:
    """Returns the mean of the known rates in each context, (words, blocks) to (blocks,); NaN where none is known."""
    is_known = ~np.isnan(rates)
    sums, counts = np.where(is_known, rates, 0.0).sum(axis=0), is_known.sum(axis=0)
    mean: Shows = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    return mean


def _interval(differences: Shows, step: float, alpha: float) -> tuple[float, float, float]:
    present = differences[~np.isnan(differences)]
    mean, error = float(present.mean()), _error(present, step)
    reach = float(student.ppf(1 - alpha / 2, len(present) - 1)) * error
    return mean, max(-1.0, mean - reach), min(1.0, mean + reach)


def _p_value(differences: Shows, step: float, least: float) -> float:
    """Returns the one-sided p-value of a mean of no more than `least`, by Student's t over contexts."""
    present = differences[~np.isnan(differences)]
    return float(student.sf((present.mean() - least) / _error(present, step), len(present) - 1))


def _error(differences: Shows, step: float) -> float:
    """Returns the standard error of the mean. Where all contexts agree to the last image, it is that with one image
    less in one of them: no experiment of this size is certain. `step`: an image's share of a context's rate."""
    return float(max(differences.std(ddof=1) / np.sqrt(len(differences)), step / len(differences)))


Pair = tuple[str, str, str]
"""Word, attribute, value."""


def pair(finding: Finding) -> Pair:
    return finding.word, finding.attribute, finding.value


def left_open(findings: Sequence[Finding]) -> list[Finding]:
    """Returns the findings that a second look decides: those that the first look estimates above the least effect.

    The true effect of others may still be larger, but a second look at everything would be a first one.
    """
    return [finding for finding in findings if finding.p_value < STILL_OPEN]


def contexts_of_second(findings: Sequence[Finding], most: int) -> dict[str, int]:
    """Returns word → contexts of its second look: enough to bring each of its open effects, less a standard error,
    `CLEAR` standard errors above the least effect, and at most `most`."""
    result: dict[str, int] = {}
    for finding in left_open(findings):
        ahead = float(student.isf(max(finding.p_value, 1e-300), finding.contexts - 1))
        count = contexts_of_count(finding.contexts, ahead, most)
        result[finding.word] = max(result.get(finding.word, 0), count)
    return result


def contexts_of_count(contexts: int, ahead: float, most: int) -> int:
    """Returns the contexts of the second look for an effect that `contexts` of the first estimate `ahead` standard
    errors above the least effect, as `contexts_of_second` says."""
    needed = contexts * (CLEAR / (ahead - 1)) ** 2 if ahead > 1 else float(most)
    return min(most, max(LEAST_SECOND, ceil(min(needed, most))))


def q_values(findings: Sequence[Finding], decided: Collection[Pair] | None = None) -> list[float]:
    """Returns Benjamini & Hochberg's q-values over the words, attributes and values of one generator, for those of
    `decided` (default: all); 1 for the others."""
    is_tested = [decided is None or pair(finding) in decided for finding in findings]
    p_values = [finding.p_value for finding, counts in zip(findings, is_tested, strict=True) if counts]
    adjusted = iter(benjamini_hochberg(p_values).tolist())
    return [next(adjusted) if counts else 1.0 for counts in is_tested]


# Says which link of a word and a value an experiment as made would have found: the least effect that passes its
# looks.


POWER = 0.8
_QUANTILES = 200
_HALVINGS = 30


@dataclass(frozen=True)
class LooksMade:
    """`decided`: pairs of a word and a value that were decided, `raising` of them reported; `least`, `alpha`: of the
    test. `most`: the most contexts of a word in the second look; 0: there was none."""

    decided: int
    raising: int
    least: float
    alpha: float
    most: int

    def power(self, effect: float, deviation: float, contexts: int) -> float:
        """Returns the probability that a word with this effect on a value is reported. `deviation`: the standard
        deviation of its differences over contexts; `contexts`: of the first look."""
        level = min(self.alpha * (self.raising + 1) / max(self.decided + 1, 1), 0.5)
        if not self.most:
            return float(_passes(effect - self.least, deviation, np.array([contexts]), level)[0])
        noise = norm.ppf((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
        ahead = (effect - self.least) / (deviation / np.sqrt(contexts)) + noise
        second = np.array(
            [contexts_of_count(contexts, estimate, self.most) if estimate > 0 else 0 for estimate in ahead.tolist()]
        )
        passes = np.zeros(_QUANTILES)
        passes[second > 0] = _passes(effect - self.least, deviation, second[second > 0], level)
        return float(passes.mean())


def _passes(over: float, deviation: float, contexts: NDArray[np.int64], level: float) -> Floats:
    # The exact distribution of Student's t around a mean that is not that of the hypothesis.
    shift = over / (deviation / np.sqrt(contexts))
    return np.asarray(nct.sf(student.isf(level, contexts - 1), contexts - 1, shift))


def least_effects(first: Sequence[Finding], looks: LooksMade) -> dict[tuple[str, str], float | None]:
    """Returns (attribute, value) → the least effect in (least, 1] that is found with probability `POWER`; None where
    none is. `first`: the findings of the first look."""
    result: dict[tuple[str, str], float | None] = {}
    for key in dict.fromkeys((finding.attribute, finding.value) for finding in first):
        of_value = [finding for finding in first if (finding.attribute, finding.value) == key]
        deviation = float(np.median([_deviation(finding, looks.alpha) for finding in of_value]))
        contexts = int(np.median([finding.contexts for finding in of_value]))
        low, high = looks.least, 1.0
        if looks.power(high, deviation, contexts) < POWER:
            result[key] = None
            continue
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if looks.power(middle, deviation, contexts) >= POWER else (middle, high)
        result[key] = high
    return result


def _deviation(finding: Finding, alpha: float) -> float:
    """Returns the standard deviation over contexts from the interval, whose sides may be cut at -1 and 1."""
    reach = max(finding.high - finding.effect, finding.effect - finding.low)
    return reach / float(student.ppf(1 - alpha / 2, finding.contexts - 1)) * float(np.sqrt(finding.contexts))
