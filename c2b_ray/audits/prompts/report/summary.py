"""The terminal summary of a run of `c2b prompts`: the result of each method, and the words that raise a value."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.audits.prompts.report.rows import search_sentences
from c2b_ray.report import words
from c2b_ray.report.export import exported
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Summary
from c2b_ray.storage.run import Run
from c2b_ray.tables.prompts import AssociationRow, HeadRow, MethodRow

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
