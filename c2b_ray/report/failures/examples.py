"""Which failures are shown of a caption, and their pictures: those towards the target first, then in order of drawing.

Failures of confirmation are shown, never those that a caption was made from. Knows the examples of `schemas.ROUNDS`;
knows nothing of pages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.report.failures.rows import CONFIRMATION
from c2b_ray.report.failures.tallies import UNDECIDED, Tally, TallyKey
from c2b_ray.report.kit import words
from c2b_ray.report.kit.gallery import WRONG, Gallery, Picture
from c2b_ray.report.kit.redact import clean

COLUMNS = ["caption_id", "stage", "generator", "classifier", "first", "examples"]
MOST_SHOWN = 12
_OTHERS = None


@dataclass(frozen=True)
class Example:
    """`key`: a hash of the image; `predicted`: `UNDECIDED` where no label is the likeliest."""

    key: str
    predicted: str
    confidence: float | None
    image: bytes


_Placed = tuple[int, int, Example]


class Examples:
    """The failures of chosen captions that rounds kept, so many of each as a page can show."""

    def __init__(self, tables: Iterable[pa.Table], targets: Mapping[TallyKey, Collection[str]]) -> None:
        """`tables`: of `COLUMNS`; `targets`: of the captions that are shown, the labels that their findings are about.

        Of each caption, classifier and generator `MOST_SHOWN` are kept of each such label, and so many of all others.
        """
        self._kept: dict[TallyKey, dict[str | None, list[_Placed]]] = {key: {} for key in targets}
        for table in tables:
            for row in table.to_pylist():
                key = row["caption_id"], row["classifier"], row["generator"]
                if row["stage"] == CONFIRMATION and key in targets:
                    _keep(self._kept[key], targets[key], row)

    def of(self, key: TallyKey, target: str | None, most: int = MOST_SHOWN) -> list[Example]:
        """In order of drawing, those towards the target first."""
        by_label = self._kept.get(key, {})
        placed = [
            (label != target, first, number, each) for label in by_label for first, number, each in by_label[label]
        ]
        return [each for *_, each in sorted(placed, key=lambda entry: entry[:3])[:most]]


def _keep(by_label: dict[str | None, list[_Placed]], targets: Collection[str], row: Mapping[str, Any]) -> None:
    for number, found in enumerate(row["examples"]):
        if found["image"] is None:
            continue
        label = found["predicted"] or UNDECIDED
        key = hashlib.sha256(found["image"]).hexdigest()[:16]
        several = by_label.setdefault(label if label in targets else _OTHERS, [])
        several.append((row["first"], number, Example(key, label, found["confidence"], found["image"])))
        several.sort(key=lambda placed: placed[:2])
        del several[MOST_SHOWN:]


def gallery(
    examples: list[Example], thumbnails: Mapping[str, str], tally: Tally, about: tuple[str, str]
) -> Gallery | None:
    """`about`: what the classifier is called, and the label. None where there is nothing to show."""
    name, label = about
    if not examples:
        return None
    return Gallery(
        verdict="wrong",
        sign=WRONG,
        title=f"{words.count(len(examples))} of {words.plural(tally.failures, 'failure')}",
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
