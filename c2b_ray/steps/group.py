"""Findings that say the same are told once: which of them rest on the same images, or mirror one another.

It knows verdicts, accuracies and which images each cell drew; it does not know how groups are shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.schemas import SCORES

JACCARD = 0.5
ASSOCIATION = 0.7  # Cramer's V of two values among the images that both attributes know
SHARED = 0.5  # of either attribute's images that the other must know for that
OPPOSITE = {"for": "against", "against": "for"}

Row = dict[str, Any]
Cells = Mapping[tuple[str, str], Mapping[str, set[str]]]
"""Of every (target class, attribute), the images of each bias class."""


def grouped(scores: pa.Table, cells: Cells, tau: float) -> pa.Table:
    """The scores with `group` and `group_reason`: findings of one classifier and class that say the same share a
    number, counted from 1 by the largest |φ| of a group, whose finding leads it and has no reason.

    Strongest first, a finding joins the group of the strongest one before it that explains it, else leads one:
      complement   it is the other value of an attribute of two
      mirror       its φ is within ±tau once the values that stand by themselves are left out: one by one, each time
                   the one with the largest |φ| among those left, as long as that is beyond tau
      same images  of another attribute, same verdict, and the Jaccard index of the two image sets is `JACCARD` or more;
                   or, where each attribute knows half of the other's images, Cramér's V of the two values is
                   `ASSOCIATION` or more. With the opposite verdict and a negative association: complements.
      same as      of another attribute, same verdict, and `same_as` of either names the other
    """
    rows = scores.to_pylist()
    found = sorted((row for row in rows if row["verdict"] in OPPOSITE), key=_strongest_first)
    members: dict[tuple[str, str], list[Row]] = defaultdict(list)
    groups = 0
    for row in found:
        before = members[row["classifier"], row["target_class"]]
        values = _values(rows, row)
        explained = next(((lead, why) for lead in before if (why := _reason(row, lead, values, cells, tau))), None)
        if explained is None:
            groups += 1
            row["group"] = groups
        else:
            row["group"], row["group_reason"] = explained[0]["group"], explained[1]
        before.append(row)
    return pa.Table.from_pylist(rows, SCORES)


def _strongest_first(row: Row) -> tuple[float, float, str, str, str, str]:
    names = (row["classifier"], row["target_class"], row["attribute"], row["bias_class"])
    return (-round(abs(row["phi"]), 9), row["phi"], *names)  # of two equal ones the one against


def _values(rows: Sequence[Row], of: Row) -> list[Row]:
    keys = ("classifier", "target_class", "attribute")
    return [row for row in rows if all(row[key] == of[key] for key in keys)]


def _reason(row: Row, lead: Row, values: Sequence[Row], cells: Cells, tau: float) -> str | None:
    """Why `row` says what the stronger `lead` says already; None where it does not."""
    if row["attribute"] == lead["attribute"]:
        return _mirror(row, lead, values, tau)
    return _same(row, lead) or _overlap(row, lead, cells)


def _mirror(row: Row, lead: Row, values: Sequence[Row], tau: float) -> str | None:
    if row["verdict"] != OPPOSITE[lead["verdict"]]:
        return None
    held = [cell for cell in values if cell["n"]]
    if len(held) == 2:
        return f"complement of {_name(lead)}"
    left = _left_over(held, tau)
    if not any(cell is row for cell in left) or any(cell is lead for cell in left):
        return None
    return f"mirrors {_name(lead)}: without what stands by itself φ is {_phi(row, left):+.2f}"


def _left_over(values: Sequence[Row], tau: float) -> list[Row]:
    """The values of an attribute that differ from one another by no more than tau, once the others are out."""
    left = list(values)
    while len(left) > 1:
        farthest = min(left, key=lambda cell: (-round(abs(_phi(cell, left)), 9), _phi(cell, left), cell["bias_class"]))
        if abs(_phi(farthest, left)) <= tau:
            return left
        # Of two that differ, neither is what the other leaves over.
        left = [cell for cell in left if cell is not farthest] if len(left) > 2 else []
    return left


def _phi(row: Row, among: Sequence[Row]) -> float:
    if len(among) < 2:
        return 0.0
    others = [cell["accuracy"] for cell in among if cell is not row]
    return float(row["accuracy"] - np.mean(others))


def _same(row: Row, lead: Row) -> str | None:
    one_names_the_other = row.get("same_as") == _name(lead) or lead.get("same_as") == _name(row)
    if row["verdict"] != lead["verdict"] or not one_names_the_other:
        return None
    return f"cannot be told from {_name(lead)}: images of the one show the other"


def _overlap(row: Row, lead: Row, cells: Cells) -> str | None:
    target = row["target_class"]
    of_row, of_lead = cells.get((target, row["attribute"]), {}), cells.get((target, lead["attribute"]), {})
    a, b = of_row.get(row["bias_class"], set()), of_lead.get(lead["bias_class"], set())
    alike = row["verdict"] == lead["verdict"]
    if not a or not b:
        return None
    share = len(a & b) / len(a | b)
    if alike and share >= JACCARD:
        return f"mostly the same images as {_name(lead)} (Jaccard {share:.2f})"
    if (v := _association(a, b, set().union(*of_row.values()), set().union(*of_lead.values()))) is None:
        return None
    if alike and v >= ASSOCIATION:
        return f"goes with {_name(lead)} (Cramér’s V {v:.2f})"
    return f"complement of {_name(lead)} (Cramér’s V {-v:.2f})" if not alike and v <= -ASSOCIATION else None


def _association(a: set[str], b: set[str], known_a: set[str], known_b: set[str]) -> float | None:
    """Cramér's V of two yes-no values with its sign, among the images that both attributes know; None where those are
    too few of either, or where a value is all or nothing of them."""
    both = known_a & known_b
    if len(both) < SHARED * max(len(known_a), len(known_b)):
        return None
    n, in_a, in_b, in_both = len(both), len(a & both), len(b & both), len(a & b)
    spread = in_a * (n - in_a) * in_b * (n - in_b)
    return (n * in_both - in_a * in_b) / spread**0.5 if spread else None


def _name(row: Row) -> str:
    return f"{row['attribute']}: {row['bias_class']}"
