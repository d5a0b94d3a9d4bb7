"""The report of a run of `c2b prompts`: its page, one self-contained file, and its terminal summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import pyarrow as pa

from c2b_ray.audits.prompts.curve import Point, curve_svg
from c2b_ray.report import words
from c2b_ray.report.export import exported
from c2b_ray.report.method import Method, Row, mapping, method_of, number, times
from c2b_ray.report.page import MOST, STYLES, Answer, render
from c2b_ray.report.pictures import thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Span, Summary
from c2b_ray.storage.files import write_bytes
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
MOST_ROWS = 60
_LOOKS = {1: "one look", 2: "two looks"}
_OF_PROMPT = ("attribute", "value", "generator")


@dataclass(frozen=True)
class MethodText:
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
class WordText:
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
class HeadText:
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


def method_rows(methods: Rows, gains: Rows) -> list[MethodText]:
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
) -> MethodText:
    generator, method = key
    perplexities = [row["perplexity"] for row in rows if row["perplexity"] is not None]
    prompts = sum(row["prompts"] for row in rows)
    leaked = sum(row["leaked"] * row["prompts"] for row in rows) / max(1, prompts)
    return MethodText(
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


def word_rows(associations: Rows) -> list[WordText]:
    """Returns words that raise a value first, strongest first."""
    order = sorted(associations, key=lambda row: (not row["raises"], -(row["effect"] or 0.0)))
    return [
        WordText(
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


def head_rows(heads: Rows) -> list[HeadText]:
    nan = float("nan")
    return [
        HeadText(
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
