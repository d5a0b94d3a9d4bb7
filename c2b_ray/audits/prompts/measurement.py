"""Measures each prompt (frequency under fresh seeds, perplexity, whether it leaks), each method, and each edit."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.prompts.run import PromptsState
from c2b_ray.audits.prompts.search import Key, PromptRow, efforts, prompt_rows
from c2b_ray.audits.prompts.steps.words import parts, words_of
from c2b_ray.roles import LanguageModel, TokenCounter
from c2b_ray.stats import benjamini_hochberg, paired_difference_interval, paired_difference_p_values, wilson_interval
from c2b_ray.stats.distances import clustered_rate
from c2b_ray.stats.gains import Gain, mean_gain
from c2b_ray.tables import content_id
from c2b_ray.tables.prompts import GAINS, METHODS, MODIFIERS, PROMPTS

# Computes each method's gain over the language model's own prompts: the mean over values, with an interval over
# prompts.


PLAIN = "llm"
ABOVE, BELOW, NOTHING, UNKNOWN = "above", "below", "nothing found", "unknown"

Rows = Sequence[Mapping[str, Any]]
Target = tuple[str, str]


def gains(prompts: Rows, alpha: float) -> list[dict[str, Any]]:
    """Returns rows of `tables.prompts.GAINS` for every method but the language model's own, on each generator.

    `prompts`: rows of `tables.prompts.PROMPTS`; those that name the value, or were not judged, are left out.
    """
    groups: dict[tuple[str, str], dict[Target, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in prompts:
        if not row["leaked"] and row["frequency"] is not None:
            groups[row["generator"], row["method"]][row["attribute"], row["value"]].append(row)
    generators = list(dict.fromkeys(generator for generator, _ in groups))
    result = []
    for (generator, method), of_method in sorted(groups.items(), key=lambda group: generators.index(group[0][0])):
        plain = groups.get((generator, PLAIN), {})
        targets = [target for target in of_method if target in plain]
        if method == PLAIN or not targets:
            continue
        terms = [gain_terms(of_method[target], plain[target], 1 / len(targets)) for target in targets]
        gain = sum_of(list(chain.from_iterable(terms)), 1 - alpha)
        has_interval = not np.isnan(gain.low)
        result.append(
            {
                "generator": generator,
                "method": method,
                "gain": gain.value,
                "low": max(-1.0, gain.low) if has_interval else None,
                "high": min(1.0, gain.high) if has_interval else None,
                "values": len(targets),
                "prompts": sum(len(of_target.rows) for of_target, _ in terms),
                "verdict": _verdict(gain),
            }
        )
    return result


@dataclass(frozen=True)
class Term:
    """Prompts whose mean frequency has the weight `weight` in a sum. `side`: the generator whose searches they come
    from. `counts`: how much each prompt counts in the mean; None: alike."""

    rows: Rows
    weight: float
    side: str = ""
    counts: Sequence[float] | None = None

    @property
    def mean(self) -> float:
        return float(np.average([row["frequency"] for row in self.rows], weights=self.counts))


def gain_terms(rows: Rows, plain: Rows, weight: float = 1.0, side: str = "") -> list[Term]:
    """Returns the two terms of a method's gain over the language model's own prompts (`plain`) about the same subjects,
    each subject with the same weight; none where either has no prompt.

    Searches reach fewer subjects than the language model writes about, and the first of a list: where these show the
    value anyway, that would pass for a gain. Rows about no subject, or without one in common, are compared as they are.
    """
    if not rows or not plain:
        return []
    method_counts, plain_counts = (Counter(row["subject"] for row in side_rows) for side_rows in (rows, plain))
    if None in method_counts or not method_counts.keys() & plain_counts.keys():
        return [Term(rows, weight, side), Term(plain, -weight, side)]
    comparable = [row for row in plain if row["subject"] in method_counts]
    counts = [method_counts[row["subject"]] / plain_counts[row["subject"]] for row in comparable]
    return [
        Term([row for row in rows if row["subject"] in plain_counts], weight, side),
        Term(comparable, -weight, side, counts),
    ]


def sum_of(terms: Sequence[Term], confidence: float) -> Gain:
    """Returns the weighted sum of the terms' means, with an interval over prompts and searches."""
    values: list[float] = []
    groups: list[int] = []
    clusters: list[int] = []
    counts: list[float] = []
    numbers: dict[tuple[str, ...], int] = {}
    for number, term in enumerate(terms):
        counts += term.counts or [1.0] * len(term.rows)
        by_subject = len({row["subject"] for row in term.rows}) > 1
        for row in term.rows:
            values.append(row["frequency"])
            groups.append(number)
            clusters.append(numbers.setdefault(_cluster(row, by_subject, term.side), len(numbers)))
    coarsest = min(0.5 / row["images"] for term in terms for row in term.rows)
    return mean_gain(values, groups, [term.weight for term in terms], clusters, coarsest, confidence, counts)


def _cluster(row: Mapping[str, Any], by_subject: bool, side: str) -> tuple[str, ...]:
    """Returns the cluster of a row: rows whose errors are correlated share one.

    These are the rows of one prompt, whose images count for every value, and the prompts that a value's searches found
    for one subject. A search is of one generator, `side`.
    """
    if row["method"].startswith("bgps") and by_subject:
        return side, row["attribute"], row["value"], row["method"], row["subject"]
    return (row["prompt"],)


def _verdict(gain: Gain) -> str:
    if np.isnan(gain.low):
        return UNKNOWN
    return ABOVE if gain.low > 0 else BELOW if gain.high < 0 else NOTHING


EVALUATION = "evaluation"


def measure(work: PromptsState) -> None:
    """Writes prompts.parquet, methods.parquet and gains.parquet."""
    rows = prompt_rows(work)
    count = work.config.evaluation.images
    orders: dict[str, list[tuple[str, Sequence[int]]]] = defaultdict(list)
    for row in rows:
        orders[row.generator].append((row.prompt, work.fresh_seeds(EVALUATION, row.prompt, count)))
    frequencies = work.judged("judge", orders)
    with work.steps.step("perplexity"):
        perplexities = _perplexities(work, [row.prompt for row in rows])
    table = []
    for row in rows:
        seeds = work.fresh_seeds(EVALUATION, row.prompt, count)
        target = dict(zip(row.target.attributes, row.target.values, strict=True))
        shows = frequencies.shows(row.generator, row.prompt, seeds, target)
        table.append(_row(work, row, shows[~np.isnan(shows)].tolist(), perplexities.get(row.prompt)))
    work.run.write("prompts", pa.Table.from_pylist(table, schema=PROMPTS))
    work.run.write("methods", _methods(work, table))
    work.run.write("gains", pa.Table.from_pylist(gains(table, work.config.alpha), schema=GAINS))


def _row(work: PromptsState, row: PromptRow, shows: Sequence[float], perplexity: float | None) -> dict[str, object]:
    images, hits = len(shows), int(sum(shows))
    low, high = wilson_interval(hits, images, 1 - work.config.alpha) if images else (None, None)
    word = work.leaks(row.target).word(row.prompt)
    return {
        "attribute": row.target.attribute,
        "value": row.target.value,
        "generator": row.generator,
        "method": row.method,
        "prompt": row.prompt,
        "log_prior": row.log_prior,
        "bias_score": row.bias_score,
        "frequency": hits / images if images else None,
        "frequency_low": low,
        "frequency_high": high,
        "perplexity": perplexity,
        "leaked": word is not None,
        "images_used": row.images_used,
        "subject": row.subject,
        "images": images,
        "leaked_word": word,
        "search": row.search,  # for intervals; no column of the table
    }


def _methods(work: PromptsState, rows: Sequence[Mapping[str, object]]) -> pa.Table:
    groups: dict[Key, list[Mapping[str, object]]] = defaultdict(list)
    for row in rows:
        groups[str(row["attribute"]), str(row["value"]), str(row["generator"]), str(row["method"])].append(row)
    spent = efforts(work)
    result = []
    for key, group in groups.items():
        unleaked = [row for row in group if not row["leaked"]]
        rate, low, high = mean_frequency(unleaked, 1 - work.config.alpha)
        effort = spent[key]
        perplexities = [float(str(row["perplexity"])) for row in unleaked if row["perplexity"] is not None]
        result.append(
            {
                **dict(zip(("attribute", "value", "generator", "method"), key, strict=True)),
                "prompts": len(group),
                "frequency": rate,
                "frequency_low": low,
                "frequency_high": high,
                "perplexity": float(np.median(perplexities)) if perplexities else None,
                "leaked": 1 - len(unleaked) / len(group),
                "frequency_with_leaks": mean_frequency(group, 1 - work.config.alpha)[0],
                "candidates": effort.candidates,
                "rejected": effort.rejected,
                "images_used": effort.images,
            }
        )
    return pa.Table.from_pylist(result, schema=METHODS)


def mean_frequency(
    rows: Sequence[Mapping[str, object]], confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Returns the frequency over all images of the prompts, with its interval. Prompts are the sampling unit, those of
    one search together: they are variants of each other. Of a single search each counts by itself."""
    has_several = len({row["search"] for row in rows}) > 1
    units: dict[object, list[int]] = defaultdict(lambda: [0, 0])
    for number, row in enumerate(rows):
        images = int(str(row["images"]))
        unit = units[row["search"] if has_several and row["search"] else number]
        unit[0] += round(float(str(row["frequency"] or 0)) * images)
        unit[1] += images
    hits, totals = zip(*units.values(), strict=True) if units else ((), ())
    if not sum(totals):
        return None, None, None
    estimate = clustered_rate(hits, totals, confidence)
    return float(estimate.value), float(estimate.low), float(estimate.high)


def _perplexities(work: PromptsState, prompts: Sequence[str]) -> dict[str, float]:
    """Returns exp(−log P / tokens) of each prompt by the reader; empty without a reader."""
    if work.config.reader is None:
        return {}
    unique = list(dict.fromkeys(prompts))
    reader = work.models.language_model(work.config.reader)
    counts = _token_counts(work, reader, unique)
    result = {}
    for prompt, log_prob, count in zip(unique, reader.log_likelihood(unique), counts, strict=True):
        if count and not math.isnan(log_prob):
            result[prompt] = math.exp(min(700.0, -log_prob / count))
    return result


def _token_counts(work: PromptsState, reader: LanguageModel, prompts: Sequence[str]) -> list[int]:
    if isinstance(reader, TokenCounter):
        return reader.token_counts(prompts)
    work.notes.append("perplexity is per word: the reader does not say how many tokens it sums over")
    return [len(words_of(prompt)) for prompt in prompts]


# Measures what each part of a prompt adds: the prompt with and without it, under the same fresh seeds; and draws
# pictures.


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
        PromptEdit(about, prompt, modifier, remainder)
        for about, prompts in best_prompts(work, config.prompts)
        for prompt in prompts
        for modifier, remainder in parts(prompt)
    ]
    orders: dict[str, list[tuple[str, Sequence[int]]]] = defaultdict(list)
    for edit in edits:
        seeds = work.fresh_seeds(PURPOSE, edit.prompt, config.images)
        orders[edit.about["generator"]] += [(edit.prompt, seeds), (edit.without, seeds)]
    frequencies = work.judged("modifiers", orders)
    targets = {(target.attribute, target.value): target for target in work.targets}
    rows: list[_Modified] = []
    for edit in edits:
        seeds = work.fresh_seeds(PURPOSE, edit.prompt, config.images)
        search_target = targets[edit.about["attribute"], edit.about["value"]]
        target = dict(zip(search_target.attributes, search_target.values, strict=True))
        shows = [
            frequencies.shows(edit.about["generator"], prompt, seeds, target) for prompt in (edit.prompt, edit.without)
        ]
        if (row := _edit_row(edit, shows, 1 - work.config.alpha)) is not None:
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


def _edit_row(edit: PromptEdit, shows: Sequence[Any], confidence: float) -> _Modified | None:
    """Returns None where no seed has an image of both."""
    has_both = ~np.isnan(shows[0] + shows[1])
    images = int(has_both.sum())
    if not images:
        return None
    having, without = shows[0][has_both], shows[1][has_both]
    only_having, only_lacking = int((having > without).sum()), int((without > having).sum())
    low, high = paired_difference_interval(only_lacking, only_having, images, confidence)
    p_value = float(paired_difference_p_values(only_lacking, only_having, images))
    return _Modified(edit, float(having.mean()), float(without.mean()), float(low), float(high), p_value, images)


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
        target = dict(zip(("attribute", "value", "generator"), key, strict=True))
        yield target, list(dict.fromkeys(prompt for *_, prompt in rows))[:count]


def show_examples(work: PromptsState) -> None:
    """Draws pictures of the best prompt of each value and generator, and of the plainest prompt of its subject."""
    orders: dict[str, list[dict[str, object]]] = defaultdict(list)
    subjects = {row["prompt"]: row["subject"] for row in work.run.prompts.to_pylist()}
    for target, prompts in best_prompts(work, 1):
        subject = subjects.get(prompts[0]) if prompts else None
        example_prompts = [*prompts, *([f"a photo of a {subject}"] if subject else [])]
        seeds = list(work.fresh_seeds(SHOWN, "all", PICTURES))
        for prompt in example_prompts:
            identity = content_id("example", work.revisions[target["generator"]], target, prompt, seeds)
            orders[target["generator"]].append({"example_id": identity, **target, "prompt": prompt, "seeds": seeds})
    for name, rows in orders.items():
        table = pa.Table.from_pylist([{k: v for k, v in row.items() if k != "generator"} for row in rows])
        with work.steps.step("examples", PICTURES) as report_progress:
            work.run.begin_writing()
            work.stages.pictures(table, work.generator(name), name, work.run.location("examples"), report_progress)
