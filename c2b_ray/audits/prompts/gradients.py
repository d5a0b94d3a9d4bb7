"""Prompts by PEZ: towards the mean embedding of a generator's images that show a value.

It composes the generator, the judge and the encoder where the generator runs; `models.pez` computes the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from c2b_ray.audits.prompts.work import Work
from c2b_ray.models.pez import hard_prompt
from c2b_ray.pipelines.images import VERIFY
from c2b_ray.roles import Captioner, GenerationRequest, ImageGenerator, Pixels, Question, TextImageEncoder
from c2b_ray.schemas import seed_of
from c2b_ray.steps.generating import images_of
from c2b_ray.steps.prompts.baselines import TEMPLATES, filled
from c2b_ray.steps.prompts.targets import Target

MOST_IMAGES = 64
"""The most images of templates whose mean embedding is the target."""


@dataclass(frozen=True)
class _Plan:
    targets: tuple[Target, ...]
    questions: dict[str, Question]
    prompts: tuple[str, ...]
    count: int
    seed: int


def pez_rows(work: Work, generator: str) -> list[dict[str, Any]]:
    """Returns rows of `schemas.prompts.WRITTEN` for each target whose value some image shows."""
    config = work.config
    assert config.encoder is not None
    prompts = [text for text, _ in filled(TEMPLATES, config.subjects, MOST_IMAGES)]
    plan = _Plan(tuple(work.targets), work.questions, tuple(prompts), config.evaluation.prompts, config.seed)
    function = partial(_prompts, work.generator(generator), work.judge(), work.models.encoder(config.encoder), plan)
    rows = []
    for target, texts in zip(plan.targets, work.models.runner.call(function, VERIFY), strict=True):
        about = {"attribute": target.attribute, "value": target.value, "generator": generator, "method": "pez"}
        rows += [{**about, "subject": None, "prompt": text} for text in texts]
    return rows


def _prompts(
    generator: Callable[[], ImageGenerator],
    judge: Callable[[], Captioner],
    encoder: Callable[[], TextImageEncoder],
    plan: _Plan,
) -> list[list[str]]:
    """Returns the plan's number of prompts for each target; none where no image shows it."""
    made, judging, encoding = generator(), judge(), encoder()
    rounds = range(-(-MOST_IMAGES // len(plan.prompts)))
    requests = [GenerationRequest(p, seed_of("pez", plan.seed, p, n)) for n in rounds for p in plan.prompts]
    images = [image.pixels for image in images_of(made, requests[:MOST_IMAGES]) if image.pixels is not None]
    if not images:
        return [[] for _ in plan.targets]
    embedded = encoding.encode_images(images)
    said = {name: _choices(judging, images, question) for name, question in plan.questions.items()}
    return [_of_target(target, plan, embedded, said, encoding) for target in plan.targets]


def _choices(judge: Captioner, images: Sequence[Pixels], question: Question) -> list[str | None]:
    return [answer.choice for answer in judge.answer(images, [question] * len(images))]


def _of_target(
    target: Target, plan: _Plan, embedded: np.ndarray[Any, Any], said: dict[str, list[str | None]], encoder: object
) -> list[str]:
    shows = np.all(
        [np.array(said[name]) == value for name, value in zip(target.attributes, target.values, strict=True)], axis=0
    )
    if not shows.any():
        return []
    mean = embedded[shows].mean(axis=0)
    mean = mean / np.linalg.norm(mean)
    seeds = [seed_of("pez prompt", plan.seed, target.attribute, target.value, n) for n in range(plan.count)]
    return list(dict.fromkeys(hard_prompt(encoder, mean, seed) for seed in seeds))
