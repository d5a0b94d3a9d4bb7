"""Measures every prompt (its frequency under fresh seeds, its perplexity, whether it leaks) and each method."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from c2b_ray.audits.prompts.gains import gains
from c2b_ray.audits.prompts.work import Work
from c2b_ray.audits.prompts.writing import Key, PromptRow, efforts, prompt_rows
from c2b_ray.metrics import wilson_interval
from c2b_ray.metrics.transfer import clustered_rate
from c2b_ray.roles import LanguageModel, TokenCounter
from c2b_ray.schemas.prompts import GAINS, METHODS, PROMPTS
from c2b_ray.steps.prompts.leaks import words_of

EVALUATION = "evaluation"


def measure(work: Work) -> None:
    """Writes prompts.parquet, methods.parquet and gains.parquet."""
    rows = prompt_rows(work)
    count = work.config.evaluation.images
    wanted: dict[str, list[tuple[str, Sequence[int]]]] = defaultdict(list)
    for row in rows:
        wanted[row.generator].append((row.prompt, work.fresh_seeds(EVALUATION, row.prompt, count)))
    frequencies = work.judged("judge", wanted)
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


def _row(work: Work, row: PromptRow, shows: Sequence[float], perplexity: float | None) -> dict[str, object]:
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


def _methods(work: Work, rows: Sequence[Mapping[str, object]]) -> pa.Table:
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
    several = len({row["search"] for row in rows}) > 1
    units: dict[object, list[int]] = defaultdict(lambda: [0, 0])
    for number, row in enumerate(rows):
        images = int(str(row["images"]))
        unit = units[row["search"] if several and row["search"] else number]
        unit[0] += round(float(str(row["frequency"] or 0)) * images)
        unit[1] += images
    hits, totals = zip(*units.values(), strict=True) if units else ((), ())
    if not sum(totals):
        return None, None, None
    estimate = clustered_rate(hits, totals, confidence)
    return float(estimate.value), float(estimate.low), float(estimate.high)


def _perplexities(work: Work, prompts: Sequence[str]) -> dict[str, float]:
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


def _token_counts(work: Work, reader: LanguageModel, prompts: Sequence[str]) -> list[int]:
    if isinstance(reader, TokenCounter):
        return reader.token_counts(prompts)
    work.notes.append("perplexity is per word: the reader does not say how many tokens it sums over")
    return [len(words_of(prompt)) for prompt in prompts]
