"""Measures how reliably a generator draws a label, as a verifier sees it: rows of `tables.RELIABILITY`.

Wiles et al. 2022, App. B.3: the share of images of the baseline prompt that show the label, or at least one with the
same parent; Fig. 5b: which values of an attribute they show ("9 % of the crayfish are blue"). A verifier errs too, and
its errors count against the generator. It knows answers and counts, not models or images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.audits.failures.discovery.candidates import Hierarchy
from c2b_ray.audits.failures.discovery.sentences import noun
from c2b_ray.names import normalise
from c2b_ray.roles import Answer, Captioner, Question
from c2b_ray.stats.intervals import wilson_interval
from c2b_ray.steps import encoded, synonyms
from c2b_ray.steps.observe import OTHER, THING, weighed
from c2b_ray.tables import DESCRIPTIONS
from c2b_ray.tables.failures import RELIABILITY, ReliabilityRow

LEAST_RATE = 0.9
"""A generator that shows a label less often is not trusted with it. The paper's shows one in 96 of 100 images."""


@dataclass(frozen=True)
class Inspection:
    """The questions to a verifier about images of one label: what they show, and the value of each attribute."""

    label: str
    shown: Question
    attributes: Mapping[str, Question]

    @property
    def questions(self) -> list[Question]:
        return [self.shown, *self.attributes.values()]


def inspection(label: str, labels: Sequence[str], attributes: Mapping[str, Sequence[str]] | None = None) -> Inspection:
    """Returns the questions about a label.

    `labels`: other labels that an image may show. `attributes`: name → values or phrases, such as "in blue"; at least
    two, none empty. OTHER is always a choice.
    """
    other_labels = [other for other in labels if normalise(other) != normalise(label) and normalise(other) != OTHER]
    statements = {name: f"a photo of {_counted(name)}" for name in dict.fromkeys((label, *other_labels))} | {
        OTHER: THING
    }
    questions = {
        name: Question(
            f"Which {name} does the picture of {_counted(label)} show?",
            tuple(values),
            tuple(f"a photo of {_counted(label)}, {value}" for value in values),
        )
        for name, values in (attributes or {}).items()
    }
    return Inspection(
        label, Question("What does the picture show?", tuple(statements), _distinct(statements)), questions
    )


def _counted(label: str) -> str:
    return f"{synonyms.article(noun(label))}{noun(label)}"


def _distinct(statements: Mapping[str, str]) -> tuple[str, ...] | None:
    """Returns the statements; None where two labels have the same first name."""
    return tuple(statements.values()) if len(set(statements.values())) == len(statements) else None


def reliability(
    generator: str,
    inspections: Sequence[Inspection],
    answers: Sequence[Sequence[Sequence[Answer]]],
    hierarchy: Hierarchy | None = None,
) -> pa.Table:
    """Returns a table of `tables.RELIABILITY`: a row per label, then one per value of each of its attributes.

    `answers`: for each inspection and image, one per question, in order. An answer that is an error counts neither for
    nor against; the rate without answers is null. Intervals are Wilson's, at 95 %. Raises ConfigError where the
    hierarchy lacks a label.
    """
    rows: list[ReliabilityRow] = []
    for inspection, images in zip(inspections, answers, strict=True):
        labels_seen = [weighed(image[0], inspection.shown).choice for image in images]
        rows.append(_row(generator, inspection.label, None, Counter(labels_seen), hierarchy))
        for number, (name, question) in enumerate(inspection.attributes.items(), 1):
            answer_counts = Counter(image[number].choice for image in images)
            rows += [
                _row(generator, inspection.label, (name, value), answer_counts, None) for value in question.choices
            ]
    return pa.Table.from_pylist(rows, RELIABILITY)


def unreliable_labels(table: pa.Table) -> dict[str, str]:
    """Returns label → why it is not to be trusted: its images certainly show it less often than `LEAST_RATE`, or none
    could be checked."""
    result = {}
    for row in table.to_pylist():
        if row["attribute"] is not None:
            continue
        if row["images"] == 0:
            result[row["label"]] = f"no image of {row['generator']} could be verified"
        elif row["rate_high"] < LEAST_RATE:
            result[row["label"]] = f"{row['shown']} of {row['images']} images of {row['generator']} show it"
    return result


def _row(
    generator: str,
    label: str,
    value: tuple[str, str] | None,
    answer_counts: Counter[str | None],
    hierarchy: Hierarchy | None,
) -> ReliabilityRow:
    counts = {name: n for name, n in answer_counts.items() if name is not None}
    images, shown = sum(counts.values()), counts.get(label if value is None else value[1], 0)
    low, high = wilson_interval(shown, images) if images else (None, None)
    parent_shown = None
    if hierarchy is not None:
        hierarchy.check([label])
        parent_shown = sum(
            n for name, n in counts.items() if name == label or (name != OTHER and hierarchy.shares_parent(name, label))
        )
    return {
        "generator": generator,
        "label": label,
        "attribute": value[0] if value else None,
        "value": value[1] if value else None,
        "images": images,
        "shown": shown,
        "parent_shown": parent_shown,
        "rate": shown / images if images else None,
        "rate_low": low,
        "rate_high": high,
    }


# Asks a verifier what images of a label show, for `reliability`. It knows only bytes and answers.


def inspect(images: pa.Table, verifier: Captioner) -> pa.Table:
    """Returns a table of `tables.DESCRIPTIONS`, a row per row of `images`.

    `images`: `description_id`, `label`, `image`, and `labels`, the other labels that it may show. `text` in the result
    is the label that the verifier sees.
    """
    rows = images.to_pylist()
    questions = [inspection(row["label"], row["labels"]).shown for row in rows]
    replies, undecoded = encoded.answers(
        [row["image"] for row in rows], [[label_question] for label_question in questions], verifier
    )
    described = []
    for row, question, of_image, error in zip(rows, questions, replies, undecoded, strict=True):
        answer = weighed(of_image[0], question) if error is None else Answer(None, error=error)
        described.append({"description_id": row["description_id"], "text": answer.choice, "error": answer.error})
    return pa.Table.from_pylist(described, DESCRIPTIONS)


def answer_of(text: str | None, error: str | None) -> Answer:
    """Returns as an answer what `inspect` wrote."""
    return Answer(text, error=None if text is not None else error or "no answer")
