"""Tries an ONNX graph on the trial pictures: whether it answers alike each time and in any batch, and with what kind
of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from c2b_ray.errors import ServiceError, WeightsError
from c2b_ray.models.trial_pictures import trial_pictures
from c2b_ray.roles import Floats, Pixels

ALONE = 3
"""So many of the last pictures are also answered one by one."""
LIKE, OTHER = 1e-2, 0.05
"""How far an answer in a batch may be from the answer to the picture alone, as a part of how far answers differ at all:
what half precision in another order makes; and from where on it is another answer."""

Rows = Callable[[Sequence[Pixels]], Floats]


@dataclass(frozen=True)
class Trial:
    """The numbers on the trial pictures, float32 (pictures, labels); `alone`: why pictures are answered one by one,
    or ""."""

    rows: Floats
    alone: str = ""


def tried(answer: Rows, batch: int, size: tuple[int, int], spec: str) -> Trial:
    """Returns the numbers of a graph on the trial pictures.

    `answer` takes up to `batch` pictures at once. Raises WeightsError where no picture is answered, where
    answers change from one time to the next, or where pictures of one batch change each other's answers.
    """
    pictures = trial_pictures(*size)
    try:
        single = np.concatenate([answer([picture]) for picture in pictures[-ALONE:]])
        repeated = answer([pictures[-1]])
    except ServiceError as error:
        raise WeightsError(f"{spec}: {error}") from error
    finite = single[np.isfinite(single).all(axis=1)]
    span = max(float(np.ptp(finite, axis=0).max()), 1e-6 * float(np.abs(finite).max())) if len(finite) else 0.0
    if _apart(single[-1:], repeated, span) > LIKE:
        raise WeightsError(
            f"{spec}: the graph gives two answers to one picture, so it draws at random: it was exported in training "
            "mode; export it after model.eval()"
        )
    if batch == 1:
        return Trial(np.concatenate([*(answer([picture]) for picture in pictures[:-ALONE]), single]))
    try:
        parts = [answer(pictures[start : start + batch]) for start in range(0, len(pictures), batch)]
        rows = np.concatenate(parts)
    except (ServiceError, ValueError):  # ValueError: batches of other widths
        rows = single[:0]
    if rows.shape == (len(pictures), single.shape[1]):
        deviation = _apart(rows[-ALONE:], single, span)
        if deviation <= LIKE:
            return Trial(rows)
        if deviation > OTHER:
            raise WeightsError(
                f"{spec}: the graph answers a picture otherwise in a batch of {min(batch, len(pictures))} than alone, "
                "so pictures change each other's answers: it was exported in training mode (model.eval() before the "
                "export mends it), or ?batch=1 states that pictures are answered alone"
            )
        reason = "answers in a batch differ a little"
    else:
        reason = "the graph holds a batch of one"
    return Trial(np.concatenate([*(answer([picture]) for picture in pictures[:-ALONE]), single]), reason)


def _apart(left: Floats, right: Floats, span: float) -> float:
    """Returns the largest difference as a part of `span`; infinite where one has a number and the other none."""
    if left.shape != right.shape or (np.isnan(left) != np.isnan(right)).any():
        return float("inf")
    with np.errstate(invalid="ignore"):
        differences = np.where(left == right, 0, np.abs(left - right))
    largest = float(np.nanmax(differences, initial=0))
    return largest / span if span else float("inf") if largest else 0.0
