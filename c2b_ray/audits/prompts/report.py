"""The report of a run of `c2b prompts`: one self-contained page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from c2b_ray.audits.prompts.config import PromptsConfig
from c2b_ray.audits.prompts.curve import Point, curve_svg
from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.audits.prompts.summary import (
    NOTHING_FOUND,
    Rows,
    gain_range,
    largest_searches,
    method_name,
    rank_of,
    search_sentences,
    weight_of,
)
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Answers,
    Bar,
    Cell,
    Columns,
    Figure,
    Frame,
    Page,
    Paragraph,
    Section,
    Segment,
    Strips,
    Table,
    TableRow,
    Terms,
    Verdict,
    coded,
    made,
)
from c2b_ray.report.export import exported
from c2b_ray.report.method import Row, method_of, times
from c2b_ray.report.page import MOST, STYLES, Answer
from c2b_ray.report.pictures import thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Sentence, Span
from c2b_ray.storage.files import write_bytes

MOST_ROWS, MOST_EXAMPLES = 60, 24
_LOOKS = {1: "one look", 2: "two looks"}
_OF_PROMPT = ("attribute", "value", "generator")
_RAISES = Verdict("against", "▲", "")


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


def page(manifest: Mapping[str, Any], config: PromptsConfig, tables: Tables, pictures: Mapping[str, str]) -> Page:
    """Returns the page. `pictures`: a data: URI by an example's id and number; those that are absent are described in
    words."""
    confidence = words.percent(1 - config.alpha)
    is_finished = manifest.get("status") == "finished"
    notes = [Paragraph(coded(clean(str(note))), "doubt") for note in manifest.get("notes") or ()]
    method = method_of(manifest, [*times(manifest), *_settings(config)], {}, "c2b prompts prompts.yaml")
    summary_lines = [_tally(tables), *search_sentences(tables.gains), _spent(tables.methods)]
    return Page(
        title=f"What prompts bring about: {words.listed([clean(name) for name in config.attributes])}",
        suffix="prompts",
        kicker="Prompts that expose a text-to-image model’s hidden bias",
        byline=[words.moment(str(manifest["finished"]))] if manifest.get("finished") else [],
        head=(
            *([] if is_finished else [Paragraph("This run has not come to its end.", "notice")]),
            Answers(answers(tables, config.alpha)),
            *notes,
        ),
        sections=(
            _methods(tables.methods, tables.gains, confidence),
            _values(tables, confidence),
            *_curves(tables.methods),
            *_words(tables.associations, confidence),
            *_parts(tables.modifiers, config.alpha),
            *_pictures(tables, pictures),
            *_heads(tables.heads),
            made(method, "prompts.yaml", *(Paragraph(line, "scale") for line in summary_lines), Terms(TERMS)),
        ),
        styles=(*STYLES, "failures.css", "prompts.css"),
    )


# The answer, and how the run was made.


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
    return words.percent(share).removesuffix(f"{words.THIN}%")


def _tally(tables: Tables) -> str:
    if not search_sentences(tables.gains):
        return f"{words.plural(len(tables.prompts), 'prompt')} judged."
    return (
        "How much more often prompts of the search with the largest λ bring a value about than the language model’s "
        "own, mean over values, on seeds that no search has seen:"
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


def _settings(config: PromptsConfig) -> list[Row]:
    search = config.search
    return [
        ("λ", ", ".join(f"{weight:g}" for weight in search.weights)),
        ("B, beams", str(search.beams)),
        ("E, candidates of a beam", str(search.expansion)),
        ("E′, tokens drawn from", str(search.pool)),
        ("K, seeds of a search", str(search.images)),
        ("Raced", "yes" if search.raced else "no"),
        ("Leakage filter", "yes" if search.filtered else "no"),
        ("Guide", config.guide),
        ("Seed", str(config.seed)),
    ]


TERMS = (
    "**Search.** A beam search over the language model’s next tokens for prompts s with a high log P(s) + λ · log (1/K "
    "Σ P(value | image)): BGPS (ICML 2026), of which notes were at hand. The K seeds are the same for all candidates "
    "of a search.",
    "**Frequency.** The share of a prompt’s images that the judge says show the value, with Wilson’s interval; of a "
    "method the share over its prompts, which are the sampling unit.",
    "**Gain.** Mean over values of the difference in frequency, with Welch’s interval: the prompts that searches gave "
    "for one subject count as one draw, and so does a prompt that stands for several values. Where the interval holds "
    "0, nothing was found.",
    "**Words.** In each context the rest of the prompt and the seeds are the same for every word. A word’s effect is "
    "the mean difference to the same prompt without it, or, for nouns that a prompt is about, to other such nouns; it "
    "must exceed the least effect against both where there are both (Student’s t over contexts, Benjamini & Hochberg "
    "over all words and values that are decided). With two looks, the first is of all words, and the second, of other "
    "contexts and seeds, alone decides of those words and values that the first estimates above the least effect, with "
    "as many contexts as that estimate needs; its q and interval are of these fresh images alone. What the first look "
    "leaves out has q 1: it was not decided, and may still raise a value by little.",
    "**Parts.** Tango’s interval of the paired difference; q over all parts of the run.",
)


# What each method's prompts bring about: the paper's table.


def _methods(methods: Rows, gains: Rows, confidence: str) -> Section:
    text = (
        "Mean over values of how often images of a method’s prompts show the value, as the judge sees them, under "
        "fresh seeds. Prompts that name the value are left out of it, and counted as leaked. Perplexity is the median, "
        "by a language model that wrote none of them. Gain is against the language model’s own prompts, with its "
        f"{confidence} interval over prompts."
    )
    columns = [
        Column("Generator", spec=True), Column("Prompts by"), Column("Frequency", number=True),
        Column("Share", hidden=True),
        *(Column(name, number=True) for name in ("Gain", "Perplexity", "Leaked", "Prompts", "Images of its search")),
    ]  # fmt: skip
    table = Table(columns, method_rows(methods, gains), "Methods", style="facts methods", empty="No prompt was judged.")
    return Section("Methods", [Paragraph(text, "legend"), table], "methods", "Methods")


def method_rows(methods: Rows, gains: Rows) -> list[TableRow]:
    """Returns a row of each method on each generator, over all values; prompts that name the value are left out of its
    frequency."""
    gain_of_method = {(row["generator"], row["method"]): row for row in gains}
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in methods:
        groups[row["generator"], row["method"]].append(row)
    rates = {key: _mean(rows) for key, rows in groups.items()}
    generators = list(dict.fromkeys(generator for generator, _ in groups))
    result: list[TableRow] = []
    for generator in generators:
        of_generator = sorted((method for name, method in groups if name == generator), key=rank_of)
        best = max((rate for method in of_generator if (rate := rates[generator, method]) is not None), default=None)
        for method in of_generator:
            key = generator, method
            cells = _method_cells(key, groups[key], gain_of_method.get(key), rates[key], best)
            result.append(TableRow(cells, "first" if result and method == of_generator[0] else ""))
    return result


def _method_cells(
    key: tuple[str, str], rows: Rows, gain: Mapping[str, Any] | None, rate: float | None, best: float | None
) -> list[str | Cell | Bar]:
    generator, method = key
    leads = rate is not None and rate == best
    perplexities = [row["perplexity"] for row in rows if row["perplexity"] is not None]
    prompts = sum(row["prompts"] for row in rows)
    leaked = sum(row["leaked"] * row["prompts"] for row in rows) / max(1, prompts)
    return [
        generator,
        method_name(method),
        Cell(words.UNKNOWN if rate is None else words.percent(rate), style="leads" if leads else ""),
        _bar(rate, leads),
        Cell("" if gain is None else words.signed(gain["gain"]), [gain_range(gain)]),
        words.count(round(median(perplexities))) if perplexities else words.UNKNOWN,
        words.percent(leaked),
        words.count(prompts),
        words.count(sum(row["images_used"] for row in rows)),
    ]


def _bar(share: float | None, leads: bool) -> Bar:
    return Bar([Segment("against" if leads else "none", f"{100 * (share or 0):.1f}")])


def _mean(rows: Rows) -> float | None:
    frequencies = [row["frequency"] for row in rows if row["frequency"] is not None]
    return fmean(frequencies) if frequencies else None


# The values, and what λ trades.


def _values(tables: Tables, confidence: str) -> Section:
    rows = value_rows(tables.methods, tables.prompts, tables.modifiers)
    if not rows:
        return Section("Values", [Paragraph("No search was made.")], "values", "Values")
    text = (
        "Of each value how often prompts of the search with the largest λ bring it about, with its "
        f"{confidence} interval over prompts like these, beside the language model’s own prompts; and the prompt that "
        "did so most, with how often it does so on fresh images, where its parts were measured on some."
    )
    columns = [
        Column("Attribute"), Column("Value"), Column("Generator", spec=True), Column("Language model", number=True),
        Column("Search", number=True), Column("By"), Column("Best prompt"),
    ]  # fmt: skip
    table = Table(columns, rows, "Values", sortable=True)
    return Section("Values", [Paragraph(text, "legend"), table], "values", "Values")


def value_rows(methods: Rows, prompts: Rows, modifiers: Rows) -> list[list[str | Cell]]:
    """Returns, for each value and generator, the search with the largest λ and its best prompt, with a frequency only
    where that is fresh. (Choosing the better of two searches, or the best of prompts, would overstate it.)"""
    fresh_rate_of = fresh_rates(modifiers)
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in methods:
        groups[row["attribute"], row["value"], row["generator"]].append(row)
    result: list[list[str | Cell]] = []
    for (attribute, value, generator), rows in groups.items():
        plain = next((row["frequency"] for row in rows if row["method"] == "llm"), None)
        searched = [row for row in rows if weight_of(row["method"]) is not None and row["frequency"] is not None]
        if not searched:
            continue
        best = max(searched, key=lambda row: weight_of(row["method"]) or 0.0)
        own_prompts = [p for p in prompts if not p["leaked"] and _same(p, best) and p["frequency"] is not None]
        lead = max(own_prompts, key=lambda row: (row["frequency"], row["log_prior"] or 0), default={"prompt": ""})[
            "prompt"
        ]
        rate = fresh_rate_of.get((attribute, value, generator, lead))
        prompt = lead if rate is None else f"{lead} ({words.percent(rate)})"
        interval = words.percent_range(best["frequency_low"], best["frequency_high"])
        result.append(
            [
                attribute,
                value,
                generator,
                words.UNKNOWN if plain is None else words.percent(plain),
                Cell(words.percent(best["frequency"]), [interval]),
                method_name(best["method"]),
                Cell(prompt or "every one names the value", style="said"),
            ]
        )
    return result


def _same(prompt: Mapping[str, Any], method: Mapping[str, Any]) -> bool:
    return all(prompt[name] == method[name] for name in ("attribute", "value", "generator", "method"))


def fresh_rates(modifiers: Rows) -> dict[tuple[str, str, str, str], float]:
    """Returns (attribute, value, generator, prompt) → the frequency on the images of its edits, which had no part in
    choosing the prompt: of six prompts at 70 % each, the best one on eight images each shows 89 % on average."""
    return {(*(row[name] for name in _OF_PROMPT), row["prompt"]): row["frequency_with"] for row in modifiers}


def _curves(methods: Rows) -> list[Section]:
    figures = list(_figures(methods))
    text = (
        "A larger λ draws prompts towards the value and away from what the language model would say. The line is mean "
        "frequency, on the left; diamonds are perplexity, on the right. λ = 0 is the language model alone."
    )
    title = "What λ trades"
    return [Section(title, [Paragraph(text, "legend"), Columns(figures, "panels")], "curve", title)] if figures else []


def _figures(methods: Rows) -> Iterator[Figure]:
    """Yields a plot of each generator with searches."""
    for generator in dict.fromkeys(row["generator"] for row in methods):
        weights = sorted({w for row in methods if (w := weight_of(row["method"])) is not None})
        points = []
        for label, method in [("λ = 0", "llm"), *((f"λ = {w:g}", f"bgps λ={w:g}") for w in weights)]:
            rows = [row for row in methods if row["generator"] == generator and row["method"] == method]
            frequency = _mean(rows)
            perplexities = [row["perplexity"] for row in rows if row["perplexity"] is not None]
            if frequency is not None:
                points.append(Point(label, frequency, median(perplexities) if perplexities else None))
        if len(points) > 1:
            points_text = "; ".join(f"{point.label}: {words.percent(point.frequency)}" for point in points)
            yield Figure(curve_svg(points, f"Mean frequency by λ on {generator}: {points_text}"), generator, "panel")


# Words, parts of prompts, pictures.


def _words(associations: Rows, confidence: str) -> list[Section]:
    """Returns the table of words, those that raise a value first, the strongest first."""
    if not associations:
        return []
    rows = sorted(associations, key=lambda row: (not row["raises"], -(row["effect"] or 0.0)))
    raising = sum(row["raises"] for row in rows)
    tested = len({row["word"] for row in rows})
    line = f"{words.plural(raising, 'association')} of {words.plural(tested, 'word')} and their values."
    text = (
        f"{line if raising else none_raises(tested)} Each word was put into the same prompts under the same seeds; "
        f"effect is what it adds to the value’s frequency, with its {confidence} interval over prompts, q the false "
        "discovery rate at which it raises the value by more than the least effect."
    )
    columns = [
        Column("Word"), Column("Attribute"), Column("Value"), Column("Effect", number=True), Column("q", number=True),
        Column("Against"), Column("Images", number=True), Column("Generator", spec=True),
    ]  # fmt: skip
    shown = rows[: max(raising, MOST_ROWS)]
    left_out = len(rows) - len(shown)
    more = f"And {left_out} more, none of which raises a value, in the run’s associations.parquet." if left_out else ""
    table = Table(
        columns, [_word_row(row) for row in shown], "Words", "facts words", sortable=True, filtered="words", most=30,
        more=more,
    )  # fmt: skip
    return [Section("Words", [Paragraph(text), table], "words", "Words")]


def _word_row(row: Mapping[str, Any]) -> TableRow:
    images = words.count(row["images"] if row["images_used"] is None else row["images_used"])
    cells = [
        Cell(row["word"], mark=_RAISES if row["raises"] else None),
        row["attribute"],
        row["value"],
        Cell(words.signed(row["effect"]), [words.signed_range(row["low"], row["high"])]),
        Cell((Span(words.small_probability(row["q_value"]), strong=row["raises"]),)),
        row["against"],
        Cell(images, [_LOOKS.get(row["look"], "")]),
        row["generator"],
    ]
    return TableRow(cells, data={"word": row["word"]})


def _parts(modifiers: Rows, alpha: float) -> list[Section]:
    if not modifiers:
        return []
    text = (
        "The best prompts with and without each of their parts, under the same fresh seeds. ▲ marks parts that add to "
        f"the value at a false discovery rate of {words.decimal(alpha)}."
    )
    columns = [
        Column("Part"), Column("Value"), *(Column(name, number=True) for name in ("Without", "With", "Adds", "q")),
        Column("Prompt"), Column("Generator", spec=True),
    ]  # fmt: skip
    rows = [_part_row(row, alpha) for row in sorted(modifiers, key=lambda row: -(row["adds"] or 0.0))]
    left_out = len(rows) - MOST_ROWS
    more = f"And {left_out} more, in the run’s modifiers.parquet." if left_out > 0 else ""
    title = "Parts of prompts"
    table = Table(columns, rows[:MOST_ROWS], title, "facts parts", sortable=True, more=more)
    return [Section(title, [Paragraph(text, "legend"), table], "parts", title)]


def _part_row(row: Mapping[str, Any], alpha: float) -> list[str | Cell]:
    adds = row["q_value"] <= alpha and row["adds"] > 0
    return [
        Cell(row["modifier"], mark=_RAISES if adds else None),
        f"{row['attribute']}: {row['value']}",
        words.percent(row["frequency_without"]),
        words.percent(row["frequency_with"]),
        Cell(words.signed(row["adds"]), [words.signed_range(row["low"], row["high"])]),
        words.small_probability(row["q_value"]),
        Cell(row["prompt"], style="said"),
        row["generator"],
    ]


def _pictures(tables: Tables, pictures: Mapping[str, str]) -> list[Section]:
    """Returns the pictures of each example, by value and generator as the methods have them."""
    examples = sorted(tables.examples, key=_place(tables))
    strips = [
        [
            Frame(pictures.get(f"{row['example_id']} {number}", ""), f"an image of: {row['prompt']}", ())
            for number in range(len(row["pictures"]))
        ]
        for row in examples
    ]
    text = (
        "The best prompt of each value on each generator, then the plainest prompt about its subject, under the same "
        "four seeds."
    )
    block = Strips(strips, _captions(tables, examples), "shown-prompts")
    return [Section("Pictures", [Paragraph(text, "legend"), block], "pictures", "Pictures")] if examples else []


def _captions(tables: Tables, examples: Rows) -> list[Sentence]:
    """Returns the prompt of each example, its value and generator, and its frequency where that is fresh."""
    measured = {(row["generator"], row["prompt"], row["attribute"], row["value"]): row for row in tables.prompts}
    fresh_rate_of = fresh_rates(tables.modifiers)
    result: list[Sentence] = []
    for row in examples:
        prompt_row = measured.get((row["generator"], row["prompt"], row["attribute"], row["value"]))
        rate = fresh_rate_of.get((row["attribute"], row["value"], row["generator"], row["prompt"]))
        if rate is None and prompt_row is not None and weight_of(prompt_row["method"]) is None:
            rate = prompt_row["frequency"]  # a search's own prompt was chosen by it
        frequency = "" if rate is None else f": {words.percent(rate)}"
        about = f"{row['attribute']}: {row['value']}, on {row['generator']}{frequency}"
        result.append((Span(row["prompt"], style="said"), Span(about, style="by")))
    return result


def _place(tables: Tables) -> Callable[[Mapping[str, Any]], tuple[int, int]]:
    """Where an example stands: by value and generator as the methods have them; the plain prompt is the shorter one."""
    groups = list(dict.fromkeys((row["attribute"], row["value"], row["generator"]) for row in tables.methods))
    number_of_group = {group: number for number, group in enumerate(groups)}
    return lambda row: (
        number_of_group.get((row["attribute"], row["value"], row["generator"]), len(number_of_group)),
        -len(row["prompt"]),
    )


# The heads on the generator's activations.


def _heads(heads: Rows) -> list[Section]:
    text = (
        "How right linear heads on the generator’s activations are on held-out prompts, every value counting alike, at "
        "each denoising step. A head at chance is refused as a guide; the earliest that is not clearly behind the best "
        "one guides."
    )
    columns = [
        Column("Generator", spec=True), Column("Attribute"), Column("Step", number=True),
        Column("Accuracy", number=True), Column("Share", hidden=True), Column("Chance", number=True), Column("Verdict"),
    ]  # fmt: skip
    table = Table(columns, [_head_cells(row) for row in heads], "Heads", sortable=True)
    return [Section("Heads", [Paragraph(text, "legend"), table], "heads", "Heads")] if heads else []


def _head_cells(row: Mapping[str, Any]) -> list[str | Cell | Bar]:
    is_known = row["accuracy"] is not None
    return [
        row["generator"],
        row["attribute"],
        str(row["step"]),
        Cell(words.percent(row["accuracy"]), [words.percent_range(row["low"], row["high"])])
        if is_known
        else words.UNKNOWN,
        _bar(row["accuracy"], row["guides"]),
        words.percent(row["chance"]),
        Cell((Span("guides" if row["guides"] else row["verdict"], strong=row["guides"]),)),
    ]


def write_report(run: PromptsRun) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    names = ("prompts", "methods", "gains", "associations", "modifiers", "heads")
    rows = {name: exported(run.read(name)).to_pylist() for name in names}
    examples = run.read("examples").sort_by([("attribute", "ascending"), ("value", "ascending")])
    example_rows = exported(examples.slice(0, MOST_EXAMPLES)).to_pylist()
    images = {
        f"{row['example_id']} {number}": data
        for row in example_rows
        for number, data in enumerate(row["pictures"])
        if data is not None
    }
    tables = Tables(**rows, examples=example_rows)
    write_bytes(run.report, page(run.manifest, run.config, tables, thumbnails(images)).html().encode())
    return run.report
