"""The report of a run of `c2b clip-bias`: tables → view model → HTML, one self-contained file.

facts   the tables, typed                    maps, transferring, spaces   the paper's figures
plots   numbers as SVG                       view                         the page as a tree of text
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from c2b_ray.audits.clip_bias import wording
from c2b_ray.audits.clip_bias.facts import ALL, Bias, Example, Facts, read_facts
from c2b_ray.audits.clip_bias.figures import (
    Spaces,
    TransferRow,
    distribution,
    quadrants,
    rows,
    selection,
    spaces,
    strongest,
)
from c2b_ray.audits.clip_bias.plots import Figure, LocalRow, local_rows, maps
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.audits.clip_bias.wording import method
from c2b_ray.report import words
from c2b_ray.report.method import Method, mapping
from c2b_ray.report.page import MOST, STYLES, Answer, render
from c2b_ray.report.pictures import thumbnails
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Sentence, Span
from c2b_ray.storage.files import write_bytes

# The report of `c2b clip-bias` as a tree of frozen dataclasses that hold nothing but text: all counting ends here.


MOST_FINDINGS, MOST_BIASES, MOST_PAIRS = 40, 300, 40


@dataclass(frozen=True)
class Finding:
    """A bias beyond chance. `only_local`: it exists in its group but not over all images."""

    model: str
    sentence: str
    beneath: str
    only_local: bool


@dataclass(frozen=True)
class BiasRow:
    model: str
    dataset: str
    metric: str
    attribute: str
    group: str
    value: str
    interval: str
    expected: str
    q: str
    images: str
    note: str
    holds: bool


@dataclass(frozen=True)
class PairRow:
    a: str
    b: str
    metric: str
    attribute: str
    dataset: str
    difference: str
    interval: str
    q: str


@dataclass(frozen=True)
class Shown:
    source: str
    alt: str
    caption: str


@dataclass(frozen=True)
class Group:
    title: str
    images: str
    shown: tuple[Shown, ...]


@dataclass(frozen=True)
class View:
    title: str
    date: str
    answers: tuple[Answer, ...]
    unfinished: str
    tally: str
    scale: str
    alpha: str
    interval_name: str
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    findings_more: int
    biases: tuple[BiasRow, ...]
    biases_more: int
    groups: tuple[Group, ...]
    groups_line: str
    maps: tuple[Figure, ...]
    locality: tuple[LocalRow, ...]
    transfer_line: str
    strongest: tuple[Figure, ...]
    distribution: Figure | None
    transfer: tuple[TransferRow, ...]
    selection: tuple[Figure, ...]
    quadrants: tuple[Figure, ...]
    pairs_line: str
    pairs: tuple[PairRow, ...]
    spaces: Spaces | None
    method: Method


def build_view(facts: Facts, thumbnails: Mapping[str, str]) -> View:
    """Builds the view. `thumbnails`: a data: URI by dataset and key of an example."""
    status = str(facts.manifest.get("status", "finished"))
    all_findings = findings(facts)
    ordered = sorted(facts.biases, key=lambda bias: (not bias.known, bias.q_value if bias.known else 1.0))
    return View(
        title=f"Bias of {words.plural(len(facts.names), 'CLIP model')}",
        date=words.moment(str(facts.manifest.get("finished") or facts.manifest.get("created") or "")),
        answers=answers(facts),
        unfinished="" if status == "finished" else f"This run is not finished (status: {clean(status)}).",
        tally=_tally(facts),
        scale=_scale(facts),
        alpha=words.decimal(facts.alpha),
        interval_name=words.percent(1 - facts.alpha),
        notes=tuple(clean(str(note)) for note in facts.manifest.get("notes") or ()),
        findings=tuple(all_findings[:MOST_FINDINGS]),
        findings_more=max(len(all_findings) - MOST_FINDINGS, 0),
        biases=tuple(_bias_row(bias, facts) for bias in ordered[:MOST_BIASES]),
        biases_more=max(len(ordered) - MOST_BIASES, 0),
        groups=_groups(facts, thumbnails),
        groups_line=_groups_line(facts),
        maps=maps(facts),
        locality=local_rows(facts),
        transfer_line=_transfer_line(facts),
        strongest=strongest(facts),
        distribution=distribution(facts),
        transfer=rows(facts),
        selection=selection(facts),
        quadrants=quadrants(facts),
        pairs_line=_pairs_line(facts),
        pairs=_pairs(facts),
        spaces=spaces(facts),
        method=method(facts.manifest),
    )


FEWEST = 10
"""Images of a value whose rate a headline may name: a rate of one image says nothing."""


def answers(facts: Facts) -> tuple[Answer, ...]:
    """Returns who is favoured, and by how much: of each attribute the strongest bias beyond chance, over all images
    where there is one, the surest first; without any that none is established."""
    established = [bias for bias in facts.biases if bias.q_value <= facts.alpha]
    established.sort(key=lambda bias: (bias.group != ALL, bias.q_value, bias.expected - bias.value))
    strongest_of: dict[tuple[str, str], Bias] = {}
    for bias in established:
        strongest_of.setdefault((bias.attribute, bias.metric), bias)
    if strongest_of:
        return tuple(_answer(bias, facts) for bias in list(strongest_of.values())[:MOST])
    measured = sum(bias.known for bias in facts.biases)
    if not measured:
        return (Answer("undetermined", "◇", (Span("No bias could be measured."),), (), "numbers"),)
    line = f"None of {words.plural(measured, 'bias', 'biases')} is beyond what chance alone gives."
    return (Answer("undetermined", "◇", (Span(line),), ("That does not show that there is none.",), "numbers"),)


def _answer(bias: Bias, facts: Facts) -> Answer:
    model, where = facts.names.get(bias.model, bias.model), clean(bias.dataset)
    where += "" if bias.group == ALL else f", {wording.group(bias.group)}"
    evidence = (
        f"{wording.metric(bias.metric)} {wording.amount(bias.value)}, {words.percent(1 - facts.alpha)} interval "
        f"{wording.amounts(bias.value_low, bias.value_high)}; chance alone gives {wording.amount(bias.expected)} (q "
        f"{words.small_probability(bias.q_value)}), {words.plural(bias.n, 'image')} of {where}."
    )
    return Answer("against", "▼", _favoured(bias, model, facts), (evidence,), "numbers")


def _favoured(bias: Bias, model: str, facts: Facts) -> Sentence:
    """Returns the bias in words: on which values it is most and least often right, or how over-represented one is."""
    score = bias.metric.removeprefix("kl_")
    measure = (bias.model, bias.dataset, score, bias.attribute, bias.group)
    rates = [
        rate
        for rate in facts.rates
        if (rate.model, rate.dataset, rate.metric, rate.attribute, rate.group) == measure
        and math.isfinite(rate.rate)
        and rate.n >= FEWEST
    ]
    attribute = clean(bias.attribute)
    if len(rates) > 1 and all(0 <= rate.rate <= 1 for rate in rates):
        best, worst = (choose(rates, key=lambda rate: rate.rate) for choose in (max, min))
        return (
            Span(f"{model} favours "),
            Span(f"{attribute}: {clean(best.attribute_value)}", strong=True),
            Span(
                f": it is right on {words.percent(best.rate)} of {words.plural(best.n, 'such image')} "
                f"({wording.score(score)}), against "
            ),
            Span(
                f"{words.percent(worst.rate)} of {words.count(worst.n)} of {clean(worst.attribute_value)}", strong=True
            ),
            Span("."),
        )
    if bias.metric.startswith("max_skew@"):  # a logarithm of a ratio of shares
        times = f"{math.exp(bias.value):.2f} times as frequent"
        usual = f" as among all, on average; chance alone gives {math.exp(bias.expected):.2f} times."
        if bias.favoured is not None and bias.texts and (bias.favoured_texts or 0) > bias.texts / 2:
            return (
                Span(f"{model} favours "),
                Span(f"{attribute}: {clean(bias.favoured)}", strong=True),
                Span(
                    f", the most over-represented value for {words.count(bias.favoured_texts or 0)} of "
                    f"{words.plural(bias.texts, 'neutral text')}. Among the images that it ranks first for a text, the "
                    "most over-represented value is "
                ),
                Span(times, strong=True),
                Span(usual),
            )
        apart = " for some neutral texts, and another for others" if bias.texts else " over the others"
        return (
            Span(f"{model} favours one value of "),
            Span(attribute, strong=True),
            Span(f"{apart}: among the images that it ranks first it is "),
            Span(times, strong=True),
            Span(usual),
        )
    return (
        Span(f"{model}: {wording.metric(bias.metric)} of "),
        Span(attribute, strong=True),
        Span(f" is {wording.amount(bias.value)}, where chance alone gives {wording.amount(bias.expected)}."),
    )


def findings(facts: Facts) -> list[Finding]:
    """Returns biases with q at most alpha, purely local ones first, then the largest beyond chance."""
    over_all_images = {(bias.model, bias.of): bias for bias in facts.biases if bias.group == ALL}
    established = [bias for bias in facts.biases if bias.q_value <= facts.alpha]
    sentences = [(bias, _finding(bias, over_all_images.get((bias.model, bias.of)), facts)) for bias in established]
    sentences.sort(key=lambda pair: (not pair[1].only_local, pair[0].q_value, -pair[0].value))
    return [finding for _, finding in sentences]


def _finding(bias: Bias, over_all_images: Bias | None, facts: Facts) -> Finding:
    local = bias.group != ALL
    hidden = local and over_all_images is not None and not over_all_images.q_value <= facts.alpha
    sentence = (
        f"{wording.metric(bias.metric)} of {clean(bias.attribute)} is {wording.amount(bias.value)} on "
        f"{wording.group(bias.group)} of {clean(bias.dataset)} ({wording.amounts(bias.value_low, bias.value_high)}; "
        f"chance alone gives {wording.amount(bias.expected)})."
    )
    detail = ""
    if hidden and over_all_images is not None:
        limits = wording.amounts(over_all_images.value_low, over_all_images.value_high)
        detail = f"Over all images it is {wording.amount(over_all_images.value)} ({limits}), which chance explains."
    elif bias.note:
        detail = f"{clean(bias.note[0].upper() + bias.note[1:])}."
    return Finding(facts.names.get(bias.model, bias.model), sentence, detail, hidden)


def _tally(facts: Facts) -> str:
    measured = [bias for bias in facts.biases if bias.known]
    established = sum(bias.q_value <= facts.alpha for bias in measured)
    correlations = [correlation for correlation in facts.transfer if math.isfinite(correlation.rho)]
    moved = sum(correlation.q_value <= facts.alpha for correlation in correlations)
    biases = f"{words.count(established)} of {words.plural(len(measured), 'bias', 'biases')} beyond chance"
    if not correlations:
        return biases
    return f"{biases}, {words.count(moved)} of {words.plural(len(correlations), 'correlation')} established"


def _scale(facts: Facts) -> str:
    datasets = dict.fromkeys(bias.dataset for bias in facts.biases)
    unknown = [bias for bias in facts.biases if not bias.known]
    line = f"{words.plural(len(facts.names), 'model')}, {words.listed([clean(name) for name in datasets])}."
    if unknown:
        reasons = Counter(bias.note or "" for bias in unknown)
        line += (
            f" {words.plural(len(unknown), 'bias is', 'biases are')} not known: {clean(reasons.most_common(1)[0][0])}."
        )
    return line


def _bias_row(bias: Bias, facts: Facts) -> BiasRow:
    return BiasRow(
        model=facts.names.get(bias.model, bias.model),
        dataset=clean(bias.dataset),
        metric=wording.metric(bias.metric),
        attribute=clean(bias.attribute),
        group=wording.group(bias.group),
        value=wording.amount(bias.value),
        interval=wording.amounts(bias.value_low, bias.value_high),
        expected=wording.amount(bias.expected),
        q=words.small_probability(bias.q_value),
        images=words.count(bias.n),
        note=clean(bias.note or ""),
        holds=bias.q_value <= facts.alpha,
    )


def _groups(facts: Facts, thumbnails: Mapping[str, str]) -> tuple[Group, ...]:
    by_group: dict[tuple[str, str], list[Example]] = {}
    for example in facts.examples:
        by_group.setdefault((example.dataset, example.group), []).append(example)
    sizes = facts.manifest.get("groups") or {}
    result = []
    for (dataset, group), of_group in by_group.items():
        pictures = [
            Shown(source, clean(image.key), words.shortened(clean(image.caption or ""), 80))
            for image in of_group
            if (source := thumbnails.get(f"{dataset} {image.key}"))
        ]
        size = sizes.get(dataset, {}).get(group, 0)
        title = f"{clean(dataset)}, {wording.group(group)}"
        result.append(Group(title, words.plural(int(size), "image"), tuple(pictures)))
    return tuple(result)


def _groups_line(facts: Facts) -> str:
    column = mapping(mapping(facts.manifest.get("config")).get("groups")).get("column")
    if column:
        return f"Images of one value of the column {clean(str(column))}. What is shown is drawn at random from each."
    return (
        "Images that lie in one cluster of every model: each model’s embeddings are clustered by k-means, and the "
        "combinations of clusters, one of each model, that share most images are the groups. What is shown is drawn at "
        "random from each."
    )


def _transfer_line(facts: Facts) -> str:
    correlations = [correlation for correlation in facts.transfer if math.isfinite(correlation.rho)]
    if not facts.transfer:
        return "No results of models built on the CLIPs were named, so nothing is said of transfer."
    if not correlations:
        return "No correlation is known: it takes three models that have both biases, and biases that differ."
    established = sum(correlation.q_value <= facts.alpha for correlation in correlations)
    if not established:  # the largest of many correlations may be chance
        return (
            f"None of {words.plural(len(correlations), 'correlation')} is established at q ≤ "
            f"{words.decimal(facts.alpha)}: whether bias before goes with bias after is open."
        )
    best = min(correlations, key=lambda correlation: (correlation.p_value, -abs(correlation.rho)))
    return (
        f"{words.count(established)} of "
        f"{words.plural(len(correlations), 'correlation')} established at q ≤ {words.decimal(facts.alpha)}. The "
        f"strongest: ρ = {words.signed(best.rho)} ({words.signed_range(best.rho_low, best.rho_high)}), p "
        f"{words.small_probability(best.p_value)}, over {words.plural(best.n_models, 'model')}."
    )


def _pairs_line(facts: Facts) -> str:
    if not facts.pairs:
        return ""
    pairs_apart = sum(pair.verdict == "apart" for pair in facts.pairs)
    return (
        f"{words.count(pairs_apart)} of {words.plural(len(facts.pairs), 'comparison')} of two models tell them apart "
        f"at q ≤ {words.decimal(facts.alpha)}: the bias of one is larger by more than {words.decimal(facts.margin)} of "
        "MaxSkew, or as much of KL, whatever chance does. In the others the order of the two may be chance, or matters "
        "little."
    )


def _pairs(facts: Facts) -> tuple[PairRow, ...]:
    pairs_apart = sorted((pair for pair in facts.pairs if pair.verdict == "apart"), key=lambda pair: pair.q_value)
    return tuple(
        PairRow(
            a=facts.names.get(pair.model_a, pair.model_a),
            b=facts.names.get(pair.model_b, pair.model_b),
            metric=wording.metric(pair.metric),
            attribute=clean(pair.attribute),
            dataset=clean(pair.dataset),
            difference=wording.amount(pair.difference),
            interval=wording.amounts(pair.difference_low, pair.difference_high),
            q=words.small_probability(pair.q_value),
        )
        for pair in pairs_apart[:MOST_PAIRS]
    )


def write_report(run: ClipBiasRun) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    facts = read_facts(run)
    pictures = {
        f"{example.dataset} {example.key}": example.bytes for example in facts.examples if example.bytes is not None
    }
    view = build_view(facts, thumbnails(pictures))
    write_bytes(run.report, render("clip_bias.html.j2", view, (*STYLES, "clip_bias.css")).encode())
    return run.report
