"""Bias-guided prompt search: a beam search over a language model's next tokens, towards prompts that bring about a
value.

    score of a prompt s = log P(s) + λ · log (1/K Σ_k P(value | image k))

From each of B beams the E′ likeliest next tokens form a pool, E of them are drawn in proportion to their probability,
and of all B × E candidates the best B continue. The first tokens are drawn from the whole distribution. Where an end
token is in a beam's pool, the beam is saved as ended and is no longer a candidate. The notes on the paper (BGPS, ICML
2026) give neither K, B, E nor E′, nor how the pool is drawn from; `docs/papers/bgps.md` states our interpretation. It
knows roles, and neither tables nor where models run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from c2b_ray.audits.prompts.steps.words import LeakWords, words_of
from c2b_ray.errors import ServiceError
from c2b_ray.roles import (
    ActivationReader,
    Captioner,
    Floats,
    GenerationRequest,
    ImageGenerator,
    Pixels,
    Question,
    ReplyContinuer,
    TokenLogProb,
)
from c2b_ray.steps.draw import ImageCounter, images_of
from c2b_ray.tables import seed_of

# Estimates how likely a generator's images of a prompt are to show a value: the guide of a search.


LEAST = 1e-6
"""The least mean probability that is used, so that its logarithm is finite."""

Shares = NDArray[np.float64]
IMAGES = ImageCounter()


@dataclass(frozen=True)
class Head:
    """A linear head on the activations of one denoising step: P(values) = softmax(((h − mean) / scale) W + b).

    `weight`: float32 (dimension, values). `mean`, `scale`: float32 (dimension,). `bias`: float32 (values,).
    """

    attribute: str
    values: tuple[str, ...]
    activation: str
    step: int
    weight: Floats
    bias: Floats
    mean: Floats
    scale: Floats

    def probabilities(self, activations: Floats) -> Shares:
        """Returns float64 (rows, values), each row's sum 1, for activations float32 (rows, dimension)."""
        logits = ((activations - self.mean) / self.scale) @ self.weight + self.bias
        return np.asarray(softmax(logits.astype(np.float64), axis=1))


class Guide(Protocol):
    """Gives P(value | image) of one image for each prompt and seed, (prompts, seeds); NaN where there is no image."""

    def probabilities(self, prompts: Sequence[str], seeds: Sequence[int]) -> Shares: ...


@dataclass(frozen=True)
class HeadGuide:
    """One head for each attribute of the target. For two or more, the probability of all values is the product of the
    heads'."""

    generator: ActivationReader
    heads: tuple[Head, ...]
    target: tuple[str, ...]

    def probabilities(self, prompts: Sequence[str], seeds: Sequence[int]) -> Shares:
        requests = [GenerationRequest(prompt, seed) for prompt, seed in product(prompts, seeds)]
        result = np.ones(len(requests))
        read: dict[tuple[str, int], Floats] = {}
        for head, value in zip(self.heads, self.target, strict=True):
            key = (head.activation, head.step)
            if key not in read:
                read[key] = self.generator.activations(requests, head.activation, [head.step])[:, 0]
            result = result * head.probabilities(read[key])[:, head.values.index(value)]
        return result.reshape(len(prompts), len(seeds))


@dataclass(frozen=True)
class JudgeGuide:
    """A judge's answers on finished images, for generators whose activations cannot be read."""

    generator: ImageGenerator
    judge: Captioner
    questions: tuple[Question, ...]
    target: tuple[str, ...]

    def probabilities(self, prompts: Sequence[str], seeds: Sequence[int]) -> Shares:
        requests = [GenerationRequest(prompt, seed) for prompt, seed in product(prompts, seeds)]
        images = images_of(self.generator, requests)
        made = [(i, image.pixels) for i, image in enumerate(images) if image.pixels is not None]
        result = np.full(len(requests), np.nan)
        if made:
            result[[i for i, _ in made]] = self._judged([pixels for _, pixels in made])
        return result.reshape(len(prompts), len(seeds))

    def _judged(self, images: list[Pixels]) -> Shares:
        result = np.ones(len(images))
        for question, value in zip(self.questions, self.target, strict=True):
            for i, answer in enumerate(self.judge.answer(images, [question] * len(images))):
                if answer.error is not None:
                    result[i] = np.nan
                elif answer.probabilities is not None:
                    result[i] *= answer.probabilities[question.choices.index(value)]
                else:
                    result[i] *= answer.choice == value
        return result


@dataclass
class Counted:
    """A guide that requests no image twice, and counts its requests."""

    guide: Guide
    images: int = 0
    _known: dict[tuple[str, int], float] = field(default_factory=dict)

    def probabilities(self, prompts: Sequence[str], seeds: Sequence[int]) -> Shares:
        """Returns the guide's probabilities; only unknown ones are requested, prompts that lack the same seeds
        together."""
        by_missing_seeds: dict[tuple[int, ...], list[str]] = {}
        for prompt in dict.fromkeys(prompts):
            missing = tuple(seed for seed in seeds if (prompt, seed) not in self._known)
            if missing:
                by_missing_seeds.setdefault(missing, []).append(prompt)
        for missing, texts in by_missing_seeds.items():
            for prompt, row in zip(texts, self.guide.probabilities(texts, missing), strict=True):
                self._known.update({(prompt, seed): float(p) for seed, p in zip(missing, row, strict=True)})
            self.images += len(texts) * len(missing)
            IMAGES.add(len(texts) * len(missing))
        return np.array([[self._known[prompt, seed] for seed in seeds] for prompt in prompts])


def bias_scores(probabilities: Shares) -> Shares:
    """Returns the log of the mean probability over seeds, (prompts,): the paper's bias score, which is not a mean of
    logarithms.

    A prompt without any image has the least score, so that a search does not choose it.
    """
    is_known = ~np.isnan(probabilities)
    sums, counts = np.where(is_known, probabilities, 0.0).sum(axis=1), is_known.sum(axis=1)
    means = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
    return np.asarray(np.log(np.maximum(means, LEAST)))


def gumbel_order(log_probs: Sequence[float], random: np.random.Generator) -> list[int]:
    """Returns indices in the order of drawing without replacement, each in proportion to its probability (Gumbel's
    trick: Kool et al. 2019)."""
    if not len(log_probs):
        return []
    scores = log_softmax(np.asarray(log_probs, np.float64)) + random.gumbel(size=len(log_probs))
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


# Decides with few images which of a search's candidates have the highest score: all start with few, most drop out.


Indices = NDArray[np.intp]

FIRST_SHARE = 8
"""A race begins with K / 8 images of each candidate."""
_OF_PARENT = 6
"""The weight, in rounds of images, of the score of a candidate's beginning: most tokens change little."""


@dataclass(frozen=True)
class CandidateSelection:
    """`keep`: how many win, at most `of_parent` of one parent's while there are others. `weight`: λ. `seeds`: K of
    them. `raced`: False scores every candidate on all K."""

    keep: int
    of_parent: int
    weight: float
    seeds: tuple[int, ...]
    raced: bool

    @property
    def step(self) -> int:
        """Images that each remaining candidate gets in a round."""
        return max(1, len(self.seeds) // FIRST_SHARE) if self.raced else len(self.seeds)


@dataclass(frozen=True)
class Candidates:
    """`priors`: log P of each. `parents`: the number of the text that it continues, −1 for none. `before`: that text's
    bias score, NaN where there is none."""

    texts: Sequence[str]
    priors: Shares
    parents: Sequence[int]
    before: Shares


@dataclass(frozen=True)
class RankedCandidates:
    """`order`: the candidates that won, best first. `bias`: for each, log mean probability as far as it is known.
    `used`: how many of the seeds, from the first on, the winners' images used."""

    order: list[int]
    bias: Shares
    used: int


def best(candidates: Candidates, guide: Counted, selection: CandidateSelection) -> RankedCandidates:
    """Returns the winners among the candidates; in a race the better half remains after each round."""
    bias = np.full(len(candidates.texts), np.nan)

    def sorted_by_score(indices: Indices, used: int) -> Indices:
        shares = guide.probabilities([candidates.texts[int(i)] for i in indices], selection.seeds[:used])
        weight = _OF_PARENT * selection.step if selection.raced else 0
        bias[indices] = _shrunken(shares, candidates.before[indices], weight)
        return indices[np.argsort(-(candidates.priors[indices] + selection.weight * bias[indices]), kind="stable")]

    remaining, used = np.arange(len(candidates.texts)), 0
    while True:
        used = min(used + selection.step, len(selection.seeds))
        remaining = sorted_by_score(remaining, used)
        half = -(-len(remaining) // 2)
        if half <= selection.keep or used == len(selection.seeds):
            break
        remaining = remaining[:half]
    winners = np.array(_capped(remaining.tolist(), candidates.parents, selection), np.intp)
    if len(winners) < len(candidates.texts) and used < len(selection.seeds):
        used = min(used + selection.step, len(selection.seeds))
        winners = sorted_by_score(winners, used)
    return RankedCandidates(winners.tolist(), bias, used)


def _capped(order: Sequence[int], parents: Sequence[int], selection: CandidateSelection) -> list[int]:
    """Returns the first of the order that may win together, and others where there are too few of them."""
    first: list[int] = []
    spare: list[int] = []
    for i in order:
        siblings = sum(parents[other] == parents[i] for other in first)
        (first if parents[i] < 0 or siblings < selection.of_parent else spare).append(i)
    return [*first, *spare][: selection.keep]


def _shrunken(shares: Shares, parents: Shares, images: int) -> Shares:
    """Returns bias scores with the mean shrunk towards that of the text that each candidate continues, with a weight of
    `images` images."""
    is_known = ~np.isnan(shares)
    sums, counts = np.where(is_known, shares, 0.0).sum(axis=1), is_known.sum(axis=1)
    before = np.exp(parents)
    weight = np.where(np.isnan(before), 0, images)
    total = counts + weight
    means = np.divide(sums + weight * np.nan_to_num(before), total, out=np.zeros(len(sums)), where=total > 0)
    return bias_scores(means[:, None])


EVERY_TOKEN = 2**31
"""More tokens than any vocabulary has: the whole distribution."""
_CONFIRMED = 16
"""The most ended prompts of a race that get more images before the best are completed with all seeds."""


@dataclass(frozen=True)
class SearchSettings:
    """`weight`: λ. `beams`: B; `expansion`: E; `pool`: E′; `images`: K. `tokens`: the fewest and the most tokens of a
    prompt.

    `raced`: candidates that fall behind get no more images. `of_parent`: the most candidates of one beam that continue.
    `overlap`: prompts that share more of their words (Jaccard) count as one. `keep`: prompts per search. `filtered`:
    prompts that name the value are dropped.
    """

    weight: float
    beams: int = 4
    expansion: int = 4
    pool: int = 12
    images: int = 8
    tokens: tuple[int, int] = (4, 24)
    raced: bool = True
    of_parent: int = 2
    overlap: float = 0.8
    keep: int = 2
    filtered: bool = True


@dataclass(frozen=True)
class Beam:
    """An unfinished prompt. `bias`: log mean probability, NaN where it was not measured."""

    tokens: tuple[int, ...]
    text: str
    log_prior: float
    bias: float = float("nan")
    parent: int = -1


@dataclass(frozen=True)
class ScoredPrompt:
    text: str
    log_prior: float
    bias: float
    score: float


@dataclass
class Search:
    """One search: for one value, from one instruction. `rejected`: the number of candidates that named the value."""

    model: ReplyContinuer
    guide: Counted
    leaks: LeakWords
    settings: SearchSettings
    seed: int
    rejected: int = 0
    candidates: int = 0
    _ended: dict[str, Beam] = field(default_factory=dict)

    def run(self, start: Sequence[int]) -> list[ScoredPrompt]:
        """Returns the best prompts, best first. Raises ServiceError where the model has no token that ends a reply, or
        no room for one after the instruction."""
        if not self.model.end_tokens:
            raise ServiceError("the language model's tokenizer has no end token, so no prompt would ever end")
        self._random = np.random.default_rng(seed_of("prompt search", self.seed))
        self._seeds = tuple(seed_of("prompt search image", self.seed, n) for n in range(self.settings.images))
        self._start = tuple(start)
        self._turn = 0
        beams = self._chosen(self._first())
        for _ in range(self.settings.tokens[1] - 1):
            if not beams:
                break
            beams = self._chosen(self._expanded(beams))
        self._end_all(beams)
        return self._best()

    def _first(self) -> list[Beam]:
        """Draws B × E first tokens from the whole distribution, with replacement: where nearly all prompts begin alike,
        few differ.

        Without replacement there would have to be B × E different ones, most of which begin no prompt.
        """
        [tokens] = self.model.continuations([self._start], EVERY_TOKEN)
        if not tokens:
            raise ServiceError(
                f"the instruction to write a prompt has {len(self._start):,} tokens, which leaves no room in the "
                "language model's context; take a model whose context is longer"
            )
        ends = set(self.model.end_tokens)
        usable = [token for token in tokens if token.token_id not in ends and np.isfinite(token.log_prob)]
        if not usable:
            return []  # the model ends at once
        count = self.settings.beams * self.settings.expansion
        weights = softmax([token.log_prob for token in usable])
        draws = dict.fromkeys(self._random.choice(len(usable), count, p=weights).tolist())
        return self._usable([self._child(None, -1, usable[i]) for i in draws], count)

    def _expanded(self, beams: Sequence[Beam]) -> list[Beam]:
        """Returns E candidates of each beam, drawn from its E′ likeliest next tokens; beams that may end are saved.

        While there are fewer beams than B, as where all prompts begin alike, each gets more: B × E in all.
        """
        settings, ends = self.settings, set(self.model.end_tokens)
        share = -(-settings.beams // len(beams))
        pools = self.model.continuations([(*self._start, *beam.tokens) for beam in beams], share * settings.pool)
        result: list[Beam] = []
        for position, (beam, pool) in enumerate(zip(beams, pools, strict=True)):
            ending = [token for token in pool if token.token_id in ends]
            if ending and len(beam.tokens) >= settings.tokens[0]:
                self._save(beam, float(np.logaddexp.reduce([token.log_prob for token in ending])))
            continuing = [token for token in pool if token.token_id not in ends]
            order = gumbel_order([token.log_prob for token in continuing], self._random)
            result += self._usable(
                [self._child(beam, position, continuing[i]) for i in order], share * settings.expansion
            )
        return result

    def _child(self, beam: Beam | None, parent: int, token: TokenLogProb) -> Beam:
        tokens, prior = (beam.tokens, beam.log_prior) if beam else ((), 0.0)
        bias = beam.bias if beam else float("nan")
        return Beam((*tokens, token.token_id), "", prior + token.log_prob, bias, parent)

    def _usable(self, children: list[Beam], most: int) -> list[Beam]:
        """Returns the first `most` children that add readable text and do not name the value."""
        result: list[Beam] = []
        texts = self.model.texts_of([child.tokens for child in children]) if children else []
        for child, text in zip(children, texts, strict=True):
            if len(result) == most:
                break
            plain = " ".join(text.split())
            if not plain:
                continue
            if self.settings.filtered and self.leaks.word(plain):
                self.rejected += 1
                continue
            result.append(Beam(child.tokens, plain, child.log_prior, child.bias, child.parent))
        return result

    def _chosen(self, candidates: list[Beam]) -> list[Beam]:
        """Returns the best B by score, at most `of_parent` of one beam's while there are others."""
        self.candidates += len(candidates)
        return self._winners(candidates, self.settings.beams)

    def _winners(self, candidates: Sequence[Beam], keep: int) -> list[Beam]:
        """Returns the best by score. A race uses the seeds after those of the last one: over its course a search sees
        its beams under all seeds, and no few seeds decide everything."""
        if not candidates:
            return []
        settings = self.settings
        seeds = (*self._seeds[self._turn :], *self._seeds[: self._turn])
        selection = CandidateSelection(keep, settings.of_parent, settings.weight, seeds, settings.raced)
        pool = Candidates(
            [beam.text for beam in candidates],
            np.array([beam.log_prior for beam in candidates]),
            [beam.parent for beam in candidates],
            np.array([beam.bias for beam in candidates]),
        )
        ranked = best(pool, self.guide, selection)
        self._turn = (self._turn + ranked.used) % len(self._seeds)
        return [replace(candidates[i], bias=float(ranked.bias[i])) for i in ranked.order]

    def _save(self, beam: Beam, log_prob: float) -> None:
        ended = Beam(beam.tokens, beam.text, beam.log_prior + log_prob, beam.bias)
        saved = self._ended.get(beam.text)
        if saved is None or saved.log_prior < ended.log_prior:
            self._ended[beam.text] = ended

    def _end_all(self, beams: Sequence[Beam]) -> None:
        """Ends beams that reached the most tokens, with the probability that the model assigns to ending there."""
        if not beams:
            return
        ends = set(self.model.end_tokens)
        rows = self.model.continuations([(*self._start, *beam.tokens) for beam in beams], EVERY_TOKEN)
        for beam, tokens in zip(beams, rows, strict=True):
            log_probs = [token.log_prob for token in tokens if token.token_id in ends]
            if log_probs:
                self._save(beam, float(np.logaddexp.reduce(log_probs)))

    def _best(self) -> list[ScoredPrompt]:
        """Returns the best of the ended prompts on all K seeds.

        A race has seen few images of each: the best ones so far race once more, and the best of these are completed
        with the seeds that they lack.
        """
        ended = sorted(self._ended.values(), key=lambda beam: -self._score(beam))
        if not ended:
            return []
        if self.settings.raced:
            ended = self._winners(ended[: max(_CONFIRMED, 2 * self.settings.keep)], 2 * self.settings.keep)
        ended = ended[: 2 * self.settings.keep]
        bias = bias_scores(self.guide.probabilities([beam.text for beam in ended], self._seeds))
        scored = [
            ScoredPrompt(beam.text, beam.log_prior, float(b), beam.log_prior + self.settings.weight * float(b))
            for beam, b in zip(ended, bias, strict=True)
        ]
        return diverse(sorted(scored, key=lambda prompt: -prompt.score), self.settings.overlap)[: self.settings.keep]

    def _score(self, beam: Beam) -> float:
        return beam.log_prior + self.settings.weight * beam.bias


def diverse(scored: Sequence[ScoredPrompt], overlap: float) -> list[ScoredPrompt]:
    """Removes prompts that share more than `overlap` of their words (Jaccard) with a better one."""
    result: list[ScoredPrompt] = []
    for prompt in scored:
        words = set(words_of(prompt.text))
        words_of_kept = (set(words_of(other.text)) for other in result)
        if all(len(words & other) <= overlap * len(words | other) for other in words_of_kept):
            result.append(prompt)
    return result
