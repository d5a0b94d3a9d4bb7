"""What answers follow in words and pictures: the class, a look, or an attribute that names answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.findings import SIGNS
from c2b_ray.audits.c2b.report.gallery import Example, Examples
from c2b_ray.audits.c2b.report.ranking import Cell
from c2b_ray.names import normalise
from c2b_ray.report import words
from c2b_ray.report.blocks import Paragraph, Section, Table
from c2b_ray.report.page import Answer
from c2b_ray.report.pictures import WRONG, Gallery, Picture
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Sentence, Span
from c2b_ray.stats import wilson_interval
from c2b_ray.stats.classification import NamedAnswers, wrong_answers_named
from c2b_ray.steps.answers import CellAnswers, answers_of, named_class
from c2b_ray.steps.cells import CellImages, images_of_cells
from c2b_ray.steps.draw import GENERATE, Ints
from c2b_ray.steps.duplicates import Distinct

EXAMPLES = 2
LOOK_ALIKES_SHOWN = 3
Row = Mapping[str, Any]


class Candidate(NamedTuple):
    """A sentence that may stand at the head of the page. `effect`: a difference of accuracies; `explained`: the number
    of answers that it explains."""

    effect: float
    explained: float
    answer: Answer


@dataclass(frozen=True)
class FollowedLooks:
    """One classifier's established looks: the strongest, which are not told apart, before `weaker` ones; and images
    whose answers follow the first."""

    classifier: str
    rows: tuple[Row, ...]
    weaker: tuple[Row, ...]
    examples: tuple[Row, ...]

    @property
    def share(self) -> float:
        return float(self.rows[0]["share"])

    @property
    def image_ids(self) -> list[str]:
        """Returns the images that the page shows."""
        return [
            image
            for row in self.examples
            for image in (row["image_id"], *(one["image_id"] for one in row["look_alikes"][:LOOK_ALIKES_SHOWN]))
        ]


def followed_looks(looks: pa.Table, alike: pa.Table) -> tuple[FollowedLooks, ...]:
    """Returns the classifiers whose answers are established to follow a look more than the class, largest share
    first."""
    by_classifier: dict[str, list[Row]] = {}
    for row in looks.to_pylist():
        if row["established"]:
            by_classifier.setdefault(row["classifier"], []).append(row)
    images = alike.to_pylist() if by_classifier else []
    result = []
    for classifier, rows in by_classifier.items():
        strongest, weaker = ([row for row in rows if row["strongest"] == kind] for kind in (True, False))
        of_look = [one for one in images if (one["classifier"], one["look"]) == (classifier, strongest[0]["look"])]
        result.append(FollowedLooks(classifier, tuple(strongest), tuple(weaker), tuple(_examples(of_look))))
    return tuple(sorted(result, key=lambda one: (-one.share, one.classifier)))


def _examples(rows: Sequence[Row]) -> list[Row]:
    """Returns the images with most look-alikes that got the same answer, each of another class and answer."""
    chosen: list[Row] = []
    for row in sorted(rows, key=lambda row: (-len(row["look_alikes"]), row["image_id"])):
        if all(row["label"] != one["label"] and row["answer"] != one["answer"] for one in chosen):
            chosen.append(row)
        if len(chosen) == EXAMPLES:
            break
    return chosen


def followed_sentence(looks: FollowedLooks, who: str) -> Sentence:
    """Returns the finding in a sentence that begins with `who`; its numbers are of the look that is named first."""
    first = looks.rows[0]
    return (
        Span(f"{who}{words.percent(first['share'])} of the answers follow the "),
        Span(words.listed([row["look"] for row in looks.rows]), strong=True),
        Span(
            f" of the image rather than its class: {words.part(first['follow_look'], first['images'])} images are "
            "called what images of other classes that look like them are called (by chance "
            f"{words.count(round(first['expected']))}), {words.count(first['follow_class'])} what their class is."
        ),
    )


def followed_evidence(looks: FollowedLooks, confidence: float) -> str:
    first, *others = looks.rows
    lines = [
        f"By {first['look']}, {words.percent(confidence)} interval "
        f"{words.percent_range(first['share_low'], first['share_high'])}; "
        f"p{words.FIXED}{_p_value(first['p_value'])}."
    ]
    if others:
        lines.append(
            f"By {_shares(others)} as much: in these images looks go together, and which of them the classifier goes "
            "by is not told apart."
        )
    if looks.weaker:
        lines.append(f"By {_shares(looks.weaker)} less.")
    lines.append("Chance permutes the answers within each class, among those that are not the class’s.")
    return " ".join(lines)


def _shares(rows: Sequence[Row]) -> str:
    return words.listed([f"{row['look']} ({words.percent(row['share'])})" for row in rows])


def look_answers(
    followed: Sequence[FollowedLooks],
    names: Mapping[str, str],
    thumbnails: Mapping[str, str],
    confidence: float,
) -> list[Candidate]:
    """Returns the findings; the effect of each is its share of all answers. `thumbnails`: a data: URI per image id."""
    return [
        Candidate(
            looks.share,
            looks.share * looks.rows[0]["images"],
            Answer(
                verdict="against",
                sign=SIGNS["against"],
                sentence=followed_sentence(looks, f"{names[looks.classifier]}: " if len(names) > 1 else ""),
                beneath=(followed_evidence(looks, confidence),),
                link="looks",
                galleries=tuple(_gallery(row, thumbnails) for row in looks.examples),
            ),
        )
        for looks in followed
    ]


def looks_section(looks: pa.Table, names: Mapping[str, str], confidence: float) -> list[Section]:
    """Returns what was tested, established or not; nothing where no look was."""
    rows = looks.to_pylist()
    if not rows:
        return []
    several = len(names) > 1
    title = "What the answers follow"
    columns = [
        *([Column("Classifier", spec=True)] if several else []),
        Column("Look"),
        *(
            Column(name, number=True)
            for name in ("Answers that follow it", "By chance", "Beyond chance, of all answers")
        ),
        Column(f"{words.percent(confidence)} interval", number=True),
        Column("Follow the class", number=True),
        Column("More than the class"),
    ]
    line = (
        "Most answers are not their image’s class. Of these images it was asked, without any annotation, whether those "
        "of other classes that look like them are called the same."
    )
    table = Table(columns, [_look_row(row, names, several) for row in rows], title)
    return [Section(title, [Paragraph(line), table], "looks", "Looks")]


def _look_row(row: Row, names: Mapping[str, str], several: bool) -> tuple[str, ...]:
    return (
        *([names[row["classifier"]]] if several else []),
        row["look"],
        words.part(row["follow_look"], row["images"]),
        words.count(round(row["expected"])),
        words.percent(row["share"]),
        words.percent_range(row["share_low"], row["share_high"]),
        words.count(row["follow_class"]),
        "yes" if row["established"] else "no",
    )


def _gallery(row: Row, thumbnails: Mapping[str, str]) -> Gallery:
    answer = clean(row["answer"])
    shown = [
        {"image_id": row["image_id"], "key": row["key"], "label": row["label"]},
        *row["look_alikes"][:LOOK_ALIKES_SHOWN],
    ]
    return Gallery(
        "wrong",
        WRONG,
        f"Called {answer}, as its look-alikes of other classes",
        tuple(_picture(one, answer, thumbnails) for one in shown),
    )


def _picture(one: Row, answer: str, thumbnails: Mapping[str, str]) -> Picture:
    key, label = clean(str(one["key"] or "")), clean(str(one["label"]))
    return Picture(
        source=thumbnails.get(one["image_id"], ""),
        key=key,
        alt=f"{key}, labelled {label}, answered {answer}",
        label=f"{label} → {answer}",
        probability="",
        stands_for="",
        caption="",
    )


def _p_value(value: float) -> str:
    return f"≤{words.THIN}0.001" if value <= 0.001 else f"={words.THIN}{value:.3f}"


# Attributes whose values are themselves names of answers, such as the texture of a picture whose shape is the
# class: are the wrong answers what the attribute names, over all classes together?


SHOWN = 2  # examples of each kind


@dataclass(frozen=True)
class NamedByAttribute:
    """What an attribute's names say about one classifier's wrong answers. `images`: answered images whose attribute
    names another class than theirs; `effect`: the share of them that is answered with that name, beyond chance;
    `effect_low`: with the lower limit of the named share of the wrong answers (Wilson)."""

    classifier: str
    attribute: str
    test: NamedAnswers
    images: int
    effect: float
    effect_low: float
    examples: Examples


def named_by_attributes(
    cells: Sequence[Cell],
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    tau: float,
    alpha: float,
    distinct: Callable[[], Distinct] | None = None,
) -> tuple[NamedByAttribute, ...]:
    """Returns the attributes whose names explain wrong answers, largest effect first: the test of
    `stats.classification.wrong_answers_named` at α over the number of tests (Bonferroni), and more than τ of the images
    explained at the lower limit: with very many images a difference that does not matter is significant. None where
    images come in clusters: the test takes them as independent. `distinct`: tells which images are copies, which count
    once in a cell, as in its scores; None: none are."""
    pairs = dict.fromkeys(
        (cell.classifier, cell.attribute)
        for cell in cells
        if cell.clusters is None
        and cell.answered_bias_class is not None
        and normalise(cell.bias_class) != normalise(cell.target_class)
    )
    if not pairs:
        return ()
    of_cells = images_of_cells(captions, draws)
    of_cells = of_cells.without_copies(None if distinct is None else distinct().pictures(of_cells.ids))
    answers = {classifier: answers_of(predictions, classifier).to(of_cells) for classifier, _ in pairs}
    tested = [
        answer
        for classifier, attribute in pairs
        if (answer := _tested(classifier, attribute, answers[classifier], captions, draws, predictions, 1 - alpha))
    ]
    established = [answer for answer in tested if answer.test.p_value <= alpha / len(pairs) and answer.effect_low > tau]
    return tuple(sorted(established, key=lambda answer: (-answer.effect, answer.classifier, answer.attribute)))


def _tested(
    classifier: str,
    attribute: str,
    answers: CellAnswers,
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    confidence: float,
) -> NamedByAttribute | None:
    cells = answers.cells
    of_attribute = np.array([name.attribute == attribute for name in cells.names], bool)
    rows = np.flatnonzero(of_attribute[cells.cell] & answers.answered)
    truth, value, answer = _numbers(answers, rows)
    conflict = value != truth
    rows, truth, value, answer = rows[conflict], truth[conflict], value[conflict], answer[conflict]
    test = wrong_answers_named(truth, value, answer)
    if not test.wrong:
        return None
    low, _ = wilson_interval(test.named, test.wrong, confidence)
    images = len(rows)
    return NamedByAttribute(
        classifier=classifier,
        attribute=attribute,
        test=test,
        images=images,
        effect=(test.named - test.expected) / images,
        effect_low=(float(low) * test.wrong - test.expected) / images,
        examples=Examples(
            wrong=_named_examples(rows[answer == value], False, answers, captions, draws, predictions, classifier),
            right=_named_examples(rows[answer == truth], True, answers, captions, draws, predictions, classifier),
        ),
    )


def _numbers(answers: CellAnswers, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Returns for each row the numbers of its class, of what its value names, and of its answer: names that are
    compared as one have one number."""
    number: dict[str, int] = {}

    def of(name: str) -> int:
        return number.setdefault(normalise(name), len(number))

    cells = answers.cells
    truth = np.array([of(name.target_class) for name in cells.names], np.int64)
    value = np.array([of(name.bias_class) for name in cells.names], np.int64)
    distinct, back = np.unique(answers.taken[rows], return_inverse=True)
    name_numbers = np.array([of(answers.answers.name(label)) for label in distinct.tolist()], np.int64)
    return truth[cells.cell[rows]], value[cells.cell[rows]], name_numbers[back] if len(name_numbers) else back


def _named_examples(
    rows: Ints,
    right: bool,
    answers: CellAnswers,
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifier: str,
) -> tuple[Example, ...]:
    """Returns examples of as many classes as there are, in the order of the cells."""
    cells: CellImages = answers.cells
    first = np.unique(np.array([cells.names[cell].target_class for cell in cells.cell[rows]]), return_index=True)[1]
    example_rows = rows[np.sort(first)][:SHOWN] if len(rows) else rows
    ids = cells.ids.names(cells.image[example_rows]).to_pylist()
    example_ids = pa.array(ids, pa.string())
    answered = predictions.filter(
        pc.and_(pc.equal(predictions["classifier"], classifier), pc.is_in(predictions["image_id"], example_ids))
    )
    answer_of = {row["image_id"]: row for row in answered.to_pylist()}
    draw_of_image = {row["image_id"]: row for row in draws.filter(pc.is_in(draws["image_id"], example_ids)).to_pylist()}
    examples = []
    for row, image_id in zip(example_rows.tolist(), ids, strict=True):
        answer, draw = answer_of[image_id], draw_of_image[image_id]
        probability = answer["label_probability"]
        examples.append(
            Example(
                image_id=image_id,
                right=right,
                label=answer["label"] or answers.answers.name(int(answers.taken[row])),
                label_probability=float("nan") if probability is None else probability,
                predicted_class=named_class(answer["predicted_class"]),
                caption=captions["text"][int(cells.caption[row])].as_py(),
                retrieved=draw["similarity"] is not None,
                generated=draw["source"] == GENERATE,
            )
        )
    return tuple(examples)


def named_sentence(
    named_by: NamedByAttribute, cells: Sequence[Cell], prefix: str, confidence: float
) -> tuple[Sentence, str, int]:
    """Returns the finding in a sentence that begins with `prefix`, its evidence, and how many images are answered with
    their class."""
    test = named_by.test
    members = [
        cell
        for cell in cells
        if (cell.classifier, cell.attribute) == (named_by.classifier, named_by.attribute)
        and normalise(cell.target_class) != normalise(cell.bias_class)
    ]
    right = sum(cell.correct for cell in members)
    answers_of_either = test.named + right
    by_chance = (
        f"{words.part(test.named, test.wrong)} wrong answers ({words.percent(test.named / test.wrong)}) name the "
        f"{named_by.attribute}, where by chance {words.count(round(test.expected))} would "
        f"({words.percent(test.expected / test.wrong)}; p{words.FIXED}{_p_value(test.p_value)})"
    )
    low, high = wilson_interval(test.named, answers_of_either, confidence)
    if low > 0.5:  # it decides more of the answers than the class does
        sentence = (
            Span(f"{prefix}{words.percent(test.named / answers_of_either)} of the answers that name the class or the "),
            Span(named_by.attribute, strong=True),
            Span(f" of the image name the {named_by.attribute}: "),
            Span(f"{words.count(test.named)} of {words.count(answers_of_either)}."),
        )
        evidence = f"{words.percent(confidence)} interval {words.percent_range(float(low), float(high))}. {by_chance}."
    else:
        sentence = (
            Span(f"{prefix}{words.part(test.named, test.wrong)} wrong answers "),
            Span(f"({words.percent(test.named / test.wrong)}) name the "),
            Span(named_by.attribute, strong=True),
            Span(f" of the image instead of its class; by chance {words.count(round(test.expected))} would."),
        )
        evidence = f"{by_chance}."
    evidence = (
        f"Over all classes together, on {words.plural(named_by.images, 'image')} whose {named_by.attribute} names "
        f"another class. {evidence[0].upper()}{evidence[1:]} Chance permutes {named_by.attribute} within each class."
    )
    return sentence, evidence, right


def what_answers_follow(named: Sequence[NamedByAttribute], looks: Sequence[FollowedLooks]) -> dict[str, str]:
    """Returns classifier → what its answers follow in place of the class: an attribute that names them, or looks."""
    return {
        **{of.classifier: words.listed([str(row["look"]) for row in of.rows]) for of in looks},
        **{of.classifier: of.attribute for of in reversed(named)},
    }
