"""Estimates how likely a generator's images of a prompt are to show a value: the guide of a search.

It is the mean over K seeds, the same for every prompt, so that comparisons are paired. It is computed by linear heads
on the generator's activations, which needs no image, or by a judge of its images. It knows roles and heads; it does not
know how the search uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from c2b_ray.roles import ActivationReader, Captioner, Floats, GenerationRequest, ImageGenerator, Pixels, Question
from c2b_ray.steps.generating import images_of
from c2b_ray.steps.image_counter import ImageCounter

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
        seen = [(at, image.pixels) for at, image in enumerate(images) if image.pixels is not None]
        result = np.full(len(requests), np.nan)
        if seen:
            result[[at for at, _ in seen]] = self._judged([pixels for _, pixels in seen])
        return result.reshape(len(prompts), len(seeds))

    def _judged(self, images: list[Pixels]) -> Shares:
        result = np.ones(len(images))
        for question, value in zip(self.questions, self.target, strict=True):
            for at, answer in enumerate(self.judge.answer(images, [question] * len(images))):
                if answer.error is not None:
                    result[at] = np.nan
                elif answer.probabilities is not None:
                    result[at] *= answer.probabilities[question.choices.index(value)]
                else:
                    result[at] *= answer.choice == value
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
        lacking: dict[tuple[int, ...], list[str]] = {}
        for prompt in dict.fromkeys(prompts):
            missing = tuple(seed for seed in seeds if (prompt, seed) not in self._known)
            if missing:
                lacking.setdefault(missing, []).append(prompt)
        for missing, some in lacking.items():
            for prompt, row in zip(some, self.guide.probabilities(some, missing), strict=True):
                self._known.update({(prompt, seed): float(p) for seed, p in zip(missing, row, strict=True)})
            self.images += len(some) * len(missing)
            IMAGES.add(len(some) * len(missing))
        return np.array([[self._known[prompt, seed] for seed in seeds] for prompt in prompts])


def bias_scores(probabilities: Shares) -> Shares:
    """Returns the log of the mean probability over seeds, (prompts,): the paper's bias score, which is not a mean of
    logarithms.

    A prompt without any image has the least score, so that a search does not choose it.
    """
    known = ~np.isnan(probabilities)
    sums, counts = np.where(known, probabilities, 0.0).sum(axis=1), known.sum(axis=1)
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
