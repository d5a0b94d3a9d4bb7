"""Measures what each part of a prompt adds: the prompt with and without it, under the same fresh seeds; and draws
pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.prompts.steps.words import parts
from c2b_ray.audits.prompts.work import PromptsState
from c2b_ray.stats import benjamini_hochberg, paired_difference_interval, paired_difference_p_values
from c2b_ray.tables import content_id
from c2b_ray.tables.prompts import MODIFIERS

PURPOSE, SHOWN = "modifiers", "examples"
PICTURES = 4


@dataclass(frozen=True)
class PromptEdit:
    """`about`: attribute, value and generator. `modifier`: the part of the prompt that `without` lacks."""

    about: Mapping[str, str]
    prompt: str
    modifier: str
    without: str


def modify(work: PromptsState) -> None:
    """Writes modifiers.parquet: what each part adds, for the best prompts of each value and generator."""
    config = work.config.modifiers
    if config is None:
        return
    edits = [
        PromptEdit(about, prompt, modifier, without)
        for about, prompts in best_prompts(work, config.prompts)
        for prompt in prompts
        for modifier, without in parts(prompt)
    ]
    wanted: dict[str, list[tuple[str, Sequence[int]]]] = defaultdict(list)
    for edit in edits:
        seeds = work.fresh_seeds(PURPOSE, edit.prompt, config.images)
        wanted[edit.about["generator"]] += [(edit.prompt, seeds), (edit.without, seeds)]
    frequencies = work.judged("modifiers", wanted)
    targets = {(target.attribute, target.value): target for target in work.targets}
    rows: list[_Modified] = []
    for edit in edits:
        seeds = work.fresh_seeds(PURPOSE, edit.prompt, config.images)
        about = targets[edit.about["attribute"], edit.about["value"]]
        target = dict(zip(about.attributes, about.values, strict=True))
        shows = [
            frequencies.shows(edit.about["generator"], prompt, seeds, target) for prompt in (edit.prompt, edit.without)
        ]
        if (row := _row(edit, shows, 1 - work.config.alpha)) is not None:
            rows.append(row)
    q_values = benjamini_hochberg([row.p_value for row in rows]).tolist() if rows else []
    table = [row.with_q(q) for row, q in zip(rows, q_values, strict=True)]
    work.run.write("modifiers", pa.Table.from_pylist(table, schema=MODIFIERS))


@dataclass(frozen=True)
class _Modified:
    """What a modifier adds to a prompt's frequency, before all modifiers are tested together."""

    edit: PromptEdit
    frequency_with: float
    frequency_without: float
    low: float
    high: float
    p_value: float
    images: int

    def with_q(self, q_value: float) -> dict[str, object]:
        """Returns a row of `MODIFIERS`."""
        return {
            **self.edit.about,
            "prompt": self.edit.prompt,
            "modifier": self.edit.modifier,
            "without": self.edit.without,
            "frequency_with": self.frequency_with,
            "frequency_without": self.frequency_without,
            "adds": self.frequency_with - self.frequency_without,
            "low": self.low,
            "high": self.high,
            "q_value": q_value,
            "images": self.images,
        }


def _row(edit: PromptEdit, shows: Sequence[Any], confidence: float) -> _Modified | None:
    """Returns None where no seed has an image of both."""
    both = ~np.isnan(shows[0] + shows[1])
    images = int(both.sum())
    if not images:
        return None
    having, lacking = shows[0][both], shows[1][both]
    only_having, only_lacking = int((having > lacking).sum()), int((lacking > having).sum())
    low, high = paired_difference_interval(only_lacking, only_having, images, confidence)
    p_value = float(paired_difference_p_values(only_lacking, only_having, images))
    return _Modified(edit, float(having.mean()), float(lacking.mean()), float(low), float(high), p_value, images)


def best_prompts(work: PromptsState, count: int) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yields for each attribute, value and generator the prompts of searches that name no value, most frequent
    first."""
    groups: dict[tuple[str, str, str], list[tuple[float, float, str]]] = defaultdict(list)
    for row in work.run.prompts.to_pylist():
        if row["method"].startswith("bgps") and not row["leaked"] and row["frequency"] is not None:
            ranked = (-row["frequency"], -(row["log_prior"] or 0.0), row["prompt"])
            groups[row["attribute"], row["value"], row["generator"]].append(ranked)
    for key, rows in groups.items():
        rows.sort(key=itemgetter(0, 1))
        about = dict(zip(("attribute", "value", "generator"), key, strict=True))
        yield about, list(dict.fromkeys(prompt for *_, prompt in rows))[:count]


def show_examples(work: PromptsState) -> None:
    """Draws pictures of the best prompt of each value and generator, and of the plainest prompt of its subject."""
    orders: dict[str, list[dict[str, object]]] = defaultdict(list)
    subjects = {row["prompt"]: row["subject"] for row in work.run.prompts.to_pylist()}
    for about, prompts in best_prompts(work, 1):
        subject = subjects.get(prompts[0]) if prompts else None
        shown = [*prompts, *([f"a photo of a {subject}"] if subject else [])]
        seeds = list(work.fresh_seeds(SHOWN, "all", PICTURES))
        for prompt in shown:
            identity = content_id("example", work.revisions[about["generator"]], about, prompt, seeds)
            orders[about["generator"]].append({"example_id": identity, **about, "prompt": prompt, "seeds": seeds})
    for name, rows in orders.items():
        table = pa.Table.from_pylist([{k: v for k, v in row.items() if k != "generator"} for row in rows])
        with work.steps.step("examples", PICTURES) as tell:
            work.run.begin_writing()
            work.stages.pictures(table, work.generator(name), name, work.run.location("examples"), tell)
