"""The searches of a run, one stage per generator; their prompts are in the run's parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.prompts.config import PromptsConfig, SearchConfig
from c2b_ray.audits.prompts.run import PromptsState
from c2b_ray.audits.prompts.steps.judging import CURATED, TEMPLATES, filled, written
from c2b_ray.audits.prompts.steps.search import IMAGES, Guide, Head, HeadGuide, JudgeGuide, SearchSettings
from c2b_ray.audits.prompts.steps.tasks import SearchModels, SearchPlan, Target, search_tasks
from c2b_ray.engine.images import VERIFY
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.models.pez import hard_prompt
from c2b_ray.report import words
from c2b_ray.roles import (
    ActivationReader,
    Captioner,
    GenerationRequest,
    ImageGenerator,
    LanguageModel,
    Question,
    ReplyContinuer,
    TextImageEncoder,
)
from c2b_ray.steps.draw import images_of
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.prompts import WRITTEN

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


def search_all(work: PromptsState, guided: Mapping[str, Guided]) -> None:
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
        rows = search_tasks(plan, config.subjects, weights, ceil(config.evaluation.prompts / config.search.keep))
        if not rows.num_rows:
            continue
        models = partial(
            search_models,
            work.language_model_there(),
            work.generator(name),
            work.judge() if guide.heads is None else None,
            _GuideOf(config.generators[name], guide.heads, work.questions),
        )
        count_images = partial(_images_of_searches, work)
        with (
            work.steps.step("search") as report_progress,
            work.steps.images("search", count_images, IMAGES.total) as report_images,
            IMAGES.calling(report_images),
        ):
            work.run.begin_writing()
            work.stages.search(rows, models, plan, work.run.location("searches"), report_progress)
    empty = [row["subject"] for row in work.run.read("searches").to_pylist() if not row["prompts"]]
    if empty:
        targets_listed = words.listed(sorted(set(empty)))
        number_of_searches = words.plural(len(empty), "search", "searches")
        work.notes.append(
            f"{number_of_searches} gave no prompt that ends without naming the value, about {targets_listed}."
        )


def _images_of_searches(work: PromptsState) -> int:
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
    model, image_generator = language_model(), generator()
    if not isinstance(model, ReplyContinuer):
        raise ConfigError("language_model", f"{type(model).__name__}: {NO_TOKENS}")
    if guides.heads is not None and not isinstance(image_generator, ActivationReader):
        raise ConfigError("guide", f"{guides.spec}: its activations cannot be read; use `guide: judge`")
    answering = None if judge is None else judge()
    return SearchModels(model, lambda target: guides.guide(target, image_generator, answering))


def check_search(config: PromptsConfig) -> None:
    """Raises ConfigError for a language model that no search can go by, and for heads that would guide nothing."""
    if "bgps" in config.methods and catalog.parse(config.language_model).scheme in _REPLIES_ALONE:
        raise ConfigError("language_model", f"{config.language_model}: {NO_TOKENS}, or leave bgps out of `methods`")
    if config.guide == "judge" and config.heads.files is not None:
        raise ConfigError("heads.files", "heads guide nothing under `guide: judge`")


# Prompts by PEZ: towards the mean embedding of a generator's images that show a value.


MOST_IMAGES = 64
"""The most images of templates whose mean embedding is the target."""


@dataclass(frozen=True)
class _Plan:
    targets: tuple[Target, ...]
    questions: dict[str, Question]
    prompts: tuple[str, ...]
    count: int
    seed: int


def pez_rows(work: PromptsState, generator: str) -> list[dict[str, Any]]:
    """Returns rows of `tables.prompts.WRITTEN` for each target whose value some image shows."""
    config = work.config
    assert config.encoder is not None
    prompts = [text for text, _ in filled(TEMPLATES, config.subjects, MOST_IMAGES)]
    plan = _Plan(tuple(work.targets), work.questions, tuple(prompts), config.evaluation.prompts, config.seed)
    function = partial(_prompts, work.generator(generator), work.judge(), work.models.encoder(config.encoder), plan)
    rows = []
    for target, texts in zip(plan.targets, work.models.runner.call(function, VERIFY), strict=True):
        fields = {"attribute": target.attribute, "value": target.value, "generator": generator, "method": "pez"}
        rows += [{**fields, "subject": None, "prompt": text} for text in texts]
    return rows


def _prompts(
    generator: Callable[[], ImageGenerator],
    judge: Callable[[], Captioner],
    encoder: Callable[[], TextImageEncoder],
    plan: _Plan,
) -> list[list[str]]:
    """Returns the plan's number of prompts for each target; none where no image shows it."""
    image_generator, judging, encoding = generator(), judge(), encoder()
    rounds = range(-(-MOST_IMAGES // len(plan.prompts)))
    requests = [GenerationRequest(p, seed_of("pez", plan.seed, p, n)) for n in rounds for p in plan.prompts]
    images = [image.pixels for image in images_of(image_generator, requests[:MOST_IMAGES]) if image.pixels is not None]
    if not images:
        return [[] for _ in plan.targets]
    embedded = encoding.encode_images(images)
    answers = {
        name: [answer.choice for answer in judging.answer(images, [question] * len(images))]
        for name, question in plan.questions.items()
    }
    return [_of_target(target, plan, embedded, answers, encoding) for target in plan.targets]


def _of_target(
    target: Target, plan: _Plan, embedded: np.ndarray[Any, Any], answers: dict[str, list[str | None]], encoder: object
) -> list[str]:
    shows = np.all(
        [np.array(answers[name]) == value for name, value in zip(target.attributes, target.values, strict=True)], axis=0
    )
    if not shows.any():
        return []
    mean = embedded[shows].mean(axis=0)
    mean = mean / np.linalg.norm(mean)
    seeds = [seed_of("pez prompt", plan.seed, target.attribute, target.value, n) for n in range(plan.count)]
    return list(dict.fromkeys(hard_prompt(encoder, mean, seed) for seed in seeds))


# The prompts of a run: those of the baselines, written once, and those that its searches found.


@dataclass(frozen=True)
class PromptRow:
    """A prompt of a method for a target on a generator. `images_used`: its share of the images of its search, `search`;
    None for prompts of no search."""

    target: Target
    generator: str
    method: str
    prompt: str
    subject: str | None
    log_prior: float | None = None
    bias_score: float | None = None
    images_used: int = 0
    search: str | None = None


@dataclass(frozen=True)
class SearchEffort:
    """The effort of all searches of a method for a target on a generator."""

    candidates: int = 0
    rejected: int = 0
    images: int = 0


Key = tuple[str, str, str, str]
"""Attribute, value, generator, method."""


def write_baselines(work: PromptsState) -> None:
    """Writes the baselines' prompts into written.parquet; an existing file is kept."""
    for target in work.targets:
        leaky = [subject for subject in work.config.subjects if work.leaks(target).word(subject)]
        if leaky:
            note = f"{target.attribute} {target.value}: prompts about {', '.join(leaky)} name it and are left out."
            work.notes.append(note)
    if not work.run.has("written"):
        with work.steps.step("baselines"):
            rows = [row for target in work.targets for row in _baselines(work, target)]
            if "pez" in work.config.methods:
                rows += [row for generator in work.config.generators for row in pez_rows(work, generator)]
            work.run.write("written", pa.Table.from_pylist(rows, schema=WRITTEN))
    if "pez" in work.config.methods:
        rows = [row for row in work.run.read("written").to_pylist() if row["method"] == "pez"]
        targets_found = {(row["generator"], row["attribute"], row["value"]) for row in rows}
        work.notes.extend(
            f"{generator}: no image of a template shows {target.value}, so PEZ has nothing to go to."
            for generator in work.config.generators
            for target in work.targets
            if (generator, target.attribute, target.value) not in targets_found
        )


def _baselines(work: PromptsState, target: Target) -> Iterator[dict[str, str | None]]:
    config, count = work.config, work.config.evaluation.prompts
    prompts: dict[str, list[tuple[str, str | None]]] = {}
    if "curated" in config.methods:
        prompts["curated"] = filled(config.curated or CURATED, config.subjects, count)
    if "templates" in config.methods:
        prompts["templates"] = filled(TEMPLATES, config.subjects, count)
    for method in ("llm", "llm_biased"):
        if method in config.methods:
            # The neutral prompts are the same for all values, so that values do not differ by their draw.
            key = target.attribute if method == "llm" else f"{target.attribute} {target.value}"
            seed, model = seed_of("written", config.seed, key), work.models.language_model(config.language_model)
            prompts[method], why = written(model, target, config.subjects, count, method == "llm_biased", seed)
            if why is not None:
                subject_text = f"{method}, {target.attribute} {target.value}"
                work.notes.append(f"{subject_text}: the language model wrote no prompt: {why}.")
    for method, rows in prompts.items():
        for prompt, subject in rows:
            fields = {"attribute": target.attribute, "value": target.value, "generator": None}
            yield {**fields, "method": method, "subject": subject, "prompt": prompt}


def neutral_prompts(work: PromptsState, count: int) -> list[str]:
    """Returns `count` prompts of the language model that should not mention an attribute, each attribute in turn."""
    config = work.config
    model = work.models.language_model(config.language_model)
    prompts_per_attribute = -(-count // len(config.attributes))
    prompts: dict[str, None] = {}
    for name in config.attributes:
        target, seed = Target((name,), ("",)), seed_of("neutral prompts", config.seed, name)
        prompts.update(
            dict.fromkeys(
                text for text, _ in written(model, target, config.subjects, prompts_per_attribute, False, seed)[0]
            )
        )
    return list(prompts)[:count]


def head_prompts(work: PromptsState, count: int) -> list[str]:
    """Returns `count` neutral prompts for heads to learn from: half a language model's, the rest from people's
    templates."""
    prompts = neutral_prompts(work, -(-count // 2))
    forms = [text for text, _ in filled((*TEMPLATES, *CURATED), work.config.subjects, count)]
    return [*prompts, *(text for text in forms if text not in prompts)][:count]


def prompt_rows(work: PromptsState) -> list[PromptRow]:
    """Returns every prompt on every generator, each once per method; of searches at most as many as are evaluated."""
    targets = {(target.attribute, target.value): target for target in work.targets}
    rows = [
        PromptRow(targets[row["attribute"], row["value"]], generator, row["method"], row["prompt"], row["subject"])
        for row in work.run.read("written").to_pylist()
        for generator in ([row["generator"]] if row["generator"] else work.config.generators)
    ]
    by_target: dict[Key, dict[str, PromptRow]] = defaultdict(dict)
    for search in work.run.read("searches").sort_by("search_id").to_pylist():
        target = targets[search["attribute"], search["value"]]
        key = (search["attribute"], search["value"], search["generator"], search["method"])
        share = round(search["images_used"] / max(1, len(search["prompts"])))
        for prompt, prior, bias in zip(search["prompts"], search["log_priors"], search["bias_scores"], strict=True):
            fields = (target, search["generator"], search["method"], prompt, search["subject"])
            row = PromptRow(*fields, prior, bias, share, search["search_id"])
            by_target[key].setdefault(prompt, row)
    return rows + [
        row for rows_of in by_target.values() for row in list(rows_of.values())[: work.config.evaluation.prompts]
    ]


def efforts(work: PromptsState) -> Mapping[Key, SearchEffort]:
    result: dict[Key, SearchEffort] = defaultdict(SearchEffort)
    for search in work.run.read("searches").to_pylist():
        key = (search["attribute"], search["value"], search["generator"], search["method"])
        before = result[key]
        result[key] = SearchEffort(
            before.candidates + search["candidates"],
            before.rejected + search["rejected"],
            before.images + search["images_used"],
        )
    return result
