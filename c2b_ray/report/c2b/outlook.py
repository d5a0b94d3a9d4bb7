"""What a terminal says beside findings: how often each classifier is right, the largest differences that are not
settled, and what would settle them.

Knows cells and words; knows nothing of terminals.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from c2b_ray.metrics import wilson_interval
from c2b_ray.report.c2b.ranking import Cell
from c2b_ray.report.kit import words

MOST_NEAR = 3
NEAR = 20
"""A difference is no near miss if settling it takes more than this many times the images at hand."""
LEAST_IMAGES = 20
"""Of fewer images a share says nothing about a classifier's set-up."""
HARDLY_ANY = 0.1
CAUSES = (
    "another normalisation, scale or order of colours (BGR) than the weights were trained with, label names in another "
    "order than the outputs, or an incomplete `label_map`. `c2b check` on the audit file shows answers beside labels"
)


@dataclass(frozen=True)
class Accuracy:
    """A classifier's right answers on the images of an audit. `balanced`: the mean of its classes' accuracies, in which
    a class of many images counts no more than one of few."""

    classifier: str
    right: int
    images: int
    balanced: float
    classes: int

    @property
    def implausible(self) -> bool:
        """Whether hardly any answer is right, or of all classes together no more than by guessing."""
        share = self.right / self.images if self.images else 1.0
        at_chance = self.classes > 1 and self.balanced <= 1 / self.classes
        return self.images >= LEAST_IMAGES and (share < HARDLY_ANY or at_chance)


def accuracies(cells: Sequence[Cell]) -> list[Accuracy]:
    """Returns the accuracy of each classifier, its classes' images together.

    Of each class those of the attribute with the most answers are counted, each image once: of labelled images all
    whose value is known.
    """
    most_of: dict[str, dict[str, tuple[int, int]]] = {}
    for (classifier, target, _), members in _groups(cells).items():
        most = most_of.setdefault(classifier, {})
        counted = sum(cell.n for cell in members), sum(cell.correct for cell in members)
        most[target] = max(most.get(target, (0, 0)), counted, key=lambda pair: pair[0])
    result = []
    for classifier, most in most_of.items():
        images, right = (sum(pair[i] for pair in most.values()) for i in (0, 1))
        shares = [correct / n for n, correct in most.values() if n]
        result.append(Accuracy(classifier, right, images, sum(shares) / max(1, len(shares)), len(shares)))
    return result


def accuracy_line(of: Accuracy, confidence: float) -> str:
    if not of.images:
        return f"{of.classifier}: no image has an answer."
    low, high = wilson_interval(of.right, of.images, confidence)
    return (
        f"{of.classifier}: {words.count(of.right)} of {words.plural(of.images, 'answer')} "
        f"{'is' if of.images == 1 else 'are'} right ({words.percent(of.right / of.images)}; "
        f"{words.percent_range(float(low), float(high))})."
    )


def implausible_line(of: Accuracy) -> str:
    """Returns what may be wrong with a classifier that is hardly ever right; "" where nothing has to be."""
    if not of.implausible:
        return ""
    guessing = (
        f"; guessing among {of.classes:,} classes gives {words.percent(1 / of.classes)}" if of.classes > 1 else ""
    )
    return (
        f"{of.classifier}: only {words.count(of.right)} of {words.count(of.images)} answers are right "
        f"({words.percent(of.right / of.images)}{guessing}). If that is a surprise, look at the set-up before the "
        f"findings: {CAUSES}."
    )


def near_misses(cells: Sequence[Cell], tau: float) -> list[Cell]:
    """Returns the largest differences that the images at hand do not settle: of each class and attribute without a
    finding the open cell of the largest |φ| beyond τ that at most `NEAR` times its images would settle."""
    near = []
    for members in _groups(cells).values():
        left = [cell for cell in members if cell.verdict == "undetermined" and cell.size > tau]
        left = [cell for cell in left if 0 < (cell.images_to_settle or 0) <= NEAR * cell.n and not cell.doubt]
        if left and not any(cell.is_finding for cell in members):
            near.append(max(left, key=lambda cell: cell.size))
    return sorted(near, key=lambda cell: -cell.weight)[:MOST_NEAR]


def near_line(cell: Cell, several: bool) -> str:
    who = f"{cell.classifier}: " if several else ""
    return (
        f"not settled: {who}{cell.target_class}, {cell.attribute}: {cell.bias_class}: φ {words.signed(cell.phi)} "
        f"({words.signed_range(cell.phi_low, cell.phi_high)}) on {words.plural(cell.n, 'image')}; about "
        f"{words.count(cell.images_to_settle or 0)} images of each of its values would settle it."
    )


def next_step(near: Sequence[Cell], config: Mapping[str, Any]) -> str:
    """Returns what to do about open differences; "" where there are none."""
    if not near:
        return ""
    wanted = max(cell.images_to_settle or 0 for cell in near)
    images = config.get("images")
    if isinstance(images, Mapping) and images.get("source") == "labelled":
        return (
            "next: more labelled images of these classes and values; or `c2b failures` on the same table, which looks "
            "for combinations of values that fail together"
        )
    if config.get("budget"):
        return "next: a larger `budget`, which goes on from the images at hand"
    per_caption = ceil(wanted / max(1, int(config.get("captions_per_cell") or 1)))
    return (
        f"next: `images_per_caption: {per_caption}` draws that many; `budget: {{images: N}}` draws images until each "
        "is settled or N are used; `c2b failures` looks for captions that fail"
    )


def _groups(cells: Iterable[Cell]) -> dict[tuple[str, str, str], list[Cell]]:
    """Returns the cells of each classifier, class and attribute."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.classifier, cell.target_class, cell.attribute), []).append(cell)
    return groups
