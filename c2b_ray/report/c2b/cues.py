"""Attributes whose values are themselves classes: does the classifier follow the attribute or the class?

A picture of a cat with an elephant's texture may be called a cat or an elephant. Of the answers that are one of the
two, the share that names the class is the cue-conflict literature's shape bias (Geirhos et al. 2019). Knows cells and
words, not images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from c2b_ray.metrics import wilson_interval
from c2b_ray.report.c2b.ranking import Cell
from c2b_ray.report.kit import words


def cues(cells: Sequence[Cell], names: Mapping[str, str], confidence: float) -> tuple[str, ...]:
    """Returns a sentence per classifier and attribute with values that are classes; none where there are no such
    answers."""
    conflicts: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        if cell.answered_bias_class is not None and cell.target_class.lower() != cell.bias_class.lower():
            conflicts.setdefault((cell.classifier, cell.attribute), []).append(cell)
    sentences = []
    for (classifier, attribute), conflict in conflicts.items():
        followed = sum(cell.correct for cell in conflict)
        misled = sum(cell.answered_bias_class or 0 for cell in conflict)
        if followed + misled:
            sentences.append(_sentence(names[classifier], attribute, followed, misled, confidence))
    return tuple(sentences)


def _sentence(name: str, attribute: str, followed: int, misled: int, confidence: float) -> str:
    low, high = wilson_interval(misled, followed + misled, confidence)
    lead = "drives the answers" if low > 0.5 else "misleads less often than not" if high < 0.5 else "weighs as much"
    return (
        f"{name}: {attribute} {lead}. Where {attribute} and class name different classes and the answer is one of the "
        f"two, {misled} of {followed + misled} answers follow {attribute} "
        f"({words.percent(misled / (followed + misled))}, {words.percent(confidence)} interval "
        f"{words.percent_range(float(low), float(high))}) and {followed} the class."
    )
