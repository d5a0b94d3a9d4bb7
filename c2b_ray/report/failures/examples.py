"""Chooses the failures that a caption shows, with pictures: those towards the target first, then in order of drawing.

Failures of confirmation are shown. Those of discovery, from which captions were derived, are shown only where there are
no others, or none towards the target, and are marked. Knows the examples of `schemas.ROUNDS`; knows nothing of pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.report.failures.rows import CONFIRMATION
from c2b_ray.report.failures.tallies import UNDECIDED, TallyKey
from c2b_ray.report.kit import words
from c2b_ray.report.kit.gallery import WRONG, Gallery, Picture
from c2b_ray.report.kit.redact import clean
from c2b_ray.steps.discovery.rounds import SAMPLE

COLUMNS = ["caption_id", "stage", "part", "generator", "classifier", "first", "examples"]
MOST_SHOWN = 12
_OTHERS = None


@dataclass(frozen=True)
class Example:
    """`key`: a hash of the image; `predicted`: `UNDECIDED` where no label is the likeliest."""

    stage: str
    key: str
    predicted: str
    confidence: float | None
    image: bytes


_Placed = tuple[bool, int, int, Example]


class Examples:
    """The failures of chosen captions that rounds kept, up to the number that a page can show."""

    def __init__(self, tables: Iterable[pa.Table], targets: Mapping[TallyKey, Collection[str]]) -> None:
        """`tables`: of `COLUMNS`; `targets`: of the captions that are shown, the labels that their findings are about.

        Of each caption, classifier and generator `MOST_SHOWN` are kept of each such label, and so many of all others.
        """
        self._kept: dict[TallyKey, dict[str | None, list[_Placed]]] = {key: {} for key in targets}
        for table in tables:
            for row in table.to_pylist():
                key = row["caption_id"], row["classifier"], row["generator"]
                if key in targets and row["part"] != SAMPLE:  # whose images need not be failures
                    _keep(self._kept[key], targets[key], row)

    def of(self, key: TallyKey, target: str | None, most: int = MOST_SHOWN) -> list[Example]:
        """Returns the failures in order of drawing, those towards the target first.

        They are of confirmation, or of discovery where confirmation has none, or none towards the target: rounds keep
        only so many of each label, which discovery may have used up.
        """
        by_label = self._kept.get(key, {})
        placed = [(label != target, placed) for label, several in by_label.items() for placed in several]
        placed.sort(key=lambda entry: (entry[0], entry[1][:3]))
        confirmed = [one for one in placed if one[1][-1].stage == CONFIRMATION]
        others = [one for one in placed if one[1][-1].stage != CONFIRMATION]
        only_there = others and (not confirmed or others[0][0] < confirmed[0][0])
        return [example for _, (*_, example) in (others if only_there else confirmed)[:most]]


def _keep(by_label: dict[str | None, list[_Placed]], targets: Collection[str], row: Mapping[str, Any]) -> None:
    for number, example_row in enumerate(row["examples"]):
        if example_row["image"] is None:
            continue
        label = example_row["predicted"] or UNDECIDED
        key = hashlib.sha256(example_row["image"]).hexdigest()[:16]
        several = by_label.setdefault(label if label in targets else _OTHERS, [])
        example = Example(row["stage"], key, label, example_row["confidence"], example_row["image"])
        several.append((row["stage"] != CONFIRMATION, row["first"], number, example))
        several.sort(key=lambda placed: placed[:3])
        del several[MOST_SHOWN:]


def gallery(examples: list[Example], thumbnails: Mapping[str, str], about: tuple[str, str]) -> Gallery | None:
    """`about`: what the classifier is called, and the label. None where there is nothing to show."""
    name, label = about
    if not examples:
        return None
    return Gallery(
        verdict="wrong",
        sign=WRONG,
        title=f"{words.plural(len(examples), 'failure')} of {examples[0].stage}",
        pictures=tuple(_picture(each, thumbnails, name, label) for each in examples),
    )


def _picture(example: Example, thumbnails: Mapping[str, str], name: str, label: str) -> Picture:
    predicted = clean(example.predicted)
    sure = "" if example.confidence is None else f"{example.confidence:.2f}"
    return Picture(
        source=thumbnails.get(example.key, ""),
        key="",
        alt=f"Drawn as {words.article(label)}{label}; {name} says {predicted}"
        f"{f' with probability {sure}' if sure else ''}.",
        label=predicted,
        probability=sure,
        stands_for="",
        caption="",
    )
