"""predictions → which verdicts are settled, whenever one looks: what a sequential budget goes by.

It forms rounds, one image of every cell of an attribute, in the order of drawing, and knows which group still needs
images. The evidence is `metrics.sequential`'s; where images come from is the caller's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

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
    groups, evidence, limits = [], [], []
    for group, drawn in images_of_cells(captions, draws).items():
        cells = drawn if verified is None else verified.sorted_by_value(group, drawn)
        outcomes = _rounds(group[0], cells, order, answers)
        groups.append((group, tuple(drawn)))
        evidence.append(metrics.sequential_evidence(outcomes, tau))
        limits.append(metrics.confidence_sequence(outcomes, 1 - alpha))
    whole = joined(evidence)
    low, high = (np.concatenate([pair[i] for pair in limits] or [np.zeros(0)]) for i in (0, 1))
    return Look(tuple(groups), whole, low, high, metrics.sequential_verdicts(whole, tau, alpha))


def settled(scores: pa.Table, looks: Sequence[tuple[str, Look]]) -> pa.Table:
    """Scores whose limits, p-values and verdicts hold though one looked again and again.

    p = 1/e; limits of φ are the hull of the score's own and of the confidence sequence. A doubt about images stays;
    groups of findings, which went by the score's own verdicts, do not: `grouped` finds them anew.
    """
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for classifier, at in looks:
        claimed = np.where(at.evidence.phi > 0, at.evidence.above_tau, at.evidence.below_minus_tau)
        p = np.where(np.isnan(at.evidence.phi), np.nan, 1 / np.maximum(claimed, 1.0))
        cells = [(classifier, *group, value) for group, values in at.groups for value in values]
        columns = zip(cells, p, metrics.benjamini_hochberg(p), at.low, at.high, at.verdicts, strict=True)
        for cell, p_value, q_value, low, high, verdict in columns:
            found[cell] = {"p_value": p_value, "q_value": q_value, "low": low, "high": high, "verdict": verdict}
    rows = scores.to_pylist()
    for row in rows:
        new = found[row["classifier"], row["target_class"], row["attribute"], row["bias_class"]]
        row["phi_low"], row["phi_high"] = min(row["phi_low"], new["low"]), max(row["phi_high"], new["high"])
        if row["doubt"] is None:
            row |= {name: new[name] for name in ("p_value", "q_value", "verdict")}
        row["group"] = row["group_reason"] = None
        if row["verdict"] != "undetermined":
            row["images_to_settle"] = None
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
