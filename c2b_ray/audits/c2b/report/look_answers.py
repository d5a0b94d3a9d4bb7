"""What the answers follow, the class or a look of the picture, in words and pictures.

It knows rows of `tables.LOOKS` and `tables.LOOK_ALIKES`; nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.audits.c2b.report.findings import SIGNS
from c2b_ray.report import words
from c2b_ray.report.answer import Answer
from c2b_ray.report.pictures import WRONG, Gallery, Picture
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Sentence, Span

EXAMPLES = 2
LOOK_ALIKES_SHOWN = 3
Row = Mapping[str, Any]


@dataclass(frozen=True)
class LookLine:
    """A row of the table in which the page says what was tested."""

    classifier: str
    look: str
    follow_look: str
    expected: str
    share: str
    interval: str
    follow_class: str
    established: str


@dataclass(frozen=True)
class Looks:
    present: bool
    lines: tuple[LookLine, ...] = ()


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
    found = []
    for classifier, rows in by_classifier.items():
        strongest, weaker = ([row for row in rows if row["strongest"] == kind] for kind in (True, False))
        of_look = [one for one in images if (one["classifier"], one["look"]) == (classifier, strongest[0]["look"])]
        found.append(FollowedLooks(classifier, tuple(strongest), tuple(weaker), tuple(_examples(of_look))))
    return tuple(sorted(found, key=lambda one: (-one.share, one.classifier)))


def _examples(rows: Sequence[Row]) -> list[Row]:
    """Returns the images with most look-alikes that got the same answer, each of another class and answer."""
    chosen: list[Row] = []
    for row in sorted(rows, key=lambda row: (-len(row["look_alikes"]), row["image_id"])):
        if all(row["label"] != one["label"] and row["answer"] != one["answer"] for one in chosen):
            chosen.append(row)
        if len(chosen) == EXAMPLES:
            break
    return chosen


def followed_sentence(of: FollowedLooks, who: str) -> Sentence:
    """Returns the finding in a sentence that begins with `who`; its numbers are of the look that is named first."""
    first = of.rows[0]
    return (
        Span(f"{who}{words.percent(first['share'])} of the answers follow the "),
        Span(words.listed([row["look"] for row in of.rows]), strong=True),
        Span(
            f" of the image rather than its class: {words.part(first['follow_look'], first['images'])} images are "
            "called what images of other classes that look like them are called (by chance "
            f"{words.count(round(first['expected']))}), {words.count(first['follow_class'])} what their class is."
        ),
    )


def followed_evidence(of: FollowedLooks, confidence: float) -> str:
    first, *others = of.rows
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
    if of.weaker:
        lines.append(f"By {_shares(of.weaker)} less.")
    lines.append("Chance permutes the answers within each class, among those that are not the class’s.")
    return " ".join(lines)


def _shares(rows: Sequence[Row]) -> str:
    return words.listed([f"{row['look']} ({words.percent(row['share'])})" for row in rows])


def look_answers(
    found: Sequence[FollowedLooks],
    names: Mapping[str, str],
    thumbnails: Mapping[str, str],
    confidence: float,
) -> list[tuple[float, Answer]]:
    """Returns the findings with their share of all answers. `thumbnails`: a data: URI per image id."""
    return [
        (
            of.share,
            Answer(
                verdict="against",
                sign=SIGNS["against"],
                sentence=followed_sentence(of, f"{names[of.classifier]}: " if len(names) > 1 else ""),
                beneath=(followed_evidence(of, confidence),),
                link="looks",
                galleries=tuple(_gallery(row, thumbnails) for row in of.examples),
            ),
        )
        for of in found
    ]


def looks_view(looks: pa.Table, names: Mapping[str, str]) -> Looks:
    """Returns what was tested, established or not."""
    rows = looks.to_pylist()
    return Looks(bool(rows), tuple(_line(row, names) for row in rows))


def _line(row: Row, names: Mapping[str, str]) -> LookLine:
    return LookLine(
        classifier=names[row["classifier"]],
        look=row["look"],
        follow_look=words.part(row["follow_look"], row["images"]),
        expected=words.count(round(row["expected"])),
        share=words.percent(row["share"]),
        interval=words.percent_range(row["share_low"], row["share_high"]),
        follow_class=words.count(row["follow_class"]),
        established="yes" if row["established"] else "no",
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
