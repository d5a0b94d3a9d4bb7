"""The headline of an audit: its strongest findings in at most three sentences, with what was counted; without a finding
what is ruled out, and what it takes to know more.

Findings of cells, and what answers follow over all classes together, such as an attribute that names the wrong ones,
compete by their effect, a difference of accuracies; but what explains more answers than any cell comes first: a cell
of four images says little of a classifier. Values over all classes, cells of two values and perturbations fill what is
left. Knows words, not pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import pyarrow as pa

from c2b_ray.audits.c2b.report import intersections, perturbations
from c2b_ray.audits.c2b.report.findings import SIGNS, beneath, caveats, mistaken
from c2b_ray.audits.c2b.report.gallery import Examples, galleries
from c2b_ray.audits.c2b.report.headline import near_misses, what_settles
from c2b_ray.audits.c2b.report.look_answers import Candidate, NamedByAttribute, named_sentence
from c2b_ray.audits.c2b.report.method import ACCURACY, DerivedValues, shown, titled
from c2b_ray.audits.c2b.report.overview import pooled_sentence, strongest_pooled
from c2b_ray.audits.c2b.report.ranking import Cell, Group, Key, leading
from c2b_ray.report import words
from c2b_ray.report.page import MOST, Answer
from c2b_ray.report.pictures import Gallery, ThumbnailSet
from c2b_ray.report.words import Sentence, Span

PICTURES = 2  # of each kind
ROUNDING = 0.01  # accuracies that differ by no more are written as one
MOST_ALIKE = 6
MOST_RULED_OUT = 4


def answers(
    groups: Sequence[Group],
    named_answers: Sequence[NamedByAttribute],
    other_tables: Sequence[pa.Table],
    names: Mapping[str, str],
    examples: Mapping[Key, Examples],
    thumbnail_set: ThumbnailSet,
    links: Mapping[Key, str],
    levels: tuple[float, float],
    derived: DerivedValues,
    other_candidates: Sequence[Candidate] = (),
) -> tuple[Answer, ...]:
    """Returns the sentences, strongest first; a single one that says what is ruled out, where nothing was found.

    `other_tables`: the tables pooled, intersections and perturbations. `levels`: τ and α. `other_candidates`:
    what answers follow besides attributes.
    """
    tau, alpha = levels
    cells = [cell for group in groups for cell in group.cells]
    of_all = [
        Candidate(
            named_by.effect,
            named_by.effect * named_by.images,
            _named_answer(named_by, names, thumbnail_set, cells, 1 - alpha),
        )
        for named_by in named_answers
    ]
    of_all += other_candidates
    of_cells = _of_groups(groups, names, examples, thumbnail_set, links, 1 - alpha, derived)
    most = max((candidate.explained for candidate in of_cells), default=0.0)
    first = [candidate for candidate in of_all if candidate.explained >= most]
    others = [candidate for candidate in of_all if candidate.explained < most] + of_cells
    candidates = [one for some in (first, others) for one in sorted(some, key=lambda one: -one.effect)]
    strongest = [candidate.answer for candidate in candidates[:MOST]]
    for other in _others(other_tables, names, 1 - alpha, bool(strongest)):
        if len(strongest) < MOST:
            strongest.append(other)
    if not strongest and not cells and other_tables[2].num_rows:
        line = f"No perturbation is established to change the accuracy of a class by more than {_points(tau)}."
        strongest = [Answer("undetermined", SIGNS["undetermined"], (Span(line),), link="perturbations")]
    return tuple(strongest) or (nothing_found(cells, names, tau, 1 - alpha),)


def _named_answer(
    named_by: NamedByAttribute,
    names: Mapping[str, str],
    thumbnail_set: ThumbnailSet,
    cells: Sequence[Cell],
    confidence: float,
) -> Answer:
    sentence, evidence, right = named_sentence(
        named_by, cells, _of_classifier([named_by.classifier], names), confidence
    )
    return Answer(
        verdict="against",
        sign=SIGNS["against"],
        sentence=sentence,
        beneath=(evidence,),
        galleries=_four(
            named_by.examples, (named_by.test.wrong, right), "against", thumbnail_set, names[named_by.classifier]
        ),
    )


def _of_groups(
    groups: Sequence[Group],
    names: Mapping[str, str],
    examples: Mapping[Key, Examples],
    thumbnail_set: ThumbnailSet,
    links: Mapping[Key, str],
    confidence: float,
    derived: DerivedValues,
) -> list[Candidate]:
    """Returns a sentence for each value with findings: that of its strongest class and classifier; the other classes
    and classifiers stand beneath it."""
    by_value: dict[tuple[str, str, str], list[tuple[Group, Cell, Sequence[Group]]]] = {}
    for group, similar in leading(groups):
        lead = group.lead
        if lead is not None:
            by_value.setdefault((lead.attribute, lead.bias_class, lead.verdict), []).append((group, lead, similar))
    candidates = []
    for members in list(by_value.values())[:MOST]:
        group, lead, same_images = members[0]
        classifiers_alike = [cell.classifier for _, cell, _ in members if cell.target_class == lead.target_class]
        name = names[group.classifier]
        lines_below = (*_evidence(lead, confidence), mistaken(lead), *_also([cell for _, cell, _ in members[1:]], lead))
        candidates.append(
            Candidate(
                lead.weight,
                lead.weight * lead.n,
                Answer(
                    verdict=lead.verdict,
                    sign=SIGNS[lead.verdict],
                    sentence=in_counts(group, lead, _of_classifier(classifiers_alike, names)),
                    beneath=(*filter(None, lines_below), *beneath(group, lead, same_images, derived)),
                    link=links[group.key] if group.key in examples else "",
                    galleries=_four(
                        examples[group.key], (lead.n - lead.correct, lead.correct), lead.verdict, thumbnail_set, name
                    )
                    if group.key in examples
                    else (),
                ),
            )
        )
    return candidates


def in_counts(group: Group, lead: Cell, prefix: str = "") -> Sentence:
    """Returns a finding as what was counted: 52 of 100 images of bus are right when weather is fog, against all 300
    with its other values. Values of another metric are no counts of images, and are named."""
    if lead.metric != ACCURACY:
        return (
            Span(f"{prefix}{titled(lead.metric)} for "),
            Span(lead.target_class, strong=True),
            Span(f" is {shown(lead.metric, lead.accuracy)} when "),
            Span(f"{lead.attribute} is {lead.bias_class}", strong=True),
            Span(f", against {shown(lead.metric, lead.others)} {_other_values(group, lead)}."),
        )
    first = f"{prefix}{_right(lead)} of "
    return (
        Span(first if prefix else first[0].upper() + first[1:]),
        Span(lead.target_class, strong=True),
        Span(f" {'is' if lead.n == 1 else 'are'} right when "),
        Span(f"{lead.attribute} is {lead.bias_class}", strong=True),
        Span(f", against {_others_right(group, lead)}."),
    )


def _right(lead: Cell) -> str:
    share = lead.correct / lead.n if lead.n else math.nan
    if abs(share - lead.accuracy) <= ROUNDING:
        return f"{words.part(lead.correct, lead.n)} {'image' if lead.n == 1 else 'images'}"
    return f"{words.percent(lead.accuracy)} (corrected; {words.part(lead.correct, lead.n)} as counted) of the images"


def _others_right(group: Group, lead: Cell) -> str:
    other_cells = [cell for cell in group.cells if cell is not lead and cell.n]
    n, correct = sum(cell.n for cell in other_cells), sum(cell.correct for cell in other_cells)
    if n and abs(correct / n - lead.others) <= ROUNDING:
        return f"{words.part(correct, n)} {_other_values(group, lead, mean=False)}"
    return f"{words.percent(lead.others)} {_other_values(group, lead)}"


def _other_values(group: Group, lead: Cell, mean: bool = True) -> str:
    """Names the attribute's other values. `mean`: whether the number before it is a mean over them."""
    other_cells = [cell for cell in group.cells if cell is not lead and cell.n]
    if len(other_cells) == 1:
        return f"when it is {other_cells[0].bias_class}"
    return f"with its other values{' on average' if mean else ''}"


def _of_classifier(classifiers: Sequence[str], names: Mapping[str, str]) -> str:
    """Returns whose answers these are; empty where the run has one classifier."""
    if len(names) < 2:
        return ""
    named = [names[classifier] for classifier in dict.fromkeys(classifiers)]
    if len(named) > 3:
        return f"{named[0]} (and {words.count(len(named) - 1)} other classifiers alike): "
    return f"{named[0]}{f' ({words.listed(named[1:])} alike)' if named[1:] else ''}: "


def _evidence(lead: Cell, confidence: float) -> list[str]:
    interval = words.signed_range(lead.phi_low, lead.phi_high)
    line = f"φ{words.FIXED}{words.signed(lead.phi)}, {words.percent(confidence)} interval {interval}"
    if not math.isnan(lead.phi_confirmed):
        fresh_range = words.signed_range(lead.phi_confirmed_low, lead.phi_confirmed_high)
        line += f"; on fresh images {words.signed(lead.phi_confirmed)} ({fresh_range})"
    return [f"{', '.join([line, *caveats(lead)])}."]


def _also(others: Sequence[Cell], lead: Cell) -> list[str]:
    """Returns the other classes of which the same value is a finding, each with its strongest φ of any classifier.
    `others`: strongest first."""
    classes: dict[str, str] = {}
    for cell in others:
        if cell.target_class != lead.target_class:
            classes.setdefault(cell.target_class, f"{cell.target_class} ({words.signed(cell.phi)})")
    if not classes:
        return []
    first = list(classes.values())[:MOST_ALIKE]
    remainder = [f"{words.count(len(classes) - MOST_ALIKE)} more"] if len(classes) > MOST_ALIKE else []
    return [f"The same of {words.listed([*first, *remainder])}."]


def _four(
    examples: Examples, counts: tuple[int, int], verdict: str, thumbnail_set: ThumbnailSet, name: str
) -> tuple[Gallery, ...]:
    """Returns the first two wrong and the first two right pictures."""
    first_examples = Examples(wrong=examples.wrong[:PICTURES], right=examples.right[:PICTURES])
    return galleries(first_examples, counts, verdict, thumbnail_set, name)


def _others(
    tables: Sequence[pa.Table], names: Mapping[str, str], confidence: float, has_findings: bool
) -> list[Answer]:
    """Returns the strongest value over all classes where no cell is a finding, the strongest cell of two values, and
    the strongest perturbation."""
    pooled, pairs, perturbed = tables
    answers = []
    values = [] if has_findings else strongest_pooled(pooled.to_pylist())
    if values:
        row = values[0]
        sentence = pooled_sentence(row, names[row["classifier"]], confidence)
        answers.append(Answer(row["verdict"], SIGNS[row["verdict"]], (Span(sentence),), link="pooled"))
    crossed = intersections.strongest(pairs.to_pylist())
    if crossed:
        row = crossed[0]
        spans = intersections.sentence(row, names[row["classifier"]], confidence)
        answers.append(Answer(row["verdict"], SIGNS[row["verdict"]], spans, link="intersections"))
    worst = perturbations.strongest(perturbed.to_pylist())
    if worst:
        row = worst[0][0]
        name = names[row["classifier"]] if len(names) > 1 else ""
        spans = perturbations.sentence(row, name, confidence)
        answers.append(Answer(row["verdict"], SIGNS[row["verdict"]], spans, link="perturbations"))
    return answers


def besides(cells: Sequence[Cell], tau: float) -> str:
    """Returns what is ruled out besides findings, and what the other values would take."""
    clear = [cell for cell in cells if cell.verdict == "none"]
    undetermined = [cell for cell in cells if cell.verdict == "undetermined"]
    lines = [_ruled_out(clear, len(cells), _points(tau)) if clear else "", _would_take(undetermined, _points(tau))]
    return " ".join(filter(None, lines))


def nothing_found(cells: Sequence[Cell], names: Mapping[str, str], tau: float, confidence: float) -> Answer:
    """Returns what is ruled out, and what it would take to know more, of an audit without a finding."""
    if not cells:
        return Answer("undetermined", SIGNS["undetermined"], (Span("Nothing was scored, so nothing can be said."),))
    if all(cell.n == 0 for cell in cells):
        line = "No image has a prediction, so nothing can be said about the classifier."
        return Answer("undetermined", SIGNS["undetermined"], (Span(line),))
    clear = [cell for cell in cells if cell.verdict == "none"]
    undetermined = [cell for cell in cells if cell.verdict == "undetermined"]
    points = _points(tau)
    verdict = "none" if clear and len(clear) >= len(undetermined) else "undetermined"
    lines = [_ruled_out(clear, len(cells), points), _would_take(undetermined, points)]
    closest = near_misses(cells, tau)
    if closest:
        cell = closest[0]
        lines.append(
            f"The largest difference that is not settled: {_of_classifier([cell.classifier], names)}"
            f"{cell.target_class} when {cell.attribute} is {cell.bias_class}, {_value(cell)} "
            f"(φ{words.FIXED}{words.signed(cell.phi)}, {words.percent(confidence)} interval "
            f"{words.signed_range(cell.phi_low, cell.phi_high)}); {what_settles(cell, tau)}."
        )
    if len(clear) == len(cells):
        first = f"No attribute makes a difference of more than {points}: that is ruled out for every value."
    else:
        first = f"No difference of more than {points} was found."
    return Answer(
        verdict, SIGNS[verdict], (Span(first),), tuple(filter(None, lines)), link="clear" if clear else "open"
    )


def _value(cell: Cell) -> str:
    if cell.metric != ACCURACY:
        return f"{titled(cell.metric)} {shown(cell.metric, cell.accuracy)}"
    return f"{words.part(cell.correct, cell.n)} right"


def _points(tau: float) -> str:
    return f"{words.decimal(100 * tau)} points"


def _ruled_out(clear: Sequence[Cell], everything: int, points: str) -> str:
    if not clear:
        return "Nothing is ruled out."
    by_attribute: dict[str, int] = {}
    for cell in clear:
        by_attribute[cell.attribute] = by_attribute.get(cell.attribute, 0) + 1
    ordered = sorted(by_attribute.items(), key=lambda item: (-item[1], item[0]))
    attributes = [f"{name} ({words.count(number)})" for name, number in ordered[:MOST_RULED_OUT]]
    remainder = [f"{words.count(len(ordered) - MOST_RULED_OUT)} more"] if len(ordered) > MOST_RULED_OUT else []
    return (
        f"Ruled out is a difference of more than {points} in {words.count(len(clear))} of "
        f"{words.plural(everything, 'value')} of a class: {words.listed([*attributes, *remainder])}."
    )


def _would_take(undetermined: Sequence[Cell], points: str) -> str:
    if not undetermined:
        return ""
    with_estimate = [cell for cell in undetermined if cell.images_to_settle and cell.n]
    is_one = len(undetermined) == 1
    line = f"{words.plural(len(undetermined), 'value')} of a class {'stays' if is_one else 'stay'} open"
    if not with_estimate:
        return f"{line}: no number of images at hand would settle {'it' if is_one else 'them'}."
    n, needed = median(cell.n for cell in with_estimate), median(cell.images_to_settle or 0 for cell in with_estimate)
    images, number = words.plural(round(n), "image"), len(with_estimate)
    would_need = f"would need about {words.count(round(needed))}"
    if number == len(undetermined):
        last = f"A value has {images}, and {would_need}{'' if number == 1 else ' (medians)'}"
    elif number == 1:
        last = f"1 of them has {images}, and {would_need}"
    else:
        last = f"{words.count(number)} of them, with {images} in the median, {would_need}"
    return f"{line}: {'it' if is_one else 'they'} may differ by more than {points} or not. {last}."
