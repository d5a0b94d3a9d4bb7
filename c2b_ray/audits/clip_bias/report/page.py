"""The report of a run of `c2b clip-bias`: tables → view model → HTML, one self-contained file.

facts   the tables, typed                    maps, transferring, spaces   the paper's figures
plots   numbers as SVG                       view                         the page as a tree of text
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from c2b_ray.audits.clip_bias.report import method as wording
from c2b_ray.audits.clip_bias.report.facts import ALL, Bias, Example, Facts, read_facts
from c2b_ray.audits.clip_bias.report.method import method
from c2b_ray.audits.clip_bias.report.plots import Figure, LocalRow, local_rows, maps
from c2b_ray.audits.clip_bias.report.transferring import (
    Spaces,
    TransferRow,
    distribution,
    quadrants,
    rows,
    selection,
    spaces,
    strongest,
)
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.report import words
from c2b_ray.report.answer import MOST, Answer
from c2b_ray.report.method import Method, mapping
from c2b_ray.report.page import STYLES, render
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
    ordered = sorted(facts.biases, key=lambda one: (not one.known, one.q_value if one.known else 1.0))
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
        biases=tuple(_bias_row(one, facts) for one in ordered[:MOST_BIASES]),
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
    held = [one for one in facts.biases if one.q_value <= facts.alpha]
    held.sort(key=lambda one: (one.group != ALL, one.q_value, one.expected - one.value))
    strongest_of: dict[tuple[str, str], Bias] = {}
    for one in held:
        strongest_of.setdefault((one.attribute, one.metric), one)
    if strongest_of:
        return tuple(_answer(one, facts) for one in list(strongest_of.values())[:MOST])
    known = sum(one.known for one in facts.biases)
    if not known:
        return (Answer("undetermined", "◇", (Span("No bias could be measured."),), (), "numbers"),)
    line = f"None of {words.plural(known, 'bias', 'biases')} is beyond what chance alone gives."
    return (Answer("undetermined", "◇", (Span(line),), ("That does not show that there is none.",), "numbers"),)


def _answer(one: Bias, facts: Facts) -> Answer:
    model, where = facts.names.get(one.model, one.model), clean(one.dataset)
    where += "" if one.group == ALL else f", {wording.group(one.group)}"
    evidence = (
        f"{wording.metric(one.metric)} {wording.amount(one.value)}, {words.percent(1 - facts.alpha)} interval "
        f"{wording.amounts(one.value_low, one.value_high)}; chance alone gives {wording.amount(one.expected)} (q "
        f"{words.small_probability(one.q_value)}), {words.plural(one.n, 'image')} of {where}."
    )
    return Answer("against", "▼", _favoured(one, model, facts), (evidence,), "numbers")


def _favoured(one: Bias, model: str, facts: Facts) -> Sentence:
    """Returns the bias in words: on which values it is most and least often right, or how over-represented one is."""
    score = one.metric.removeprefix("kl_")
    of = (one.model, one.dataset, score, one.attribute, one.group)
    rates = [
        rate
        for rate in facts.rates
        if (rate.model, rate.dataset, rate.metric, rate.attribute, rate.group) == of
        and math.isfinite(rate.rate)
        and rate.n >= FEWEST
    ]
    attribute = clean(one.attribute)
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
    if one.metric.startswith("max_skew@"):  # a logarithm of a ratio of shares
        times = f"{math.exp(one.value):.2f} times as frequent"
        usual = f" as among all, on average; chance alone gives {math.exp(one.expected):.2f} times."
        if one.favoured is not None and one.texts and (one.favoured_texts or 0) > one.texts / 2:
            return (
                Span(f"{model} favours "),
                Span(f"{attribute}: {clean(one.favoured)}", strong=True),
                Span(
                    f", the most over-represented value for {words.count(one.favoured_texts or 0)} of "
                    f"{words.plural(one.texts, 'neutral text')}. Among the images that it ranks first for a text, the "
                    "most over-represented value is "
                ),
                Span(times, strong=True),
                Span(usual),
            )
        apart = " for some neutral texts, and another for others" if one.texts else " over the others"
        return (
            Span(f"{model} favours one value of "),
            Span(attribute, strong=True),
            Span(f"{apart}: among the images that it ranks first it is "),
            Span(times, strong=True),
            Span(usual),
        )
    return (
        Span(f"{model}: {wording.metric(one.metric)} of "),
        Span(attribute, strong=True),
        Span(f" is {wording.amount(one.value)}, where chance alone gives {wording.amount(one.expected)}."),
    )


def findings(facts: Facts) -> list[Finding]:
    """Returns biases with q at most alpha, purely local ones first, then the largest beyond chance."""
    whole = {(one.model, one.of): one for one in facts.biases if one.group == ALL}
    held = [one for one in facts.biases if one.q_value <= facts.alpha]
    sentences = [(one, _finding(one, whole.get((one.model, one.of)), facts)) for one in held]
    sentences.sort(key=lambda pair: (not pair[1].only_local, pair[0].q_value, -pair[0].value))
    return [finding for _, finding in sentences]


def _finding(one: Bias, whole: Bias | None, facts: Facts) -> Finding:
    local = one.group != ALL
    hidden = local and whole is not None and not whole.q_value <= facts.alpha
    sentence = (
        f"{wording.metric(one.metric)} of {clean(one.attribute)} is {wording.amount(one.value)} on "
        f"{wording.group(one.group)} of {clean(one.dataset)} ({wording.amounts(one.value_low, one.value_high)}; chance "
        f"alone gives {wording.amount(one.expected)})."
    )
    beneath = ""
    if hidden and whole is not None:
        limits = wording.amounts(whole.value_low, whole.value_high)
        beneath = f"Over all images it is {wording.amount(whole.value)} ({limits}), which chance explains."
    elif one.note:
        beneath = f"{clean(one.note[0].upper() + one.note[1:])}."
    return Finding(facts.names.get(one.model, one.model), sentence, beneath, hidden)


def _tally(facts: Facts) -> str:
    known = [one for one in facts.biases if one.known]
    held = sum(one.q_value <= facts.alpha for one in known)
    correlations = [one for one in facts.transfer if math.isfinite(one.rho)]
    moved = sum(one.q_value <= facts.alpha for one in correlations)
    biases = f"{words.count(held)} of {words.plural(len(known), 'bias', 'biases')} beyond chance"
    if not correlations:
        return biases
    return f"{biases}, {words.count(moved)} of {words.plural(len(correlations), 'correlation')} established"


def _scale(facts: Facts) -> str:
    datasets = dict.fromkeys(one.dataset for one in facts.biases)
    unknown = [one for one in facts.biases if not one.known]
    line = f"{words.plural(len(facts.names), 'model')}, {words.listed([clean(name) for name in datasets])}."
    if unknown:
        reasons = Counter(one.note or "" for one in unknown)
        line += (
            f" {words.plural(len(unknown), 'bias is', 'biases are')} not known: {clean(reasons.most_common(1)[0][0])}."
        )
    return line


def _bias_row(one: Bias, facts: Facts) -> BiasRow:
    return BiasRow(
        model=facts.names.get(one.model, one.model),
        dataset=clean(one.dataset),
        metric=wording.metric(one.metric),
        attribute=clean(one.attribute),
        group=wording.group(one.group),
        value=wording.amount(one.value),
        interval=wording.amounts(one.value_low, one.value_high),
        expected=wording.amount(one.expected),
        q=words.small_probability(one.q_value),
        images=words.count(one.n),
        note=clean(one.note or ""),
        holds=one.q_value <= facts.alpha,
    )


def _groups(facts: Facts, thumbnails: Mapping[str, str]) -> tuple[Group, ...]:
    of: dict[tuple[str, str], list[Example]] = {}
    for example in facts.examples:
        of.setdefault((example.dataset, example.group), []).append(example)
    sizes = facts.manifest.get("groups") or {}
    result = []
    for (dataset, group), some in of.items():
        shown = [
            Shown(source, clean(one.key), words.shortened(clean(one.caption or ""), 80))
            for one in some
            if (source := thumbnails.get(f"{dataset} {one.key}"))
        ]
        size = sizes.get(dataset, {}).get(group, 0)
        title = f"{clean(dataset)}, {wording.group(group)}"
        result.append(Group(title, words.plural(int(size), "image"), tuple(shown)))
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
    known = [one for one in facts.transfer if math.isfinite(one.rho)]
    if not facts.transfer:
        return "No results of models built on the CLIPs were named, so nothing is said of transfer."
    if not known:
        return "No correlation is known: it takes three models that have both biases, and biases that differ."
    held = sum(one.q_value <= facts.alpha for one in known)
    if not held:  # the largest of many that may be chance is no result
        return (
            f"None of {words.plural(len(known), 'correlation')} is established at q ≤ {words.decimal(facts.alpha)}: "
            "whether bias before goes with bias after is open."
        )
    best = min(known, key=lambda one: (one.p_value, -abs(one.rho)))
    return (
        f"{words.count(held)} of "
        f"{words.plural(len(known), 'correlation')} established at q ≤ {words.decimal(facts.alpha)}. The strongest: ρ "
        f"= {words.signed(best.rho)} ({words.signed_range(best.rho_low, best.rho_high)}), p "
        f"{words.small_probability(best.p_value)}, over {words.plural(best.n_models, 'model')}."
    )


def _pairs_line(facts: Facts) -> str:
    if not facts.pairs:
        return ""
    apart = sum(pair.verdict == "apart" for pair in facts.pairs)
    return (
        f"{words.count(apart)} of {words.plural(len(facts.pairs), 'comparison')} of two models tell them apart at q "
        f"≤ {words.decimal(facts.alpha)}: the bias of one is larger by more than {words.decimal(facts.margin)} of "
        "MaxSkew, or as much of KL, whatever chance does. In the others the order of the two may be chance, or matters "
        "little."
    )


def _pairs(facts: Facts) -> tuple[PairRow, ...]:
    apart = sorted((pair for pair in facts.pairs if pair.verdict == "apart"), key=lambda pair: pair.q_value)
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
        for pair in apart[:MOST_PAIRS]
    )


def write_report(run: ClipBiasRun) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    facts = read_facts(run)
    pictures = {f"{one.dataset} {one.key}": one.bytes for one in facts.examples if one.bytes is not None}
    view = build_view(facts, thumbnails(pictures))
    write_bytes(run.report, render("clip_bias.html.j2", view, (*STYLES, "clip_bias.css")).encode())
    return run.report
