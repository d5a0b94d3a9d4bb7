"""The report of `c2b prompts` as a tree of frozen dataclasses that hold nothing but text: all counting ends here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from c2b_ray.report.kit import words
from c2b_ray.report.kit.method import Method, Row, mapping, method_of, number, times
from c2b_ray.report.kit.redact import clean
from c2b_ray.report.prompts.curve import Point, curve_svg
from c2b_ray.report.prompts.rows import (
    MOST_ROWS,
    HeadRow,
    MethodRow,
    ModifierRow,
    Rows,
    TargetRow,
    WordRow,
    fresh_rates,
    head_rows,
    method_rows,
    modifier_rows,
    search_sentences,
    target_rows,
    weight_of,
    word_rows,
)


@dataclass(frozen=True)
class Tables:
    """Rows of the run's tables."""

    prompts: Rows
    methods: Rows
    gains: Rows
    associations: Rows
    modifiers: Rows
    heads: Rows
    examples: Rows


@dataclass(frozen=True)
class Example:
    """`pictures`: data: URIs; "" for one that is not there."""

    title: str
    prompt: str
    frequency: str
    pictures: tuple[str, ...]


@dataclass(frozen=True)
class Curve:
    generator: str
    plot: str


@dataclass(frozen=True)
class View:
    title: str
    date: str
    tally: str
    gains: tuple[str, ...]
    unfinished: str
    methods: tuple[MethodRow, ...]
    targets: tuple[TargetRow, ...]
    curves: tuple[Curve, ...]
    words: tuple[WordRow, ...]
    words_line: str
    words_more: int
    modifiers: tuple[ModifierRow, ...]
    modifiers_more: int
    heads: tuple[HeadRow, ...]
    examples: tuple[Example, ...]
    spent: str
    notes: tuple[str, ...]
    confidence: str
    alpha: str
    method: Method


def build_view(manifest: Mapping[str, Any], tables: Tables, pictures: Mapping[tuple[str, int], str]) -> View:
    """`pictures`: a data: URI by an example's id and number; those that are absent are described in words."""
    config = mapping(manifest.get("config"))
    alpha = number(config.get("alpha"), 0.05)
    listed = word_rows(tables.associations)
    raising = sum(row.raises for row in listed)
    modifiers = modifier_rows(tables.modifiers, alpha)
    return View(
        title=_title(config),
        date=words.moment(str(manifest["finished"])) if manifest.get("finished") else "",
        tally=_tally(tables),
        gains=tuple(search_sentences(tables.gains)),
        unfinished="" if manifest.get("status") == "finished" else "This run has not come to its end.",
        methods=tuple(method_rows(tables.methods, tables.gains)),
        targets=tuple(target_rows(tables.methods, tables.prompts, tables.modifiers)),
        curves=tuple(_curves(tables.methods)),
        words=tuple(listed[: max(raising, MOST_ROWS)]),
        words_line=_words_line(listed, raising),
        words_more=max(0, len(listed) - max(raising, MOST_ROWS)),
        modifiers=tuple(modifiers[:MOST_ROWS]),
        modifiers_more=max(0, len(modifiers) - MOST_ROWS),
        heads=tuple(head_rows(tables.heads)),
        examples=tuple(_examples(tables, pictures)),
        spent=_spent(tables.methods),
        notes=tuple(clean(str(note)) for note in manifest.get("notes") or ()),
        confidence=words.percent(1 - alpha),
        alpha=words.decimal(alpha),
        method=method_of(manifest, [*times(manifest), *_settings(config)], {}, "c2b prompts prompts.yaml"),
    )


def _title(config: Mapping[str, Any]) -> str:
    attributes = list(mapping(config.get("attributes")))
    return f"What prompts bring about: {words.listed(attributes)}" if attributes else "What prompts bring about"


def _tally(tables: Tables) -> str:
    if not search_sentences(tables.gains):
        return f"{words.plural(len(tables.prompts), 'prompt')} judged."
    return (
        "How much more often prompts of the search with the largest λ bring a value about than the language model’s "
        "own, mean over values, on seeds that no search has seen:"
    )


def _words_line(listed: Sequence[WordRow], raising: int) -> str:
    if not listed:
        return ""
    tested = len({row.word for row in listed})
    if not raising:
        return f"None of {words.plural(tested, 'word')} raises any value by more than the least effect."
    return f"{words.plural(raising, 'association')} of {words.plural(tested, 'word')} and their values."


def _curves(methods: Rows) -> Iterator[Curve]:
    for generator in dict.fromkeys(row["generator"] for row in methods):
        weights = sorted({w for row in methods if (w := weight_of(row["method"])) is not None})
        points = []
        for label, chosen in [("λ = 0", "llm"), *((f"λ = {w:g}", f"bgps λ={w:g}") for w in weights)]:
            rows = [row for row in methods if row["generator"] == generator and row["method"] == chosen]
            known = [row["frequency"] for row in rows if row["frequency"] is not None]
            perplexities = [row["perplexity"] for row in rows if row["perplexity"] is not None]
            if known:
                points.append(Point(label, fmean(known), median(perplexities) if perplexities else None))
        if len(points) > 1:
            points_text = "; ".join(f"{point.label}: {words.percent(point.frequency)}" for point in points)
            yield Curve(generator, curve_svg(points, f"Mean frequency by λ on {generator}: {points_text}"))


def _examples(tables: Tables, pictures: Mapping[tuple[str, int], str]) -> Iterator[Example]:
    known = {(row["generator"], row["prompt"], row["attribute"], row["value"]): row for row in tables.prompts}
    fresh = fresh_rates(tables.modifiers)
    for row in sorted(tables.examples, key=_place(tables)):
        judged = known.get((row["generator"], row["prompt"], row["attribute"], row["value"]))
        rate = fresh.get((row["attribute"], row["value"], row["generator"], row["prompt"]))
        if (
            rate is None and judged is not None and weight_of(judged["method"]) is None
        ):  # else it was chosen by its rate
            rate = judged["frequency"]
        count = len(row["pictures"])
        yield Example(
            title=f"{row['attribute']}: {row['value']}, on {row['generator']}",
            prompt=row["prompt"],
            frequency="" if rate is None else words.percent(rate),
            pictures=tuple(pictures.get((row["example_id"], number_of), "") for number_of in range(count)),
        )


def _place(tables: Tables) -> Callable[[Mapping[str, Any]], tuple[int, int]]:
    """Where an example stands: by value and generator as the methods have them; the plain prompt is the shorter one."""
    groups = list(dict.fromkeys((row["attribute"], row["value"], row["generator"]) for row in tables.methods))
    places = {group: number for number, group in enumerate(groups)}
    return lambda row: (
        places.get((row["attribute"], row["value"], row["generator"]), len(places)),
        -len(row["prompt"]),
    )


def _spent(methods: Rows) -> str:
    images = sum(row["images_used"] for row in methods)
    candidates, rejected = (sum(row[name] for row in methods) for name in ("candidates", "rejected"))
    if not candidates:
        return "No search was made."
    return (
        f"The searches looked at {words.plural(candidates, 'candidate')}, left out {words.count(rejected)} that named "
        f"a value ({words.percent(rejected / candidates)}), and used {words.plural(images, 'image')}."
    )


def _settings(config: Mapping[str, Any]) -> Iterator[Row]:
    search = mapping(config.get("search"))
    names = {
        "weights": "λ", "beams": "B, beams", "expansion": "E, candidates of a beam", "pool": "E′, tokens drawn from",
        "images": "K, seeds of a search", "raced": "Raced", "filtered": "Leakage filter",
    }  # fmt: skip
    for key, name in names.items():
        value = search.get(key)
        if value is not None:
            yield name, ", ".join(f"{w:g}" for w in value) if isinstance(value, list) else _plain(value)
    yield "Guide", str(config.get("guide", ""))
    yield "Seed", str(config.get("seed", ""))


def _plain(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
