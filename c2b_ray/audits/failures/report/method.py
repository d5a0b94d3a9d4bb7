"""How a run of `c2b failures` was made, what it would have found, and what was spent on it.

Reads the manifest, any part of which may be absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from c2b_ray.audits.failures.config import SMALLEST_RATIO, FailuresConfig
from c2b_ray.audits.failures.discovery.race import COMMON_RATE
from c2b_ray.audits.failures.report.captions import has_transfers
from c2b_ray.audits.failures.report.facts import Facts
from c2b_ray.audits.failures.report.rows import CONFIRMATION, DISCOVERY
from c2b_ray.report import words
from c2b_ray.report.blocks import Bar, Paragraph, Section, Segment, Table, Text, marked
from c2b_ray.report.method import Method, Row, mapping, method_of, times
from c2b_ray.report.redact import clean, clean_setting
from c2b_ray.report.words import Column, Sentence

RULES = {
    "top1": "the likeliest of all the classifier’s labels is another one",
    "top1_parent": "the likeliest of all the classifier’s labels is another one, of another parent in the hierarchy",
    "top3": "the label is none of the classifier’s three likeliest",
    "top3_parent": "none of the classifier’s three likeliest labels is the label or has its parent in the hierarchy",
}
_COUNTS = {
    "candidates": "Captions",
    "rounds": "Rounds of draws",
    "hypotheses": "Hypotheses",
    "draws": "Draws",
    "unusable": "Draws that could not be used",
}
COMMAND = "c2b failures failures.yaml --out RUN"
MOST_REACHES = 200


def method(facts: Facts) -> Method:
    return method_of(facts.manifest, tuple(_settings(facts)), _COUNTS, COMMAND)


def rule_line(config: FailuresConfig) -> str:
    """Returns a sentence that tells when an answer is a failure."""
    least, most = config.confidence, config.true_below
    condition = f" and has a probability of at least {words.decimal(least)}" if least else ""
    true_label_condition = f", and the true label one of at most {words.decimal(most)}" if most and most < 1 else ""
    return f"An answer is a failure when {RULES[config.rule]}{condition}{true_label_condition} (rule: {config.rule})."


def _settings(facts: Facts) -> Iterator[Row]:
    config = facts.config
    yield "Rule", config.rule
    if facts.cluster:
        yield "Independent samples", clean(facts.cluster)
    if config.hierarchy is not None:
        yield "Hierarchy", clean_setting(config.hierarchy)
    yield "Prompt", clean(config.prompt)
    yield "Budget, in images", words.count(config.budget.draws)
    yield "α, false discovery rate", words.decimal(config.alpha)
    yield "Seed", words.count(config.seed)
    if facts.manifest.get("run_id"):
        yield "Run", clean(facts.manifest["run_id"])
    yield from times(facts.manifest)


def terms(facts: Facts) -> list[Text]:
    """Returns what the page's words mean, and how its numbers came about."""
    alpha, interval = words.decimal(round(1 - facts.confidence, 10)), words.percent(facts.confidence)
    return [
        f"**Failure.** {rule_line(facts.config)} A tie for the likeliest label, or for the third place, is a failure, "
        "and has no single label that it is taken for; an image without an answer is not counted.",
        *(_OF_LABELLED if facts.labelled else _OF_GENERATED),
        *(
            _of_clusters(facts, alpha, interval)
            if facts.cluster
            else _of_independent(ratio_of(facts.config), alpha, interval)
        ),
        *([_ON_OTHER_IMAGES] if has_transfers(facts) else []),
        "**One finding a sentence.** Confirmed captions of one label and target that say the same in more words are "
        "told with the shortest, unless the longer one fails more than twice as often.",
    ]


_OF_LABELLED = [
    "**Baseline.** The label’s other images: a caption names values of the table’s columns, and its images are "
    "compared with those of the same label that do not have them (Wiles et al. 2022, Eq.\u00a01 for any failure, "
    "Eq.\u00a02 towards one label). Which half an image is in follows from its row and the seed. The images are taken "
    "for a random sample of those that the table stands for."
]
_OF_GENERATED = [
    "**Baseline.** Images of the label’s plain prompt. A caption adds sentences to it, and is compared with images of "
    "the plain prompt that were drawn for the comparison (Wiles et al. 2022, Eq.\u00a01 for any failure, Eq.\u00a02 "
    "towards one label).",
    "**Discovery and confirmation.** Captions are made from failures of discovery. Then other images are drawn, from "
    "seeds that discovery never uses: first as many as it takes to decide, then a number fixed before any of them is "
    "drawn. The verdict is from the first part alone, the rates and intervals from the second alone, so neither is "
    "biased by the other.",
]
_ON_OTHER_IMAGES = (
    "**On other images.** Each run draws the same number of images of the caption and of its baseline; the rates of "
    "the two groups of runs are compared by the Mann–Whitney test, exact, ties included. The paper prints the normal "
    "approximation, 6.34·10⁻⁵ where the exact value is 1.08·10⁻⁵."
)


def _of_clusters(facts: Facts, alpha: str, interval: str) -> list[Sentence]:
    """Returns how verdicts and rates come about where images of one cluster may fail together."""
    texts = [
        "**Clusters.** Images of one {cluster} may fail together, so the {cluster}, not the image, is the independent "
        "sample. All images of one choose captions, or test them, or measure their rates: what one {cluster} does to "
        "its images cannot choose a caption and confirm it. Where all images on one side of a comparison are of one, "
        "the caption cannot be told from it, and is in doubt.",
        f"**Verdict.** *Failure* where q is at most α\u00a0=\u00a0{alpha}: of the findings, no more than that share is "
        "expected to be false. p is that of the difference between the two rates, one-sided, by the variance between "
        "clusters with Bell and McCaffrey’s correction for few of them (2002) and Student’s t, and no smaller than "
        "with independent images; q is Benjamini and Hochberg’s over all hypotheses of the run. There is no e-value: "
        "how much clusters differ is estimated. *Not shown* where the upper limit of the ratio, at one in twenty, "
        f"excludes failures {ratio_of(facts.config)} as frequent as at the baseline. *Undetermined* otherwise: more "
        "clusters would tell, more images of the same ones little.",
        f"**Rate and interval.** Failures over images, k/n; the {interval} limits are those of as many independent "
        "images as would vary as much. Their variance is averaged with what the correlation within clusters says over "
        "all images of the label (Smyth 2004). The limits of a ratio of two rates follow from those of both (Donner "
        "and Zou 2012, MOVER-R). A baseline’s rate stands without limits.",
    ]
    name = clean(facts.cluster)  # a column's name, in which no mark is read
    return [tuple(replace(span, text=span.text.replace("{cluster}", name)) for span in marked(text)) for text in texts]


def _of_independent(ratio: str, alpha: str, interval: str) -> list[str]:
    return [
        f"**Verdict.** *Failure* where q is at most α\u00a0=\u00a0{alpha}: of the findings, no more than that share is "
        "expected to be false. e is the evidence against “no more often than at the baseline”: of each batch, given "
        "how many of its images failed in all, how many of them were the caption’s (Fisher 1935; as bets, Hao et al. "
        "2024). Its product over batches is valid however often one looks and however draws are moved between "
        "captions; p is 1/e, and q is what e-BH makes of e over all hypotheses of the run (Wang & Ramdas 2022). *Not "
        f"shown* where bets of the same kind, at one in twenty, speak against failures {ratio} as frequent as at the "
        "baseline: such captions get no more images. *Undetermined* where the images or the budget ended first.",
        f"**Rate and interval.** Failures over images, k/n; the {interval} limits are Clopper and Pearson’s with half "
        "the probability of what was observed (mid-P). The limits of a ratio of two rates follow from those of both "
        "(Donner and Zou 2012, MOVER-R). Had drawing stopped at the k-th failure, as in the paper, k/n would be too "
        "high on average: (k\u00a0−\u00a01)/(n\u00a0−\u00a01) would not.",
    ]


# The likely findings of a budget of draws in words, shown before a run and on its page.


def reach_sentence(least_rates: Sequence[Mapping[str, Any]]) -> str:
    """Returns one sentence from rows with `share` and `rate`; empty where there is none, or where one is not a
    number."""
    rows = [(row.get("share"), row.get("rate")) for row in least_rates]
    numeric = [(share, rate) for share, rate in rows if isinstance(share, float) and share > 0]
    reached = [(share, rate) for share, rate in numeric if isinstance(rate, float)]
    if not reached:
        return "this budget is not likely to find any failure: give it more draws" if numeric else ""
    (first, least), *further = reached
    further_text = "".join(f"; {words.rate(rate)} where 1 in {round(1 / share)} does" for share, rate in further)
    return (
        f"with this budget a failure is found 4 times in 5, at best, if it happens on at least {words.rate(least)} of "
        f"the images that show what it needs, where 1 in {round(1 / first)} images of the label shows "
        f"that{further_text}. Rarer failures want draws in proportion"
    )


def ratio_sentence(ratio: float, draws: int | None) -> str:
    """Returns a sentence about the smallest ratio of rates that is searched for. `draws`: those that are expected to
    confirm a caption of this ratio where the bare prompt fails at `COMMON_RATE`; None for labelled images."""
    baseline = "the label’s other images" if draws is None else "the bare prompt"
    sentence = (
        f"captions that fail at least {multiple(ratio)} as often as {baseline} are searched for, and others given up"
    )
    if draws is None:
        return sentence
    return (
        f"{sentence}; where the bare prompt fails on 1 in {round(1 / COMMON_RATE)} images, it takes on average at most "
        f"about {words.count(int(float(f'{draws:.1e}')))} images to confirm one that fails exactly {multiple(ratio)} "
        "as often"
    )


def search_line(search: Mapping[str, Any]) -> str:
    """Returns sentences on how causes were searched for among labelled images; empty where the run does not say it."""
    tried = search.get("tried")
    if not isinstance(tried, list):
        return ""
    sizes = ("value", "pair of values", "set of three values")
    plurals = ("values", "pairs of values", "sets of three values")
    sets_by_size = zip(tried, sizes, plurals, strict=False)
    sets = words.listed([words.plural(int(number), singular, plural) for number, singular, plural in sets_by_size])
    tested = words.plural(int(search.get("tested", 0)), "hypothesis was", "hypotheses were")
    line = (
        f"Causes of up to {search.get('most_columns')} values were searched for in the table’s "
        f"{words.plural(int(search.get('columns', 0)), 'column')}: {sets} that at least two failures show, for each "
        f"classifier, label and wrong answer; {tested} tested. Causes of more values, and those that no column says, "
        "were not tried"
    )
    if not_extended := int(search.get("not_extended", 0)):
        line += (
            f", nor was a third value added to {words.plural(not_extended, 'pair')}, those that go with failures least"
        )
    return f"{line}."


def reach(facts: Facts) -> list[Table]:
    """Returns the table of what the run would have found: of causes among labelled images, or of captions."""
    search = mapping(facts.manifest.get("search"))
    captions_tried = mapping(facts.manifest.get("caption_search"))
    columns = _cause_columns(search) or _caption_columns(captions_tried)
    rows = _cause_rows(search) or _caption_rows(captions_tried)
    if not rows:
        return []
    caption = (
        "What this run would have found: the least failure rate of a cause, and how many times the label’s own rate "
        "that is, by the share of the label’s images that show it and the probability with which it is found at best: "
        "another cause with the same images may be taken for it"
        if facts.labelled
        else "What this run tried, and what it would have found: captions, pairs of sentences said of a failure that "
        "are in no caption that was drawn, and the least failure rate of a caption that would have been found if it "
        "had been drawn, with how many times the label’s own rate that is. It is a best case: other captions take "
        "draws too"
    )
    has_several = len(facts.names) > 1
    heads = [
        Column("Label"),
        *([Column("Classifier", spec=True)] if has_several else []),
        *(Column(name, number=True) for name in ("Images", "Fails", *columns)),
    ]
    lines = [
        (
            clean(row["label"]),
            *([facts.names.get(row["classifier"], clean(row["classifier"]))] if has_several else []),
            words.count(row["images"]),
            words.rate(row["usual"]),
            *cells,
        )
        for row, cells in rows[:MOST_REACHES]
    ]
    more = words.further(len(rows), MOST_REACHES, "in the run’s manifest")
    return [Table(heads, lines, caption=caption, sortable=True, more=more)]


def _cause_columns(search: Mapping[str, Any]) -> list[str]:
    """Returns what the least rates of `_cause_rows` are about: the share of images, and the probability."""
    rows, powers = _reach_labels(search), search.get("powers") or []
    shares = [entry["share"] for entry in rows[0]["least"]] if rows else []
    return [f"1 in {round(1 / share)} shows it, {words.percent(power)}" for share in shares for power in powers]


def _cause_rows(search: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Returns, of each label and classifier, the least failure rate of a cause that the run would have found."""
    return [
        (row, [_least(rate, row["usual"]) for entry in row["least"] for rate in entry["rates"]])
        for row in _reach_labels(search)
    ]


def reach_summary(search: Mapping[str, Any]) -> str:
    """Returns one sentence for a terminal: the least rate that would have been found, of the label with the median."""
    rows = _reach_labels(search)
    if not rows:
        return ""
    first = [row["least"][0]["rates"][0] for row in rows]
    order = sorted(range(len(rows)), key=lambda i: float("inf") if first[i] is None else first[i])
    row = rows[order[len(order) // 2]]
    scope = (
        "" if len(rows) == 1 else f" (the median of {words.count(len(rows))} labels and classifiers: {row['label']})"
    )
    if all(entry["rates"][0] is None for entry in row["least"]):
        return f"With this many images no cause would have been found 4 times in 5, however often it fails{scope}."
    parts = [
        f"{_least(entry['rates'][0], row['usual'])} where 1 in {round(1 / entry['share'])} images shows it"
        for entry in row["least"]
    ]
    return (
        f"A cause would have been found 4 times in 5, at best, if it fails on at least: {'; '.join(parts)}; otherwise "
        f"the label fails at {words.rate(row['usual'])}{scope}. The report has every label."
    )


def caption_line(search: Mapping[str, Any]) -> str:
    """Returns sentences on which captions were tried on generated images; empty where the run does not say it."""
    rows = _reach_labels(search)
    if not rows:
        return ""
    of_label = {row["label"]: row for row in rows}.values()  # all classifiers answer for the same captions
    proposed, screened = (sum(sum(row[name]) for row in of_label) for name in ("proposed", "screened"))
    sizes = ("one sentence", "two", "three or more")
    by_size = [sum(row["screened"][i] for row in of_label) for i in range(len(sizes))]
    sizes_drawn = words.listed([f"{words.count(n)} of {size}" for n, size in zip(by_size, sizes, strict=True)])
    line = (
        f"{words.plural(proposed, 'caption was', 'captions were')} proposed, {words.count(screened)} of them drawn "
        f"({sizes_drawn}), and {words.plural(int(search.get('tested', 0)), 'hypothesis', 'hypotheses')} tested. "
    )
    pairs, missed = (sum(row[name] for row in rows) for name in ("pairs", "pairs_not_tried"))
    if pairs:
        line += (
            f"Of {words.plural(pairs, 'pair of sentences', 'pairs of sentences')} that the captioner said of a "
            f"failure, {words.count(missed)} were in no caption that was drawn. "
        )
    return line + "Sentences that no description of a failure holds were not tried."


def caption_summary(search: Mapping[str, Any]) -> str:
    """Returns one sentence for a terminal: the least rate of a caption that would have been found, of the label with
    the median ratio to its own rate."""
    rows = _reach_labels(search)
    if not rows:
        return ""
    rows = sorted(rows, key=lambda row: float("inf") if row["least"] is None else row["least"] / row["usual"])
    row = rows[len(rows) // 2]
    scope = "" if len(rows) == 1 else f", the median of {words.count(len(rows))} labels and classifiers"
    where = f"where the label fails at {words.rate(row['usual'])} ({row['label']}{scope}). The report has every label."
    if row["least"] is None:
        return f"With this many draws no caption would have been found 4 times in 5, however often it fails, {where}"
    return (
        "A caption that was drawn would have been found 4 times in 5, at best, if it fails on at least "
        f"{_least(row['least'], row['usual'])}, {where}"
    )


def _caption_columns(search: Mapping[str, Any]) -> list[str]:
    """Returns what the columns of `_caption_rows` are about."""
    if not _reach_labels(search):
        return []
    return ["proposed", "drawn", "tested", "pairs not drawn", f"least rate, {words.percent(search['power'])}"]


def _caption_rows(search: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Returns, of each label and classifier, what was tried, and the least failure rate of a caption that the run would
    have found if it had drawn it."""
    return [
        (
            row,
            [
                *(words.count(sum(row[stage])) for stage in ("proposed", "screened", "tested")),
                f"{words.count(row['pairs_not_tried'])} of {words.count(row['pairs'])}",
                _least(row["least"], row["usual"]),
            ],
        )
        for row in _reach_labels(search)
    ]


def _least(rate: float | None, usual: float) -> str:
    return "at no rate" if rate is None else f"{words.rate(rate)} ({words.times(rate / usual)} times)"


def _reach_labels(search: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = search.get("labels")
    return [mapping(row) for row in rows] if isinstance(rows, list) else []


def ratio_of(config: FailuresConfig) -> str:
    """Returns the smallest ratio that a run searched for, such as "twice"."""
    return multiple(config.smallest_ratio)


def multiple(ratio: float) -> str:
    return "twice" if ratio == SMALLEST_RATIO else f"{ratio:g} times"


# The draws of a run by purpose, beside their expected numbers.


_PARTS = {
    (DISCOVERY, "search"): "to choose captions",
    (DISCOVERY, "sample"): "to know what images that are no failures look like",
    (CONFIRMATION, "test"): "to decide about them",
    (CONFIRMATION, "measure"): "to measure their rates",
}

_DROPPED = {
    "names_class": "sentences that name another label, which would ask for images of it",
    "names_label": "that name the label again",
    "too_long": "too long",
    "says_nothing": "that say nothing",
}


def spent(facts: Facts) -> Section:
    efforts = dict(sorted(facts.tallies.efforts.items(), key=lambda item: _order(item[0])))
    images = sum(effort.images for effort in efforts.values())
    several = " Every image is counted once: all classifiers answered for it." if len(facts.names) > 1 else ""
    columns = [
        Column("Stage"), Column("What for"), Column("Images", number=True), Column("Share", hidden=True),
        Column("Not usable", number=True), Column("Time", number=True),
    ]  # fmt: skip
    rows = [
        (
            stage,
            _PARTS.get((stage, part), part),
            words.count(effort.images),
            Bar([Segment("undetermined", f"{100 * effort.images / images if images else 0:.1f}")]),
            words.count(effort.unusable),
            words.duration(effort.seconds),
        )
        for (stage, part), effort in efforts.items()
    ]
    reasons = dict.fromkeys(clean(reason) for effort in efforts.values() for reason in effort.reasons)
    beneath = (
        _reach(mapping(facts.manifest.get("estimate"))),
        _dropped(mapping(facts.manifest.get("dropped_sentences"))),
        f"Why images could not be used: {'; '.join(reasons)}." if reasons else "",
    )
    blocks = (
        Paragraph(f"{spent_line(facts)}{several}"),
        *([Table(columns, rows)] if rows else []),
        *(Paragraph(text, "beneath") for text in beneath if text),
    )
    return Section("What was spent", blocks, "spent", "What was spent")


def _reach(estimate: Mapping[str, Any]) -> str:
    """Returns the likely findings of the budget; empty where the run has no estimate."""
    least_rates = estimate.get("least_rates")
    rows = [mapping(entry) for entry in least_rates] if isinstance(least_rates, list) else []
    ratio, draws = estimate.get("smallest_ratio"), estimate.get("draws_of_ratio")
    of_ratio = ratio_sentence(ratio, draws if isinstance(draws, int) else None) if isinstance(ratio, float) else ""
    sentences_found = filter(None, [reach_sentence(rows), of_ratio])
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences_found)


def _dropped(counts: Mapping[str, Any]) -> str:
    """Lists the captioner's sentences that could not be used in captions; empty where all could. Repeated sentences are
    not counted as lost."""
    dropped = {why: counts.get(reason) for reason, why in _DROPPED.items()}
    parts = [f"{words.count(number)} {why}" for why, number in dropped.items() if isinstance(number, int)]
    if not parts:
        return ""
    return (
        f"Of what the captioner said of images, some stands in no caption: {words.listed(parts)}. A failure that only "
        "such sentences describe is not found."
    )


def _order(key: tuple[str, str]) -> tuple[int, str]:
    return list(_PARTS).index(key) if key in _PARTS else len(_PARTS), key[1]


def spent_line(facts: Facts) -> str:
    """Returns sentences on how many images were used, beside what was expected."""
    images, manifest = sum(effort.images for effort in facts.tallies.efforts.values()), facts.manifest
    if facts.labelled:
        line = f"{words.plural(images, 'labelled image')} classified; a budget of draws has no part in it."
        return line + _copies(manifest)
    line = f"{words.plural(images, 'image')} drawn"
    budget = facts.config.budget.draws
    if images > budget:
        line += f", with those of the questions asked since; the search had a budget of {words.count(budget)}"
    else:
        line += f" of a budget of {words.count(budget)}"
    if 0 < images < budget and manifest.get("status") == "finished":
        rest = words.plural(budget - images, "image was", "images were")
        line += f", {rest} not drawn, for nothing was left to choose, decide or measure"
    estimate = mapping(manifest.get("estimate"))
    parts = []
    if draws := _limits(estimate.get("draws")):
        parts.append(_between([words.count(int(draws[0])), words.plural(int(draws[1]), "image")]))
    if seconds := _limits(estimate.get("seconds")):
        parts.append(f"{_between([words.duration(limit) for limit in seconds])} of one process")
    return f"{line}; before the run {words.listed(parts)} were expected." if parts else f"{line}."


def _copies(manifest: Mapping[str, Any]) -> str:
    """Says how many images are the same picture as others, as it is or saved again."""
    copy_counts = {name: manifest.get(name) for name in ("copies", "other_copies")}
    copies, others = (number if isinstance(number, int) else 0 for number in copy_counts.values())
    sentence = f" {words.plural(copies, 'copy', 'copies')} of others count for nothing." if copies else ""
    if others:
        sentence += (
            f" {words.plural(others, 'copy', 'copies')} of others, with other values or another label, count once on "
            "each side of a comparison."
        )
    return sentence


def _limits(value: Any) -> list[float]:
    """Returns a lower and an upper limit, where the manifest has both."""
    is_pair = isinstance(value, list) and len(value) == 2 and all(isinstance(limit, int | float) for limit in value)
    return [float(limit) for limit in value] if is_pair else []


def _between(limits: Sequence[str]) -> str:
    least, most = limits
    return most if most.startswith(least) else f"{least} to {most}"
