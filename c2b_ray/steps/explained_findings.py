"""Finds which findings of derived attributes are only seen through a stronger one's images.

A dark picture has little contrast, few colours and a low entropy, so a classifier that fails in the dark has findings
in all of these. `group` puts findings together whose images are mostly the same; of measurements that go together
loosely it leaves some apart. Here a finding is put beneath a stronger one where nothing is left of it without the
stronger one's images.

It knows verdicts, answers and which images each cell drew; it does not know how groups are shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pyarrow as pa

from c2b_ray.metrics import bias_scores
from c2b_ray.schemas import SCORES
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellName, Group
from c2b_ray.steps.group import OPPOSITE, strongest_first
from c2b_ray.steps.score_row import ScoreRow


def explained(scores: pa.Table, answers: Mapping[str, CellAnswers], derived: AbstractSet[str], tau: float) -> pa.Table:
    """Returns the scores, a finding that a stronger one explains in the group of that one, with the reason.

    `scores`: with groups (`group.grouped`). `answers`: by classifier. `derived`: the derived attributes; of two other
    attributes none explains the other. Strongest first, a finding that leads a group joins that of the first lead
    before it, of another attribute of its class, without whose images its φ is at most `tau`, or has the other sign;
    so do the findings of its attribute that mirror it. Verdicts, φ and the family of tests stay as they are.
    """
    rows = scores.to_pylist()
    leads: dict[tuple[str, str], list[ScoreRow]] = defaultdict(list)
    for row in sorted(rows, key=strongest_first):
        if row["verdict"] not in OPPOSITE or row["group_reason"] is not None:
            continue
        before = leads[row["classifier"], row["target_class"]]
        for lead in before:
            if lead["attribute"] == row["attribute"] or derived.isdisjoint({lead["attribute"], row["attribute"]}):
                continue
            phi = _phi_without(row, lead, answers[row["classifier"]])
            if phi is None or phi * np.sign(row["phi"]) <= tau:
                _join(row, lead, rows, phi)
                break
        else:
            before.append(row)
    return pa.Table.from_pylist(rows, SCORES)


def _phi_without(row: ScoreRow, lead: ScoreRow, answers: CellAnswers) -> float | None:
    """Returns the φ of a row on the images that are not in the lead's cell; None where it has none left, or nothing to
    compare with."""
    cells = answers.cells
    group = cells.group_named[Group(row["target_class"], row["attribute"])]
    theirs = cells.of_cell(cells.number[CellName(lead["target_class"], lead["attribute"], lead["bias_class"])])
    here = cells.rows(group.cells)
    kept = answers.answered[here] & ~np.isin(cells.image[here], theirs)
    places = (cells.cell[here] - group.cells.start)[kept]
    size = len(group.values)
    right = np.bincount(places[answers.right[here][kept]], minlength=size)
    phi = float(bias_scores(right, np.bincount(places, minlength=size))[group.values.index(row["bias_class"])])
    return None if np.isnan(phi) else phi


def _join(row: ScoreRow, lead: ScoreRow, rows: Sequence[ScoreRow], phi: float | None) -> None:
    """Puts a finding, and those that are in its group, into the lead's."""
    left = "no image is left" if phi is None else f"φ is {phi:+.2f}"
    row["group_reason"] = f"without the images of {lead['attribute']}: {lead['bias_class']} {left}"
    former = row["group"]
    for other in rows:
        same = all(other[name] == row[name] for name in ("classifier", "target_class"))
        if same and other["group"] == former:
            other["group"] = lead["group"]
