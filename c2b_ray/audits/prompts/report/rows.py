"""The tables of a run of `c2b prompts` as rows of text: the paper's table, words, parts of prompts, heads.

It knows numbers and how they read; it knows neither files nor HTML.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from c2b_ray.report import words

Rows = Sequence[Mapping[str, Any]]
NAMES = {
    "curated": "Written by people",
    "templates": "Templates",
    "llm": "Language model",
    "llm_biased": "Language model, told the value",
    "pez": "PEZ (gradients)",
}
NOTHING_FOUND = "nothing found"
_ORDER = {name: at for at, name in enumerate(NAMES)}
MOST_ROWS = 60
_LOOKS = {1: "one look", 2: "two looks"}
_OF_PROMPT = ("attribute", "value", "generator")


@dataclass(frozen=True)
class MethodRow:
    method: str
    generator: str
    frequency: str
    gain: str
    gain_range: str
    width: str
    leads: bool
    perplexity: str
    leaked: str
    prompts: str
    images: str


@dataclass(frozen=True)
class TargetRow:
    attribute: str
    value: str
    generator: str
    plain: str
    best: str
    interval: str
    method: str
    prompt: str


@dataclass(frozen=True)
class WordRow:
    word: str
    attribute: str
    value: str
    effect: str
    interval: str
    q: str
    against: str
    images: str
    looks: str
    generator: str
    raises: bool


@dataclass(frozen=True)
class ModifierRow:
    value: str
    generator: str
    modifier: str
    prompt: str
    without: str
    having: str
    adds: str
    interval: str
    q: str
    counts: bool


@dataclass(frozen=True)
class HeadRow:
    generator: str
    attribute: str
    step: str
    accuracy: str
    interval: str
    chance: str
    width: str
    verdict: str
    guides: bool


def method_name(method: str) -> str:
    return NAMES.get(method, method.replace("bgps", "Bias-guided search,"))


def weight_of(method: str) -> float | None:
    """Returns λ of a search's method; None for other methods."""
    return float(method.rpartition("=")[2]) if method.startswith("bgps") else None


def method_rows(methods: Rows, gains: Rows) -> list[MethodRow]:
    """The paper's table: each method on each generator, over all values; prompts that name the value left out."""
    gain_of_method = {(row["generator"], row["method"]): row for row in gains}
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in methods:
        groups[row["generator"], row["method"]].append(row)
    rates = {key: _mean(rows) for key, rows in groups.items()}
    best = {g: max((r for (h, _), r in rates.items() if h == g and r is not None), default=None) for g, _ in groups}
    generators = list(dict.fromkeys(row["generator"] for row in methods))
    order = sorted(groups, key=lambda key: (generators.index(key[0]), _rank(key[1])))
    return [_method_row(key, groups[key], gain_of_method.get(key), rates[key], best[key[0]]) for key in order]


def _method_row(
    key: tuple[str, str], rows: Rows, gain: Mapping[str, Any] | None, rate: float | None, best: float | None
) -> MethodRow:
    generator, method = key
    perplexities = [row["perplexity"] for row in rows if row["perplexity"] is not None]
    prompts = sum(row["prompts"] for row in rows)
    leaked = sum(row["leaked"] * row["prompts"] for row in rows) / max(1, prompts)
    return MethodRow(
        method=method_name(method),
        generator=generator,
        frequency=words.UNKNOWN if rate is None else words.percent(rate),
        gain="" if gain is None else words.signed(gain["gain"]),
        gain_range=gain_range(gain),
        width=f"{100 * (rate or 0):.1f}",
        leads=rate is not None and rate == best,
        perplexity=words.UNKNOWN if not perplexities else words.count(round(median(perplexities))),
        leaked=words.percent(leaked),
        prompts=words.count(prompts),
        images=words.count(sum(row["images_used"] for row in rows)),
    )


def gain_range(gain: Mapping[str, Any] | None) -> str:
    """Formats the interval of a row of gains; empty without one."""
    return "" if gain is None or gain["low"] is None else words.signed_range(gain["low"], gain["high"])


def search_sentences(gains: Rows) -> list[str]:
    """Returns a sentence per generator on the gain of the search with the largest λ over the language model's
    prompts."""
    return [_search_sentence(row) for row in largest_searches(gains)]


def largest_searches(gains: Rows) -> list[Mapping[str, Any]]:
    """Returns the gains of the search with the largest λ, one a generator."""
    searches = [row for row in gains if weight_of(row["method"]) is not None]
    most = max((weight_of(row["method"]) or 0.0 for row in searches), default=0.0)
    return [row for row in searches if weight_of(row["method"]) == most]


def _search_sentence(row: Mapping[str, Any]) -> str:
    span = gain_range(row)
    gain_text = f"{words.signed(row['gain'])} ({span or 'no interval'}), {words.plural(row['prompts'], 'prompt')}"
    name = row["generator"]
    if row["verdict"] == NOTHING_FOUND:
        return f"{name}: nothing found; the gain of {gain_text}, may be chance."
    return f"{name}: {gain_text}{'' if span else ', too few for an interval'}."


def _rank(method: str) -> tuple[int, float]:
    return _ORDER.get(method, len(_ORDER)), weight_of(method) or 0.0


def _mean(rows: Rows) -> float | None:
    frequencies = [row["frequency"] for row in rows if row["frequency"] is not None]
    return fmean(frequencies) if frequencies else None


def fresh_rates(modifiers: Rows) -> dict[tuple[str, str, str, str], float]:
    """Returns (attribute, value, generator, prompt) → the frequency on the images of its edits, which had no part in
    choosing the prompt: of six prompts at 70 % each, the best one on eight images each shows 89 % on average."""
    return {(*(row[name] for name in _OF_PROMPT), row["prompt"]): row["frequency_with"] for row in modifiers}


def target_rows(methods: Rows, prompts: Rows, modifiers: Rows) -> list[TargetRow]:
    """Returns, for each value and generator, the search with the largest λ and its best prompt, with a frequency only
    where that is fresh. (Choosing the better of two searches, or the best of prompts, would overstate it.)"""
    fresh_rate_of = fresh_rates(modifiers)
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in methods:
        groups[row["attribute"], row["value"], row["generator"]].append(row)
    result = []
    for (attribute, value, generator), rows in groups.items():
        plain = next((row for row in rows if row["method"] == "llm"), None) or rows[0]
        searched = [row for row in rows if weight_of(row["method"]) is not None and row["frequency"] is not None]
        if not searched:
            continue
        best = max(searched, key=lambda row: weight_of(row["method"]) or 0.0)
        own_prompts = [p for p in prompts if not p["leaked"] and _same(p, best) and p["frequency"] is not None]
        lead = max(own_prompts, key=lambda row: (row["frequency"], row["log_prior"] or 0), default={"prompt": ""})[
            "prompt"
        ]
        rate = fresh_rate_of.get((attribute, value, generator, lead))
        result.append(
            TargetRow(
                attribute=attribute,
                value=value,
                generator=generator,
                plain=words.UNKNOWN if plain["frequency"] is None else words.percent(plain["frequency"]),
                best=words.percent(best["frequency"]),
                interval=words.percent_range(best["frequency_low"], best["frequency_high"]),
                method=method_name(best["method"]),
                prompt=lead if rate is None else f"{lead} ({words.percent(rate)})",
            )
        )
    return result


def _same(prompt: Mapping[str, Any], method: Mapping[str, Any]) -> bool:
    return all(prompt[name] == method[name] for name in ("attribute", "value", "generator", "method"))


def word_rows(associations: Rows) -> list[WordRow]:
    """Returns words that raise a value first, strongest first."""
    order = sorted(associations, key=lambda row: (not row["raises"], -(row["effect"] or 0.0)))
    return [
        WordRow(
            word=row["word"],
            attribute=row["attribute"],
            value=row["value"],
            effect=words.signed(row["effect"]),
            interval=words.signed_range(row["low"], row["high"]),
            q=words.small_probability(row["q_value"]),
            against=row["against"],
            images=words.count(row["images"] if row["images_used"] is None else row["images_used"]),
            looks=_LOOKS.get(row["look"], ""),
            generator=row["generator"],
            raises=row["raises"],
        )
        for row in order
    ]


def modifier_rows(modifiers: Rows, alpha: float) -> list[ModifierRow]:
    order = sorted(modifiers, key=lambda row: -(row["adds"] or 0.0))
    return [
        ModifierRow(
            value=f"{row['attribute']}: {row['value']}",
            generator=row["generator"],
            modifier=row["modifier"],
            prompt=row["prompt"],
            without=words.percent(row["frequency_without"]),
            having=words.percent(row["frequency_with"]),
            adds=words.signed(row["adds"]),
            interval=words.signed_range(row["low"], row["high"]),
            q=words.small_probability(row["q_value"]),
            counts=row["q_value"] <= alpha and row["adds"] > 0,
        )
        for row in order
    ]


def head_rows(heads: Rows) -> list[HeadRow]:
    nan = float("nan")
    return [
        HeadRow(
            generator=row["generator"],
            attribute=row["attribute"],
            step=str(row["step"]),
            accuracy=words.percent(nan if row["accuracy"] is None else row["accuracy"]),
            interval=words.percent_range(row["low"] or 0.0, row["high"] or 0.0),
            chance=words.percent(row["chance"]),
            width=f"{100 * (row['accuracy'] or 0):.1f}",
            verdict=row["verdict"],
            guides=row["guides"],
        )
        for row in heads
    ]
