"""Decides from logits what an image was taken for, and for which classes that answer is right.

There are three rules. `top1` (Classifier-to-Bias, CVPR 2025, section 3.2): the likeliest label of the classifier's
whole label space lies in the class's set of labels. `top5`: one of the five likeliest does. `among_classes`: among the
task's classes only, the one with the highest probability, the mean over its labels. All are decided on logits in
float64, because softmax in float32 creates ties between different answers. It knows numbers and names, not images or
where logits come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from c2b_ray.config import Right

FIVE = 5
SAME = 1e-6
"""Mean log-probabilities of classes of several labels that differ by less are equal: float32 logits carry no more."""
NO_ANSWER = "the classifier gave no answer (its logits are not numbers)"

_NONE = float(np.log(np.finfo(np.float32).tiny)) + 1e-3  # what tables and ONNX files of probabilities have for 0
_LISTED = 3

Logits = NDArray[np.float64]


@dataclass(frozen=True)
class ClassAnswer:
    """One image's answer.

    `label` is None where several labels are likeliest, `predicted_class` where the answer lies outside the classes.
    `answered`: the classes for which it counts by `top5`. `undecided`: why there is no single answer.
    """

    label: str | None
    label_probability: float | None
    predicted_class: str | None
    class_probability: float | None
    answered: list[str] | None
    undecided: str | None


@dataclass(frozen=True)
class Classes:
    """The task's classes and the positions of the labels that stand for each; no two classes share a label."""

    names: tuple[str, ...]
    labels: tuple[tuple[int, ...], ...]

    @property
    def of_label(self) -> dict[int, int]:
        return {label: number for number, positions in enumerate(self.labels) for label in positions}


def answers(
    logits: NDArray[np.floating], labels: Sequence[str], classes: Classes, rule: Right
) -> list[ClassAnswer | None]:
    """Returns an answer per row of `logits` (images, labels); None where they are not numbers (NaN or +inf)."""
    # −inf is a legal logit: a probability of 0.
    rows = np.asarray(logits, np.float64)
    sound = (rows.max(axis=1, initial=-np.inf) < np.inf).tolist()  # a maximum with NaN is NaN, which is not below
    of_label = classes.of_label
    if rule == "top1":
        return _decided(rows, sound, labels, classes)
    return [
        _answer(row, labels, classes, of_label, rule) if good else None for row, good in zip(rows, sound, strict=True)
    ]


def _decided(rows: Logits, sound: Sequence[bool], labels: Sequence[str], classes: Classes) -> list[ClassAnswer | None]:
    """Does the work of `_answer` by the rule `top1` for all rows at once; rows without a single likeliest label go one
    by one."""
    of_label, best = classes.of_label, rows.max(axis=1, initial=-np.inf)
    single = (((rows == best[:, None]).sum(axis=1) == 1) & (best > -np.inf)).tolist()
    likeliest = rows.argmax(axis=1).tolist() if len(labels) else []
    with np.errstate(all="ignore"):  # of rows that are no numbers
        whole = _log_sums(rows, best)
        share = np.exp(best - whole).tolist()
    result: list[ClassAnswer | None] = []
    for at, row in enumerate(rows):
        if not sound[at]:
            result.append(None)
        elif not single[at]:
            result.append(_answer(row, labels, classes, of_label, "top1"))
        elif (number := of_label.get(likeliest[at])) is None:
            result.append(ClassAnswer(labels[likeliest[at]], share[at], None, None, None, None))
        else:
            positions = classes.labels[number]
            of_class = share[at] if len(positions) == 1 else float(np.exp(_log_mean(row, positions) - whole[at]))
            result.append(ClassAnswer(labels[likeliest[at]], share[at], classes.names[number], of_class, None, None))
    return result


def _answer(
    row: Logits, labels: Sequence[str], classes: Classes, of_label: Mapping[int, int], rule: Right
) -> ClassAnswer:
    certain, tied = _likeliest(row, 1)
    if not certain and not tied:
        return ClassAnswer(None, None, None, None, [] if rule == "top5" else None, "no label has any probability")
    whole = float(_log_sums(row[None], row[None].max(axis=1))[0])
    label = labels[certain[0]] if certain else None
    answered, undecided = None, None
    if rule == "among_classes":
        predicted, undecided = _likeliest_class(row, whole, classes)
    else:
        counted = _counted(certain, tied, 1, of_label)
        predicted = counted[0] if counted else None
        if rule == "top5":
            answered = [classes.names[number] for number in _counted(*_likeliest(row, FIVE), FIVE, of_label)]
        if label is None and predicted is None and not answered:
            undecided = _tie([labels[position] for position in tied], "label")
    return ClassAnswer(
        label,
        float(np.exp(row.max() - whole)),
        None if predicted is None else classes.names[predicted],
        None if predicted is None else float(np.exp(_log_mean(row, classes.labels[predicted]) - whole)),
        answered,
        undecided,
    )


def _log_sums(rows: Logits, best: Logits) -> Logits:
    """Returns the logarithm of the sum of exp of each row, whose largest values are `best`."""
    sums: Logits = best + np.log(np.exp(rows - best[:, None]).sum(axis=1))  # a fifth of the time of logaddexp
    return sums


def _likeliest(row: Logits, k: int) -> tuple[list[int], list[int]]:
    """Returns the labels that are certainly among the k likeliest, and those that tie for the last ranks."""
    possible = np.flatnonzero(row > -np.inf)
    if len(possible) <= k:
        return possible.tolist(), []
    last = np.partition(row, -k)[-k]
    certain, tied = np.flatnonzero(row > last).tolist(), np.flatnonzero(row == last).tolist()
    return (certain + tied, []) if len(certain) + len(tied) == k else (certain, tied)


def _counted(certain: Sequence[int], tied: Sequence[int], k: int, of_label: Mapping[int, int]) -> list[int]:
    """Returns the classes with a label among the k likeliest, however ties at the last rank are broken."""
    sure = {of_label[position] for position in certain if position in of_label}
    free = k - len(certain)
    of_class = Counter(of_label[position] for position in tied if position in of_label)
    return sorted(sure | {number for number, n_tied in of_class.items() if len(tied) - n_tied < free})


def _likeliest_class(row: Logits, whole: float, classes: Classes) -> tuple[int | None, str | None]:
    means = np.array([_log_mean(row, positions) for positions in classes.labels])
    best = means.max()
    if best == -np.inf:
        return None, "no class has any probability"
    several = any(len(positions) > 1 for positions in classes.labels)
    equal = np.flatnonzero(means >= best - (SAME if several else 0)).tolist()
    if len(equal) == 1:
        return equal[0], None
    if best - whole <= _NONE:
        return None, "no class has any probability"
    return None, _tie([classes.names[number] for number in equal], "class")


def _log_mean(row: Logits, positions: Sequence[int]) -> float:
    """Returns the logarithm of the mean of exp over a class's labels; −inf where none has any probability."""
    return float(np.logaddexp.reduce(row[list(positions)]) - np.log(len(positions)))


def _tie(names: Sequence[str], what: str) -> str:
    plural = "classes" if what == "class" else f"{what}s"
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} {plural} are equally likely: {', '.join(names[:_LISTED])}{more}"
