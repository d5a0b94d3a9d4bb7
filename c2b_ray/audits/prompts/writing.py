"""The prompts of a run: those of the baselines, written once, and those that its searches found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.audits.prompts.gradients import pez_rows
from c2b_ray.audits.prompts.work import Work
from c2b_ray.schemas import seed_of
from c2b_ray.schemas.prompts import WRITTEN
from c2b_ray.steps.prompts.baselines import CURATED, TEMPLATES, filled, written
from c2b_ray.steps.prompts.targets import Target


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
class Effort:
    """The effort of all searches of a method for a target on a generator."""

    candidates: int = 0
    rejected: int = 0
    images: int = 0


Key = tuple[str, str, str, str]
"""Attribute, value, generator, method."""


def write_baselines(work: Work) -> None:
    """Writes the baselines' prompts into written.parquet; an existing file is kept."""
    for target in work.targets:
        leaky = [subject for subject in work.config.subjects if work.leaks(target).word(subject)]
        if leaky:
            what = f"{target.attribute} {target.value}: prompts about {', '.join(leaky)} name it and are left out."
            work.notes.append(what)
    if not work.run.has("written"):
        with work.steps.step("baselines"):
            rows = [row for target in work.targets for row in _baselines(work, target)]
            if "pez" in work.config.methods:
                rows += [row for generator in work.config.generators for row in pez_rows(work, generator)]
            work.run.write("written", pa.Table.from_pylist(rows, schema=WRITTEN))
    if "pez" in work.config.methods:
        rows = [row for row in work.run.read("written").to_pylist() if row["method"] == "pez"]
        found = {(row["generator"], row["attribute"], row["value"]) for row in rows}
        work.notes.extend(
            f"{generator}: no image of a template shows {target.value}, so PEZ has nothing to go to."
            for generator in work.config.generators
            for target in work.targets
            if (generator, target.attribute, target.value) not in found
        )


def _baselines(work: Work, target: Target) -> Iterator[dict[str, str | None]]:
    config, count = work.config, work.config.evaluation.prompts
    prompts: dict[str, list[tuple[str, str | None]]] = {}
    if "curated" in config.methods:
        prompts["curated"] = filled(config.curated or CURATED, config.subjects, count)
    if "templates" in config.methods:
        prompts["templates"] = filled(TEMPLATES, config.subjects, count)
    for method in ("llm", "llm_biased"):
        if method in config.methods:
            # The neutral prompts are the same for all values: what differs between values is not their draw.
            key = target.attribute if method == "llm" else f"{target.attribute} {target.value}"
            seed, model = seed_of("written", config.seed, key), work.models.language_model(config.language_model)
            prompts[method], why = written(model, target, config.subjects, count, method == "llm_biased", seed)
            if why is not None:
                what = f"{method}, {target.attribute} {target.value}"
                work.notes.append(f"{what}: the language model wrote no prompt: {why}.")
    for method, rows in prompts.items():
        for prompt, subject in rows:
            about = {"attribute": target.attribute, "value": target.value, "generator": None}
            yield {**about, "method": method, "subject": subject, "prompt": prompt}


def neutral_prompts(work: Work, count: int) -> list[str]:
    """Returns `count` prompts of the language model that should not mention an attribute, each attribute in turn."""
    config = work.config
    model = work.models.language_model(config.language_model)
    each = -(-count // len(config.attributes))
    prompts: dict[str, None] = {}
    for name in config.attributes:
        target, seed = Target((name,), ("",)), seed_of("neutral prompts", config.seed, name)
        prompts.update(dict.fromkeys(text for text, _ in written(model, target, config.subjects, each, False, seed)[0]))
    return list(prompts)[:count]


def head_prompts(work: Work, count: int) -> list[str]:
    """Returns `count` neutral prompts for heads to learn from: half a language model's, the rest from people's
    templates."""
    prompts = neutral_prompts(work, -(-count // 2))
    forms = [text for text, _ in filled((*TEMPLATES, *CURATED), work.config.subjects, count)]
    return [*prompts, *(text for text in forms if text not in prompts)][:count]


def prompt_rows(work: Work) -> list[PromptRow]:
    """Returns every prompt on every generator, each once per method; of searches at most as many as are evaluated."""
    targets = {(target.attribute, target.value): target for target in work.targets}
    rows = [
        PromptRow(targets[row["attribute"], row["value"]], generator, row["method"], row["prompt"], row["subject"])
        for row in work.run.read("written").to_pylist()
        for generator in ([row["generator"]] if row["generator"] else work.config.generators)
    ]
    by_target: dict[Key, dict[str, PromptRow]] = defaultdict(dict)
    for one in work.run.read("searches").sort_by("search_id").to_pylist():
        target = targets[one["attribute"], one["value"]]
        key = (one["attribute"], one["value"], one["generator"], one["method"])
        share = round(one["images_used"] / max(1, len(one["prompts"])))
        for prompt, prior, bias in zip(one["prompts"], one["log_priors"], one["bias_scores"], strict=True):
            about = (target, one["generator"], one["method"], prompt, one["subject"])
            row = PromptRow(*about, prior, bias, share, one["search_id"])
            by_target[key].setdefault(prompt, row)
    return rows + [
        row for rows_of in by_target.values() for row in list(rows_of.values())[: work.config.evaluation.prompts]
    ]


def efforts(work: Work) -> Mapping[Key, Effort]:
    result: dict[Key, Effort] = defaultdict(Effort)
    for one in work.run.read("searches").to_pylist():
        key = (one["attribute"], one["value"], one["generator"], one["method"])
        before = result[key]
        result[key] = Effort(
            before.candidates + one["candidates"],
            before.rejected + one["rejected"],
            before.images + one["images_used"],
        )
    return result
