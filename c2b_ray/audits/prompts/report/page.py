"""The report of a run of `c2b prompts`: tables → view model → HTML, one self-contained file.

rows   the paper's table, words and parts of prompts, as text        curve   what λ trades
view   the page as a tree of text
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import fmean, median
from typing import Any

from c2b_ray.audits.prompts.report.rows import (
    MOST_ROWS,
    NOTHING_FOUND,
    HeadText,
    MethodText,
    ModifierRow,
    Rows,
    TargetRow,
    WordText,
    fresh_rates,
    gain_range,
    head_rows,
    largest_searches,
    method_rows,
    modifier_rows,
    search_sentences,
    target_rows,
    weight_of,
    word_rows,
)
from c2b_ray.report import words
from c2b_ray.report.export import exported
from c2b_ray.report.method import Method, Row, mapping, method_of, number, times
from c2b_ray.report.page import MOST, STYLES, Answer, render
from c2b_ray.report.pictures import thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Span
from c2b_ray.storage.files import write_bytes
from c2b_ray.storage.run import Run

# The trade-off of λ: mean frequency against perplexity, as an SVG text in the page's style.


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 220, 46, 60, 14, 34


@dataclass(frozen=True)
class Point:
    """`frequency` in [0, 1]; `perplexity` above 0, or None."""

    label: str
    frequency: float
    perplexity: float | None


def curve_svg(points: Sequence[Point], description: str) -> str:
    """An <svg> element: frequency as a line on the left scale, perplexity as diamonds on the right, logarithmic one."""
    step = (WIDTH - LEFT - RIGHT) / max(1, len(points) - 1)
    xs = [LEFT + step * i for i in range(len(points))]
    body = [_text(x, HEIGHT - 12, "middle", point.label) for x, point in zip(xs, points, strict=True)]
    for share in (0.0, 0.5, 1.0):
        y = _y(share)
        body.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(_text(LEFT - 8, y + 4, "end", f"{100 * share:.0f} %"))
    line = " ".join(f"{x:.1f},{_y(point.frequency):.1f}" for x, point in zip(xs, points, strict=True))
    body.append(f'<polyline class="frequency" points="{line}"/>')
    body += [
        f'<circle class="frequency" cx="{x:.1f}" cy="{_y(point.frequency):.1f}" r="4"/>'
        for x, point in zip(xs, points, strict=True)
    ]
    body += _perplexities(xs, points)
    return (
        f'<svg class="curve" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{escape(description, quote=True)}">'
        f"{''.join(body)}</svg>"
    )


def _perplexities(xs: Sequence[float], points: Sequence[Point]) -> list[str]:
    logarithms = [(x, math.log10(p.perplexity)) for x, p in zip(xs, points, strict=True) if p.perplexity]
    if not logarithms:
        return []
    low = math.floor(min(value for _, value in logarithms))
    high = max(low + 1, math.ceil(max(value for _, value in logarithms)))
    body = [
        _text(WIDTH - RIGHT + 10, _y((power - low) / (high - low)) + 4, "start", f"{10**power:g}")
        for power in range(low, high + 1)
    ]
    for x, value in logarithms:
        y = _y((value - low) / (high - low))
        body.append(f'<path class="perplexity" d="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"/>')
    return body


def _y(share: float) -> float:
    return TOP + (1 - share) * (HEIGHT - TOP - BOTTOM)


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


# The report of `c2b prompts` as a tree of frozen dataclasses that hold nothing but text: all counting ends here.


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
    answers: tuple[Answer, ...]
    tally: str
    gains: tuple[str, ...]
    unfinished: str
    methods: tuple[MethodText, ...]
    targets: tuple[TargetRow, ...]
    curves: tuple[Curve, ...]
    words: tuple[WordText, ...]
    words_line: str
    words_more: int
    modifiers: tuple[ModifierRow, ...]
    modifiers_more: int
    heads: tuple[HeadText, ...]
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
        answers=answers(tables, alpha),
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


def answers(tables: Tables, alpha: float) -> tuple[Answer, ...]:
    """Returns the words that raise a value most, and what the search gained; where neither is established, that."""
    raising = sorted((row for row in tables.associations if row["raises"]), key=lambda row: -(row["effect"] or 0))
    result = [_word_answer(row, alpha) for row in raising[: MOST - 1]]
    gains = [_gain_answer(row, alpha) for row in largest_searches(tables.gains) if row["verdict"] != NOTHING_FOUND]
    result += [gain for gain in gains if gain is not None][: MOST - len(result)]
    if result:
        return tuple(result)
    tested = len({row["word"] for row in tables.associations})
    gain_sentences = search_sentences(tables.gains)
    line = (
        none_raises(tested)
        if tested
        else "The search found no prompts that bring a value about more often than the language model’s own."
        if gain_sentences
        else f"{words.plural(len(tables.prompts), 'prompt')} judged; nothing was compared."
    )
    return (Answer("undetermined", "◇", (Span(line),), tuple(gain_sentences)),)


def none_raises(tested: int) -> str:
    """Says that no word is established to raise a value; that none does was not tested."""
    return f"Of {words.plural(tested, 'word')} none is established to raise a value by more than the least effect."


def _word_answer(row: Mapping[str, Any], alpha: float) -> Answer:
    interval = words.signed_range(row["low"], row["high"])
    return Answer(
        "against",
        "▲",
        (
            Span(f"“{clean(row['word'])}”", strong=True),
            Span(" makes "),
            Span(f"{clean(row['attribute'])} {clean(row['value'])}", strong=True),
            Span(f" more frequent by {_points(row['effect'])} of 100 images."),
        ),
        (
            f"{words.percent(1 - alpha)} interval {interval}, q {words.small_probability(row['q_value'])}; on "
            f"{clean(row['generator'])}.",
        ),
        "words",
    )


def _gain_answer(row: Mapping[str, Any], alpha: float) -> Answer | None:
    """Returns what the search gained; None where it gained nothing, or without an interval, which too few prompts
    give."""
    if row["low"] is None or row["gain"] <= 0:
        return None
    return Answer(
        "against",
        "▲",
        (
            Span(f"Prompts of the search on {clean(row['generator'])} bring a value about in "),
            Span(f"{_points(row['gain'])} of 100 images more", strong=True),
            Span(" than the language model’s own."),
        ),
        (
            f"Mean over values, on seeds that no search has seen; {words.percent(1 - alpha)} interval "
            f"{gain_range(row)}, {words.plural(row['prompts'], 'prompt')}.",
        ),
        "values",
    )


def _points(share: float) -> str:
    return f"{100 * share:.0f}"


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


def _words_line(listed: Sequence[WordText], raising: int) -> str:
    if not listed:
        return ""
    tested = len({row.word for row in listed})
    if not raising:
        return none_raises(tested)
    return f"{words.plural(raising, 'association')} of {words.plural(tested, 'word')} and their values."


def _curves(methods: Rows) -> Iterator[Curve]:
    for generator in dict.fromkeys(row["generator"] for row in methods):
        weights = sorted({w for row in methods if (w := weight_of(row["method"])) is not None})
        points = []
        for label, method in [("λ = 0", "llm"), *((f"λ = {w:g}", f"bgps λ={w:g}") for w in weights)]:
            rows = [row for row in methods if row["generator"] == generator and row["method"] == method]
            frequencies = [row["frequency"] for row in rows if row["frequency"] is not None]
            perplexities = [row["perplexity"] for row in rows if row["perplexity"] is not None]
            if frequencies:
                points.append(Point(label, fmean(frequencies), median(perplexities) if perplexities else None))
        if len(points) > 1:
            points_text = "; ".join(f"{point.label}: {words.percent(point.frequency)}" for point in points)
            yield Curve(generator, curve_svg(points, f"Mean frequency by λ on {generator}: {points_text}"))


def _examples(tables: Tables, pictures: Mapping[tuple[str, int], str]) -> Iterator[Example]:
    measured = {(row["generator"], row["prompt"], row["attribute"], row["value"]): row for row in tables.prompts}
    fresh_rate_of = fresh_rates(tables.modifiers)
    for row in sorted(tables.examples, key=_place(tables)):
        prompt_row = measured.get((row["generator"], row["prompt"], row["attribute"], row["value"]))
        rate = fresh_rate_of.get((row["attribute"], row["value"], row["generator"], row["prompt"]))
        if (
            rate is None and prompt_row is not None and weight_of(prompt_row["method"]) is None
        ):  # else it was chosen by its rate
            rate = prompt_row["frequency"]
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
    number_of_group = {group: number for number, group in enumerate(groups)}
    return lambda row: (
        number_of_group.get((row["attribute"], row["value"], row["generator"]), len(number_of_group)),
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


MOST_EXAMPLES = 24


def write_report(run: Run) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    names = ("prompts", "methods", "gains", "associations", "modifiers", "heads")
    rows = {name: exported(run.read(name)).to_pylist() for name in names}
    examples = run.read("examples").sort_by([("attribute", "ascending"), ("value", "ascending")])
    example_rows = examples.slice(0, MOST_EXAMPLES).to_pylist()
    images = {
        f"{row['example_id']} {number}": data
        for row in example_rows
        for number, data in enumerate(row["pictures"])
        if data is not None
    }
    encoded = thumbnails(images)
    pictures = {(key.split(" ")[0], int(key.split(" ")[1])): uri for key, uri in encoded.items()}
    view = build_view(run.manifest, Tables(**rows, examples=example_rows), pictures)
    write_bytes(run.report, render("prompts.html.j2", view, (*STYLES, "failures.css", "prompts.css")).encode())
    return run.report
