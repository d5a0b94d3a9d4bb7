"""predictions → which verdicts are settled, whenever one looks: what a sequential budget goes by.

It forms rounds, one image of every cell of an attribute, in the order of drawing, and knows which group still needs
images. The evidence is `metrics.sequential`'s; where images come from is the caller's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.metrics.sequential import Evidence, joined
from c2b_ray.metrics.testing import Verdict
from c2b_ray.schemas import SCORES
from c2b_ray.steps.score import Group, answers_of, images_of_cells
from c2b_ray.steps.verified import Verified


@dataclass(frozen=True)
class Look:
    """What one classifier's answers say by now of every cell, in the order of the captions' cells."""

    groups: tuple[tuple[Group, tuple[str, ...]], ...]
    evidence: Evidence
    low: metrics.Floats
    high: metrics.Floats
    verdicts: list[Verdict]
    rounds: metrics.Ints
    """That a cell's group had, of one image of each of its cells."""
    needed: metrics.Ints
    """Rounds that would settle the cell; -1 where no number is known."""

    @property
    def open(self) -> set[Group]:
        """The groups with a cell that is not settled."""
        cells = [group for group, values in self.groups for _ in values]
        return {group for group, verdict in zip(cells, self.verdicts, strict=True) if verdict == "undetermined"}


def look(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifier: str,
    levels: tuple[float, float],
    verified: Verified | None = None,
) -> Look:
    """Evidence by now; `levels` are τ and α. Verified images count for the value that they show, repeats once."""
    tau, alpha = levels
    order = _order(draws)
    answers = answers_of(predictions, classifier)
    groups, seen = [], []
    for group, drawn in images_of_cells(captions, draws).items():
        cells = drawn if verified is None else verified.sorted_by_value(group, drawn)
        groups.append((group, tuple(drawn)))
        seen.append(_rounds(group[0], cells, order, answers))
    evidence = joined([metrics.sequential_evidence(outcomes, tau) for outcomes in seen])
    verdicts = metrics.sequential_verdicts(evidence, tau, alpha)
    limits = [metrics.confidence_sequence(outcomes, 1 - alpha) for outcomes in seen]
    low, high = (_in_a_row([pair[i] for pair in limits]) for i in (0, 1))
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    step = alpha * min(1.0, (1 + sum(v in ("for", "against") for v in verdicts)) / max(1, len(verdicts)))
    needed = _in_a_row([metrics.rounds_to_settle(outcomes, tau, alpha, step) for outcomes in seen]).astype(np.int64)
    rounds = np.array([len(outcomes) for outcomes in seen for _ in range(outcomes.shape[1])], np.int64)
    return Look(tuple(groups), evidence, low, high, verdicts, rounds, needed)


def _in_a_row(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([*parts, np.zeros(0)])


def settled(scores: pa.Table, looks: Sequence[tuple[str, Look]]) -> pa.Table:
    """Scores whose limits, p-values and verdicts hold though one looked again and again.

    p = 1/e; limits of φ are the hull of the score's own and of the confidence sequence; the images that would settle a
    verdict are those that this evidence takes, more than a test of a fixed number. A doubt about images stays; groups
    of findings, which went by the score's own verdicts, do not: `grouped` finds them anew.
    """
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for classifier, at in looks:
        claimed = np.where(at.evidence.phi > 0, at.evidence.above_tau, at.evidence.below_minus_tau)
        p = np.where(np.isnan(at.evidence.phi), np.nan, 1 / np.maximum(claimed, 1.0))
        cells = [(classifier, *group, value) for group, values in at.groups for value in values]
        names = ("p_value", "q_value", "low", "high", "verdict", "rounds", "needed")
        columns = (p, metrics.benjamini_hochberg(p), at.low, at.high, at.verdicts, at.rounds, at.needed)
        for cell, *values in zip(cells, *columns, strict=True):
            found[cell] = dict(zip(names, values, strict=True))
    rows = scores.to_pylist()
    for row in rows:
        new = found[row["classifier"], row["target_class"], row["attribute"], row["bias_class"]]
        row["phi_low"], row["phi_high"] = min(row["phi_low"], new["low"]), max(row["phi_high"], new["high"])
        if row["doubt"] is None:
            row |= {name: new[name] for name in ("p_value", "q_value", "verdict")}
        row["group"] = row["group_reason"] = None
        still_open = row["verdict"] == "undetermined" and row["doubt"] is None and new["needed"] > 0
        # A round takes one image that shows the value; of those drawn for it, not all may.
        row["images_to_settle"] = ceil(new["needed"] * max(1.0, row["n"] / new["rounds"])) if still_open else None
    return pa.Table.from_pylist(rows, SCORES)


def _order(draws: pa.Table) -> dict[str, int]:
    """When each image was drawn: its least rank."""
    order: dict[str, int] = {}
    for image, rank in zip(draws["image_id"].to_pylist(), draws["rank"].to_pylist(), strict=True):
        order[image] = min(rank, order.get(image, rank))
    return order


def _rounds(
    target: str, cells: dict[str, set[str]], order: dict[str, int], answers: dict[str, str | None]
) -> metrics.Floats:
    """Right (1) or wrong (0) of shape (rounds, cells): each cell's answered images, in the order of drawing."""
    columns = [
        [float(answers[i] == target) for i in sorted(images, key=lambda i: (order[i], i)) if answers.get(i) is not None]
        for images in cells.values()
    ]
    rounds = min(map(len, columns), default=0)
    return np.array([column[:rounds] for column in columns]).T.reshape(rounds, len(columns))
