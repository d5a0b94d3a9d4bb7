"""The cells without a finding: undetermined ones with the images that would settle them, and clear ones.

Knows cells and words; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.report.c2b.findings import BASES
from c2b_ray.report.c2b.groups import paper_word
from c2b_ray.report.c2b.ranking import Cell, Group
from c2b_ray.report.kit import words
from c2b_ray.report.kit.redact import clean
from c2b_ray.steps.clusters_of_images import TOO_FEW_CLUSTERS

MOST_LISTED = 100
SMALLEST_LISTED = 5  # images: no cell of fewer settles, whatever they show
_STEPS = (100, 300, 1_000, 3_000, 10_000, 100_000)


@dataclass(frozen=True)
class Open:
    """One undetermined cell; `doubted` where its images cannot be trusted, so that no number of them would do."""

    classifier: str
    target_class: str
    attribute: str
    bias_class: str
    images: str
    phi: str
    interval: str
    settle: str
    doubted: bool
    because: str
    paper: str
    disagrees: bool


@dataclass(frozen=True)
class Step:
    """A number of images per cell and the number of cells that it settles; `share` is the bar's length in percent of
    the open cells.

    The last step includes all cells that any number settles, and says so where that exceeds the table's steps."""

    images: str
    cells: str
    share: str


@dataclass(frozen=True)
class Undetermined:
    line: str
    steps: tuple[Step, ...]
    cells: tuple[Open, ...]
    more: int


@dataclass(frozen=True)
class ClearClass:
    """The values of an attribute that are clear for a class."""

    target_class: str
    values: str


@dataclass(frozen=True)
class ClearAttribute:
    attribute: str
    number: str
    classes: tuple[ClearClass, ...]


@dataclass(frozen=True)
class ClearSection:
    classifier: str
    attributes: tuple[ClearAttribute, ...]


def undetermined(groups: Sequence[Group], names: Mapping[str, str], tau: float) -> Undetermined:
    """Returns the undetermined cells, largest |φ| first."""
    everything = [cell for group in groups for cell in group.cells]
    left = [cell for cell in everything if cell.verdict == "undetermined"]
    listed = [cell for cell in left if cell.n >= SMALLEST_LISTED]
    listed.sort(key=lambda cell: (-cell.weight, cell.target_class, cell.attribute, cell.bias_class))
    return Undetermined(
        line=_line(left, len(everything), tau),
        steps=_steps(left),
        cells=tuple(_open(cell, names) for cell in listed[:MOST_LISTED]),
        more=max(len(listed) - MOST_LISTED, 0),
    )


def _line(left: Sequence[Cell], everything: int, tau: float) -> str:
    if not left:
        return "Nothing: every cell has a verdict." if everything else "Nothing was scored."
    empty = sum(cell.n == 0 for cell in left)
    doubted = sum(bool(cell.doubt) for cell in left)
    clustered = sum(cell.because.startswith(TOO_FEW_CLUSTERS) for cell in left)
    hopeless = sum(cell.n > 0 and cell.images_to_settle is None and not cell.doubt for cell in left) - clustered
    stays = "stays" if len(left) == 1 else "stay"
    parts = [
        f"{words.count(len(left))} of {words.plural(everything, 'cell')} {stays} open: the images at hand neither "
        f"establish a φ beyond ±{words.decimal(tau)} nor rule one out."
    ]
    if empty:
        parts.append(f"{words.plural(empty, 'of them has', 'of them have')} no image with a prediction.")
    small = sum(0 < cell.n < SMALLEST_LISTED for cell in left)
    if small:
        parts.append(
            f"{words.plural(small, 'of them has', 'of them have')} {SMALLEST_LISTED - 1} images or fewer, too few to "
            "settle whatever they show: they are counted here and not listed."
        )
    if doubted:
        parts.append(f"{words.plural(doubted, 'of them is', 'of them are')} in doubt for what the images show.")
    if clustered:
        parts.append(
            f"{words.plural(clustered, 'of them needs', 'of them need')} images of more clusters; more of the "
            "same ones would tell little."
        )
    if hopeless:
        parts.append(
            f"No number of images would settle {words.count(hopeless)} of them: φ lies next to ±{words.decimal(tau)}, "
            "or there is no other value to compare with."
        )
    return " ".join(parts)


def _steps(left: Sequence[Cell]) -> tuple[Step, ...]:
    known = [cell.images_to_settle for cell in left if cell.images_to_settle is not None]
    steps: list[Step] = []
    most = max(known, default=0)
    for limit in (*(limit for limit in _STEPS if limit < most), most):
        settled = sum(images <= limit for images in known)
        if settled and (not steps or steps[-1].cells != words.count(settled)):
            images = f"more than {words.count(_STEPS[-1])}" if limit > _STEPS[-1] else words.count(limit)
            steps.append(Step(images, words.count(settled), f"{100 * settled / len(left):.1f}"))
    return tuple(steps)


def _open(cell: Cell, names: Mapping[str, str]) -> Open:
    return Open(
        classifier=names[cell.classifier],
        target_class=cell.target_class,
        attribute=cell.attribute,
        bias_class=cell.bias_class,
        images=words.count(cell.n),
        phi=words.signed(cell.phi),
        interval=words.signed_range(cell.phi_low, cell.phi_high),
        settle=_settle(cell),
        doubted=bool(cell.doubt),
        because=clean(cell.because),
        paper=paper_word(cell),
        disagrees=cell.disagrees,
    )


def _settle(cell: Cell) -> str:
    if cell.doubt:
        return "in doubt"
    return words.count(cell.images_to_settle) if cell.images_to_settle else words.UNKNOWN


def no_clear(cells: Sequence[Cell], tau: float) -> str:
    """Returns the reason why no cell is clear."""
    within = f"φ lies within ±{words.decimal(tau)}"
    line = f"Nothing: of no cell is it established that {within}."
    if cells and all(cell.basis in BASES for cell in cells):
        return (
            f"{line} That takes images of which it is known what they show: labels, or a verifier that was calibrated."
        )
    near = [cell for cell in cells if cell.size <= tau and cell.images_to_settle]
    if not near:
        return line
    nearest = min(near, key=lambda cell: cell.images_to_settle or 0)
    return (
        f"{line} It takes many images: of the cells whose {within} as counted, the nearest to it holds "
        f"{words.count(nearest.n)} and would need about {words.count(nearest.images_to_settle or 0)}."
    )


def clear(groups: Sequence[Group], names: Mapping[str, str]) -> tuple[ClearSection, ...]:
    """Returns, per classifier and attribute, the classes and values whose whole interval lies within ±τ; most first."""
    sections = []
    for classifier in dict.fromkeys(group.classifier for group in groups):
        attributes = _clear_attributes([group for group in groups if group.classifier == classifier])
        if attributes:
            sections.append(ClearSection(names[classifier], attributes))
    return tuple(sections)


def _clear_attributes(groups: Sequence[Group]) -> tuple[ClearAttribute, ...]:
    by_attribute: dict[str, list[tuple[Group, list[Cell]]]] = {}
    for group in groups:
        cells = [cell for cell in group.cells if cell.verdict == "none"]
        if cells:
            by_attribute.setdefault(group.attribute, []).append((group, cells))
    numbers = {attribute: sum(len(cells) for _, cells in members) for attribute, members in by_attribute.items()}
    return tuple(
        ClearAttribute(attribute, words.count(numbers[attribute]), tuple(_clear_class(*member) for member in members))
        for attribute, members in sorted(by_attribute.items(), key=lambda item: (-numbers[item[0]], item[0]))
    )


def _clear_class(group: Group, cells: list[Cell]) -> ClearClass:
    whole = len(cells) == len(group.cells)
    values = f"all {len(cells)} values" if whole else ", ".join(cell.bias_class for cell in cells)
    return ClearClass(group.target_class, values)
