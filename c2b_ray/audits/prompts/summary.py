"""The results of a run of `c2b prompts` in sentences, and its terminal summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from c2b_ray.report import words
from c2b_ray.report.export import exported
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Summary
from c2b_ray.storage.run import Run
from c2b_ray.tables.prompts import AssociationRow, HeadRow, MethodRow

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


def method_name(method: str) -> str:
    return NAMES.get(method, method.replace("bgps", "Bias-guided search,"))


def weight_of(method: str) -> float | None:
    """Returns λ of a search's method; None for other methods."""
    return float(method.rpartition("=")[2]) if method.startswith("bgps") else None


def rank_of(method: str) -> tuple[int, float]:
    """Returns where a method stands among the others."""
    return _ORDER.get(method, len(_ORDER)), weight_of(method) or 0.0


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
    name, prompts = row["generator"], words.plural(row["prompts"], "prompt")
    value = words.signed(row["gain"])
    gain_text = f"{value} ({span}), {prompts}" if span else f"{value}, from {prompts}, too few for an interval"
    if row["verdict"] == NOTHING_FOUND:
        return f"{name}: nothing found; the gain of {gain_text}, may be chance."
    return f"{name}: the search’s gain over the language model’s own prompts is {gain_text}."


# The terminal summary of a run of `c2b prompts`: the result of each method, and the words that raise a value.


MOST_WORDS = 15
COLUMNS = (
    *(Column(name) for name in ("attribute", "value", "generator", "method")),
    *(Column(name, number=True) for name in ("frequency", "interval", "perplexity", "leaked", "prompts")),
)
HEAD_COLUMNS = (
    Column("generator"),
    Column("attribute"),
    *(Column(name, number=True) for name in ("step", "accuracy", "interval", "chance", "images")),
    Column("verdict"),
)


def summary(run: Run) -> Summary:
    methods = exported(run.read("methods")).to_pylist()
    raising = [row for row in exported(run.read("associations")).to_pylist() if row["raises"]]
    raising.sort(key=lambda row: -(row["effect"] or 0))
    gains = exported(run.read("gains")).to_pylist()
    lines = [_word_line(row) for row in raising[:MOST_WORDS]]
    if run.has("associations") and not raising:
        lines = ["No word is established to raise a value by more than the least effect."]
    sentences = [*search_sentences(gains), *lines]
    return Summary(
        title="Mean frequency by method",
        columns=COLUMNS,
        rows=[_row(row) for row in methods],
        marks=[""] * len(methods),
        lines=[*sentences, *(clean(str(note)) for note in run.manifest.get("notes") or ())],
        report=run.report,
        headline=sentences[0].rstrip(".")
        if sentences
        else f"{words.plural(len(methods), 'frequency', 'frequencies')} measured",
        to_json={
            "run": run.path,
            "report": run.report,
            "methods": methods,
            "gains": gains,
            "associations": raising,
            "words": run.manifest.get("words"),
        },
    )


def _row(row: MethodRow) -> tuple[str, ...]:
    frequency = row["frequency"]
    return (
        row["attribute"],
        row["value"],
        row["generator"],
        row["method"],
        "" if frequency is None else words.rate(frequency),
        "" if frequency is None else words.rate_range(row["frequency_low"], row["frequency_high"]),
        "" if row["perplexity"] is None else f"{row['perplexity']:.0f}",
        words.percent(row["leaked"]),
        words.count(row["prompts"]),
    )


def _word_line(row: AssociationRow) -> str:
    span = words.signed_range(row["low"], row["high"])
    q = words.small_probability(row["q_value"])
    return f"“{row['word']}” raises {row['attribute']} {row['value']} by {words.signed(row['effect'])} ({span}, q {q})"


def heads_summary(table: pa.Table) -> Summary:
    """Summarises a table of `tables.prompts.HEADS`."""
    rows = exported(table).to_pylist()
    return Summary(
        title="Heads on held-out prompts, by denoising step",
        columns=HEAD_COLUMNS,
        rows=[_head_row(row) for row in rows],
        marks=["good" if row["guides"] else "" for row in rows],
        lines=["A head at chance is refused as a guide."],
        to_json={"heads": rows},
    )


def _head_row(row: HeadRow) -> tuple[str, ...]:
    accuracy = row["accuracy"]
    return (
        row["generator"],
        row["attribute"],
        str(row["step"]),
        "" if accuracy is None else words.rate(accuracy),
        "" if accuracy is None else words.rate_range(row["low"], row["high"]),
        words.rate(row["chance"]),
        words.count(row["images"]),
        "guides" if row["guides"] else row["verdict"],
    )
