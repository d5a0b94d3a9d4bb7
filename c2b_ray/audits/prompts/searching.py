"""The searches of a run, one stage per generator; their prompts are in the run's parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import pyarrow.compute as pc

from c2b_ray.audits.prompts.work import Work
from c2b_ray.config.prompts import PromptsConfig, SearchConfig
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.report.kit import words
from c2b_ray.roles import ActivationReader, Captioner, ImageGenerator, LanguageModel, Question, ReplyContinuer
from c2b_ray.schemas import content_id
from c2b_ray.steps.prompts.beam import SearchSettings
from c2b_ray.steps.prompts.guide import IMAGES, Guide, Head, HeadGuide, JudgeGuide
from c2b_ray.steps.prompts.targets import Target
from c2b_ray.steps.prompts.tasks import SearchModels, SearchPlan, orders

NO_TOKENS = "its replies cannot be written token by token, as the search does; use hf:, vllm: or world:"
_REPLIES_ALONE = ("openai", "scripted")
"""Schemes of language models that say how likely no token is."""
Heads = Mapping[str, Head]
"""Attribute → the head that guides towards its values."""


@dataclass(frozen=True)
class Guided:
    """The guide on one generator: heads, or None for the judge. `identity`: of the heads or the judge."""

    heads: Heads | None
    identity: str

    def reaches(self, target: Target) -> bool:
        """Returns whether there is a head for each value of the target."""
        return self.heads is None or all(
            name in self.heads and value in self.heads[name].values
            for name, value in zip(target.attributes, target.values, strict=True)
        )


def method_name(weight: float) -> str:
    return f"bgps λ={weight:g}"


def search_all(work: Work, guided: Mapping[str, Guided]) -> None:
    """Searches for every target on every generator that has a guide for it."""
    if "bgps" not in work.config.methods:
        return
    config = work.config
    weights = {method_name(weight): weight for weight in config.search.weights}
    for name, guide in guided.items():
        targets = tuple(target for target in work.targets if guide.reaches(target))
        identity = content_id(
            work.revisions[name], config.language_model, guide.identity, config.search.model_dump(exclude={"weights"})
        )
        leaks = tuple(work.leaks(target) for target in targets)
        plan = SearchPlan(name, targets, leaks, settings_of(config.search), identity, config.seed)
        rows = orders(plan, config.subjects, weights, ceil(config.evaluation.prompts / config.search.keep))
        if not rows.num_rows:
            continue
        models = partial(
            search_models,
            work.language_model_there(),
            work.generator(name),
            work.judge() if guide.heads is None else None,
            _GuideOf(config.generators[name], guide.heads, work.questions),
        )
        held = partial(_images_of_searches, work)
        with (
            work.steps.step("search") as tell,
            work.steps.images("search", held, IMAGES.total) as now,
            IMAGES.calling(now),
        ):
            work.run.begin_writing()
            work.stages.search(rows, models, plan, work.run.location("searches"), tell)
    empty = [row["subject"] for row in work.run.read("searches").to_pylist() if not row["prompts"]]
    if empty:
        about = words.listed(sorted(set(empty)))
        some = words.plural(len(empty), "search", "searches")
        work.notes.append(f"{some} gave no prompt that ends without naming the value, about {about}.")


def _images_of_searches(work: Work) -> int:
    return int(pc.sum(work.run.read("searches", ["images_used"])["images_used"]).as_py() or 0)


def settings_of(search: SearchConfig) -> SearchSettings:
    return SearchSettings(
        weight=0.0,
        beams=search.beams,
        expansion=search.expansion,
        pool=search.pool,
        images=search.images,
        tokens=(search.least_tokens, search.most_tokens),
        raced=search.raced,
        of_parent=search.of_parent,
        overlap=search.overlap,
        keep=search.keep,
        filtered=search.filtered,
    )


@dataclass(frozen=True)
class _GuideOf:
    spec: str
    heads: Heads | None
    questions: Mapping[str, Question]

    def guide(self, target: Target, generator: Any, judge: Captioner | None) -> Guide:
        if self.heads is not None:
            return HeadGuide(generator, tuple(self.heads[name] for name in target.attributes), target.values)
        assert judge is not None
        return JudgeGuide(generator, judge, tuple(self.questions[name] for name in target.attributes), target.values)


def search_models(
    language_model: Callable[[], LanguageModel],
    generator: Callable[[], ImageGenerator],
    judge: Callable[[], Captioner] | None,
    guides: _GuideOf,
) -> SearchModels:
    """Loads the models of a search. Raises ConfigError for a language model whose replies cannot be continued, or a
    generator without activations."""
    model, made = language_model(), generator()
    if not isinstance(model, ReplyContinuer):
        raise ConfigError("language_model", f"{type(model).__name__}: {NO_TOKENS}")
    if guides.heads is not None and not isinstance(made, ActivationReader):
        raise ConfigError("guide", f"{guides.spec}: its activations cannot be read; use `guide: judge`")
    answering = None if judge is None else judge()
    return SearchModels(model, partial(_guide, guides, made, answering))


def _guide(guides: _GuideOf, generator: Any, judge: Captioner | None, target: Target) -> Guide:
    return guides.guide(target, generator, judge)


def check_search(config: PromptsConfig) -> None:
    """Raises ConfigError for a language model that no search can go by, and for heads that would guide nothing."""
    if "bgps" in config.methods and catalog.parse(config.language_model).scheme in _REPLIES_ALONE:
        raise ConfigError("language_model", f"{config.language_model}: {NO_TOKENS}, or leave bgps out of `methods`")
    if config.guide == "judge" and config.heads.files is not None:
        raise ConfigError("heads.files", "heads guide nothing under `guide: judge`")
