"""The spending of a budget of images: each look at the evidence, the rest of the budget, and the cost of settling the
open groups.

Knows the manifest's `budget` and groups of cells; does not know what is drawn next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from c2b_ray.report.c2b.ranking import Group
from c2b_ray.report.kit import words


@dataclass(frozen=True)
class Look:
    """`share` is the bar's length in percent: groups still open."""

    images: str
    open: str
    groups: str
    share: str


@dataclass(frozen=True)
class Spending:
    """`present` tells whether the run had a budget."""

    present: bool
    line: str = ""
    looks: tuple[Look, ...] = ()
    rest: str = ""


def spending(manifest: Mapping[str, Any], groups: Sequence[Group]) -> Spending:
    """Returns the view. A group is one attribute of one class for all classifiers together, because they see the same
    images."""
    budget = manifest.get("budget")
    if not isinstance(budget, Mapping) or not budget.get("looks"):
        return Spending(present=False)
    looks = [(int(at["images"]), int(at["open"]), int(at["groups"])) for at in budget["looks"]]
    return Spending(
        present=True,
        line=_line(int(budget["images"]), looks, manifest.get("status", "finished") == "finished"),
        looks=tuple(
            Look(words.count(images), words.count(left), words.count(of), f"{100 * left / of if of else 0:.1f}")
            for images, left, of in looks
        ),
        rest=_rest(groups),
    )


def _line(images: int, looks: Sequence[tuple[int, int, int]], finished: bool) -> str:
    spent, left_open, _ = looks[-1]
    left = max(images - spent, 0)
    line = (
        f"{words.count(spent)} of the budget’s {words.plural(images, 'image')} were drawn, in "
        f"{words.plural(len(looks), 'look')}; {words.count(left) if left else 'none'} "
        f"{'is' if left == 1 else 'are'} left."
    )
    if not finished or not left:
        return line
    if not left_open:
        return f"{line} They were not drawn: each group is settled, or a decision is unlikely."
    return (
        f"{line} No open group could use them: its captions have all the images that they can get, its images are in "
        "doubt, or they are too few for one of each value."
    )


def _rest(groups: Sequence[Group]) -> str:
    """Estimates the images that would settle the open groups. `images_to_settle` counts images in every cell of a
    group, so each cell is filled up to the largest number that one of them needs."""
    costs = sorted(cost for cost in map(_cost, _by_images(groups)) if cost is not None)
    if not costs:
        return ""
    half = costs[: (len(costs) + 1) // 2]
    cheaper = f", {words.count(sum(half))} of them for the cheaper half" if len(costs) > 1 else ""
    return (
        f"To settle {words.plural(len(costs), 'group')} for which a number of images would do, it would take about "
        f"{words.count(sum(costs))} more{cheaper}, if answers go on as they did so far."
    )


def _by_images(groups: Sequence[Group]) -> list[list[Group]]:
    by_attribute: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        by_attribute.setdefault((group.target_class, group.attribute), []).append(group)
    return list(by_attribute.values())


def _cost(alike: Sequence[Group]) -> int | None:
    """Computes the images to draw for one group over several classifiers; None where no open cell could be settled."""
    cells = [cell for group in alike for cell in group.cells]
    needed = [cell.images_to_settle for cell in cells if cell.verdict == "undetermined" and cell.images_to_settle]
    if not needed:
        return None
    held = {name: max(cell.n for cell in cells if cell.bias_class == name) for name in {c.bias_class for c in cells}}
    return sum(max(max(needed) - images, 0) for images in held.values())
