"""predictions → which verdicts are settled, whenever one looks: what a sequential budget goes by.

It forms rounds, one image of every cell of an attribute, in the order of drawing, and knows which group still needs
images. A round that was looked at never changes, whatever is drawn later: only so may evidence be looked at again and
again. The evidence is `metrics.sequential`'s; where images come from is the caller's business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.metrics.sequential import Evidence, joined
from c2b_ray.schemas import SCORES
from c2b_ray.steps.answers import Taken, answers_of
from c2b_ray.steps.cells import images_of_cells
from c2b_ray.steps.doubts import LEAST_SHOWN
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.intersect import is_pair
from c2b_ray.steps.judge import TOO_FEW, can_be_clear
from c2b_ray.steps.verified import Group, Verified

SURE_OF_DOUBT = 100
"""Images of a cell from which on a doubt about them stays: on fewer it may be chance, and more may lift it."""


@dataclass(frozen=True)
class Look:
    """What one classifier's answers say by now of every cell, in the order of the captions' cells."""

    groups: tuple[tuple[Group, tuple[str, ...]], ...]
    outcomes: tuple[metrics.Floats, ...]
    """Of each group, right (1) or wrong (0) of shape (rounds, cells)."""
    evidence: Evidence
    low: metrics.Floats
    high: metrics.Floats


def look(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifier: str,
    levels: tuple[float, float],
    verified: Verified | None = None,
    distinct: Distinct | None = None,
) -> Look:
    """Evidence by now; `levels` are τ and α. Verified images count for the value that they show; near-duplicates once,
    at the rank of the first."""
    tau, alpha = levels
    orders = orders_of_drawing(captions, draws)
    answers = answers_of(predictions, classifier)
    groups, outcomes = [], []
    for group, drawn in images_of_cells(captions, draws).items():
        order = orders[group]
        if verified is not None:
            whole = _together(order)
            cells, order = verified.sorted_by_value(group, drawn, whole), dict.fromkeys(drawn, whole)
        elif distinct is not None:
            cells = {value: distinct.distinct(images, order[value]) for value, images in drawn.items()}
        else:
            cells = drawn
        groups.append((group, tuple(drawn)))
        outcomes.append(_rounds(group[0], cells, order, answers.of(group[0])))
    limits = [metrics.confidence_sequence(of_group, 1 - alpha) for of_group in outcomes]
    low, high = (_in_a_row([pair[i] for pair in limits]) for i in (0, 1))
    evidence = joined([metrics.sequential_evidence(of_group, tau) for of_group in outcomes])
    return Look(tuple(groups), tuple(outcomes), evidence, low, high)


def settled(scores: pa.Table, looks: Sequence[tuple[str, Look]], tau: float, alpha: float) -> pa.Table:
    """Scores whose limits, p-values and verdicts hold though one looked again and again.

    p = 1/e; limits of φ are the hull of the score's own and of the confidence sequence; the images that would settle a
    verdict are those that this evidence takes, more than a test of a fixed number. Cells in doubt stay undetermined
    and out of the family. Evidence is gathered image by image, as the verifier sorts them, and knows neither of its
    errors nor of what captions add to chance: so a verdict also takes that the score, by itself, says the same, and
    `none` that the images of the values are known to differ. Groups of findings, which went by the score's own
    verdicts, are left out: `grouped` finds them anew.
    """
    rows = scores.to_pylist()
    place = {(row["classifier"], row["target_class"], row["attribute"], row["bias_class"]): row for row in rows}
    for classifier, at in looks:
        own = [place[classifier, *group, value] for group, values in at.groups for value in values]
        _settle(own, at, tau, alpha)
    return pa.Table.from_pylist(rows, SCORES)


def _settle(rows: Sequence[dict[str, Any]], at: Look, tau: float, alpha: float) -> None:
    """Rewrites the rows of one classifier, in the look's order."""
    trusted = np.array([row["doubt"] is None for row in rows], dtype=bool)
    p = np.where(trusted, metrics.sequential_p_values(at.evidence), np.nan)
    verdicts = metrics.sequential_verdicts(at.evidence, tau, alpha, trusted)
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    step = alpha * min(1.0, (1 + sum(v in ("for", "against") for v in verdicts)) / max(1, int(trusted.sum())))
    needed = _in_a_row([metrics.rounds_to_settle(of_group, tau, alpha, step) for of_group in at.outcomes])
    rounds = [len(of_group) for of_group in at.outcomes for _ in range(of_group.shape[1])]
    columns = (p, metrics.benjamini_hochberg(p), at.low, at.high, verdicts, needed, rounds)
    for row, p_value, q_value, low, high, verdict, most, had in zip(rows, *columns, strict=True):
        borne_out = _says(row, verdict, tau, alpha)
        agreed = verdict if borne_out and (verdict != "none" or can_be_clear(row)) else "undetermined"
        row |= {"verdict": agreed, "p_value": p_value, "q_value": q_value, "group": None, "group_reason": None}
        row["phi_low"], row["phi_high"] = min(row["phi_low"], low), max(row["phi_high"], high)
        still_open = agreed == "undetermined" and row["doubt"] is None and most > 0
        still_open = still_open and (abs(row["phi"]) > tau or can_be_clear(row))
        because = row["undetermined_because"] or TOO_FEW
        row["undetermined_because"] = because if agreed == "undetermined" else None
        # A round takes one image that shows the value; of those drawn for it, not all may.
        row["images_to_settle"] = ceil(most * max(1.0, row["n"] / had)) if still_open else None


def _says(row: Mapping[str, Any], verdict: str, tau: float, alpha: float) -> bool:
    """Whether the score of a row, for its own number of images, bears a verdict out."""
    if verdict == "none":
        return bool(-tau <= row["phi_low"] and row["phi_high"] <= tau)
    return bool(row["p_value"] <= alpha and (row["phi"] > 0) == (verdict == "for"))


def open_groups(scores: pa.Table) -> set[Group]:
    """The (target class, attribute) pairs that more images may settle, for any classifier.

    A cell is open while it is undetermined, unless a doubt about `SURE_OF_DOUBT` or more images says why. A group is
    closed by one whose images do not show its value: rounds of one image of each value do not come about.
    """
    found = set()
    names = ("classifier", "target_class", "attribute")
    rows = scores.select([*names, "verdict", "doubt", "n", "shown"]).to_pylist()
    for (_, *group), cells in groupby(rows, key=lambda row: tuple(row[name] for name in names)):
        left = [cell for cell in cells if cell["verdict"] == "undetermined"]
        stuck = [cell for cell in left if cell["doubt"] is not None and cell["n"] >= SURE_OF_DOUBT]
        starved = any(not (cell["shown"] or 0.0) >= LEAST_SHOWN for cell in stuck)
        if len(left) > len(stuck) and not starved:
            found.add((group[0], group[1]))
    return found


def _in_a_row(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([*parts, np.zeros(0)])


def orders_of_drawing(captions: pa.Table, draws: pa.Table) -> dict[Group, dict[str, dict[str, int]]]:
    """Of every group and bias class, its images by when the cell drew them: 0 is the first.

    A cell's order is its own: where another cell ranks an image does not move it. Captions of a cell draw by turns, in
    the order of the captions, and sources side by side: so what a cell draws when it is granted more comes after all
    that it has, and rounds that were looked at stay as they were.
    """
    columns = ("caption_id", "proposal_id", "target_class", "attribute", "bias_class")
    rows = zip(*(captions[name].to_pylist() for name in columns), strict=True)
    cell_of = {
        caption: (turn, (target, attribute), value)
        for turn, (caption, proposal, target, attribute, value) in enumerate(rows)
        if not is_pair(proposal)
    }
    turns: dict[tuple[Group, str], dict[str, list[tuple[int, int, str]]]] = defaultdict(lambda: defaultdict(list))
    orders: dict[Group, dict[str, dict[str, int]]] = defaultdict(dict)
    for _, group, value in cell_of.values():
        orders[group].setdefault(value, {})
    drawn = (draws[name].to_pylist() for name in ("caption_id", "image_id", "rank", "source"))
    for caption, image, rank, source in zip(*drawn, strict=True):
        if caption in cell_of:
            turn, group, value = cell_of[caption]
            turns[group, value][source].append((rank, turn, image))
    for (group, value), sources in turns.items():
        # A source whose captions run out has higher ranks for as many images: its own count goes, not the rank.
        sequence = sorted(
            (number, source, image)
            for source, draw in sources.items()
            for number, image in enumerate(dict.fromkeys(image for _, _, image in sorted(draw)))
        )
        orders[group][value] = _numbered(image for _, _, image in sequence)
    return orders


def _together(orders: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """A group's images by when any of its cells drew them, the cells by turns."""
    turns = ((number, cell, image) for cell, order in enumerate(orders.values()) for image, number in order.items())
    return _numbered(image for _, _, image in sorted(turns))


def _numbered(images: Iterable[str]) -> dict[str, int]:
    return {image: number for number, image in enumerate(dict.fromkeys(images))}


def _rounds(
    target: str, cells: Mapping[str, set[str]], orders: Mapping[str, Mapping[str, int]], answers: Taken
) -> metrics.Floats:
    """Right (1) or wrong (0) of shape (rounds, cells): each cell's answered images, in the order of drawing."""
    columns = []
    for value, images in cells.items():
        given = [answers.get(image) for image in sorted(images, key=orders[value].__getitem__)]
        columns.append([float(answer == target) for answer in given if answer is not None])
    rounds = min(map(len, columns), default=0)
    return np.array([column[:rounds] for column in columns]).T.reshape(rounds, len(columns))
