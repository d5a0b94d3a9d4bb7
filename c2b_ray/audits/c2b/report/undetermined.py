"""The cells without a finding: undetermined ones with the images that would settle them, and clear ones.

Knows cells and words; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from c2b_ray.audits.c2b.report.findings import BASES, paper_word
from c2b_ray.audits.c2b.report.method import compared_by, right_line
from c2b_ray.audits.c2b.report.ranking import Cell, Group
from c2b_ray.audits.c2b.scoring.clusters import TOO_FEW_CLUSTERS
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.redact import clean

MOST_LISTED = 100
SMALLEST_LISTED = 5  # images: a cell with fewer cannot be settled
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
    undetermined_cells = [cell for cell in everything if cell.verdict == "undetermined"]
    listed = [cell for cell in undetermined_cells if cell.n >= SMALLEST_LISTED]
    listed.sort(key=lambda cell: (-cell.weight, cell.target_class, cell.attribute, cell.bias_class))
    return Undetermined(
        line=_line(undetermined_cells, len(everything), tau),
        steps=_steps(undetermined_cells),
        cells=tuple(_open(cell, names) for cell in listed[:MOST_LISTED]),
        more=max(len(listed) - MOST_LISTED, 0),
    )


def _line(cells: Sequence[Cell], everything: int, tau: float) -> str:
    if not cells:
        return "Nothing: every cell has a verdict." if everything else "Nothing was scored."
    empty = sum(cell.n == 0 for cell in cells)
    doubted = sum(bool(cell.doubt) for cell in cells)
    clustered = sum(cell.because.startswith(TOO_FEW_CLUSTERS) for cell in cells)
    never_settled = [cell for cell in cells if cell.n > 0 and cell.images_to_settle is None and not cell.doubt]
    unverified = sum(0 <= cell.size <= tau and cell.basis in BASES for cell in never_settled)
    hopeless = len(never_settled) - clustered - unverified
    verb = "stays" if len(cells) == 1 else "stay"
    parts = [
        f"{words.count(len(cells))} of {words.plural(everything, 'cell')} {verb} open: the images at hand neither "
        f"establish a φ beyond ±{words.decimal(tau)} nor rule one out."
    ]
    if empty:
        parts.append(f"{words.plural(empty, 'of them has', 'of them have')} no image with a prediction.")
    small = sum(0 < cell.n < SMALLEST_LISTED for cell in cells)
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
    if unverified:
        parts.append(
            f"Of {words.count(unverified)} of them φ lies within ±{words.decimal(tau)}, but on images of which it is "
            "not known what they show: no number of these rules a difference out."
        )
    if hopeless:
        parts.append(
            f"No number of images would settle {words.count(hopeless)} of them: φ lies next to ±{words.decimal(tau)}, "
            "or there is no other value to compare with."
        )
    return " ".join(parts)


def _steps(cells: Sequence[Cell]) -> tuple[Step, ...]:
    settling = [cell.images_to_settle for cell in cells if cell.images_to_settle is not None]
    steps: list[Step] = []
    most = max(settling, default=0)
    for limit in (*(limit for limit in _STEPS if limit < most), most):
        settled = sum(images <= limit for images in settling)
        if settled and (not steps or steps[-1].cells != words.count(settled)):
            images = f"more than {words.count(_STEPS[-1])}" if limit > _STEPS[-1] else words.count(limit)
            steps.append(Step(images, words.count(settled), f"{100 * settled / len(cells):.1f}"))
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
        settle=_images_to_settle(cell),
        doubted=bool(cell.doubt),
        because=clean(cell.because),
        paper=paper_word(cell),
        disagrees=cell.disagrees,
    )


def _images_to_settle(cell: Cell) -> str:
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
    close = [cell for cell in cells if cell.size <= tau and cell.images_to_settle]
    if not close:
        return line
    nearest = min(close, key=lambda cell: cell.images_to_settle or 0)
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
    is_whole = len(cells) == len(group.cells)
    values = f"all {len(cells)} values" if is_whole else ", ".join(cell.bias_class for cell in cells)
    return ClearClass(group.target_class, values)


# Caveats for the reader: what counts as right, and what the images represent.


_BASES = {
    "captions": "are what captions drew, and nobody looked whether they show what the captions say: findings on them "
    "are marked “on unverified captions”, and nothing is called clear",
    "verifier": "were looked at by a verifier whose errors are not known: findings on them are marked “on the "
    "verifier’s word”, and nothing is called clear",
}


def notes(config: AuditConfig, cells: Sequence[Cell], rule: str | None = None) -> tuple[str, ...]:
    """Returns plain sentences for the head of a page. `rule`: as for `right_line`."""
    return (*_of_answers(config, cells, rule), *_of_images(cells))


def _of_answers(config: AuditConfig, cells: Sequence[Cell], rule: str | None) -> Iterator[str]:
    yield from filter(None, (compared_by(config), right_line(config, rule)))
    undetermined_cells = [cell for cell in cells if cell.verdict == "undetermined"]
    with_estimate = [cell for cell in undetermined_cells if cell.images_to_settle]
    if with_estimate:
        scope = (
            f" of the {words.count(len(with_estimate))} of which that is known"
            if len(with_estimate) < len(undetermined_cells)
            else ""
        )
        yield (
            f"An undetermined cell{scope} holds {_median(cell.n for cell in with_estimate)} images and would need "
            "about "
            f"{_median(cell.images_to_settle or 0 for cell in with_estimate)} to be settled (medians): until then it "
            "may be biased or not."
        )


def _of_images(cells: Sequence[Cell]) -> Iterator[str]:
    for basis, consequence in _BASES.items():
        number = sum(cell.basis == basis for cell in cells)
        if number:
            yield f"The images of {_of(number, len(cells))} {consequence}."
    for line in (one_caption_line(cells), copies_line(cells)):
        if line:
            yield line
    by_name = _by_name(cells)
    varying = [cell for cell in cells if not math.isnan(cell.caption_spread)]
    if varying:
        most = max(varying, key=lambda cell: cell.caption_spread)
        yield (
            "Between the captions of one cell accuracy varies by a standard deviation of "
            f"{words.percent(median(cell.caption_spread for cell in varying))} (median), at most "
            f"{words.percent(most.caption_spread)} ({most.target_class}, {most.attribute}); the intervals contain it."
        )
    short = [cell for cell in by_name.values() if cell.wanted and _held(cell) < cell.wanted]
    if short:
        least = min(short, key=lambda cell: _held(cell) / (cell.wanted or 1))
        yield (
            f"{_of(len(short), len(by_name)).capitalize()} hold fewer distinct images than were asked for, the "
            f"emptiest {words.count(_held(least))} of {words.count(least.wanted or 0)} ({least.target_class}, "
            f"{least.attribute}: {least.bias_class})."
        )


def one_caption_line(cells: Sequence[Cell]) -> str:
    """Returns what verdicts on cells with one caption mean; empty where every cell has several."""
    by_name = _by_name(cells)
    single = sum(cell.captions == 1 for cell in by_name.values())
    if not single:
        return ""
    line = f"In {_of(single, len(by_name))} one caption had to do: what that caption brings along cannot be told from "
    if any(cell.one_caption for cell in by_name.values()):
        return (
            f"{line}what the value does, no interval holds it, and a verdict may be about the caption alone. Give "
            "each cell two captions or more (captions_per_cell)."
        )
    return f"{line}what the value does. Several captions a cell (captions_per_cell) show how much they vary."


def copies_line(cells: Sequence[Cell]) -> str:
    """Returns what it means that most images of a cell are left out as copies; empty where that is so of no cell."""
    by_name = _by_name(cells)
    mostly = [cell for cell in by_name.values() if cell.repeats > _held(cell)]
    if not mostly:
        return ""
    most = max(mostly, key=lambda cell: cell.repeats)
    return (
        f"In {_of(len(mostly), len(by_name))} most images are left out as near-duplicates of others, which count once; "
        f"in {most.target_class}, {most.attribute}: {most.bias_class} {words.count(most.repeats)} are, and "
        f"{words.count(_held(most))} {'counts' if _held(most) == 1 else 'count'}. Views of one scene, as by a fixed "
        "camera, look like copies too."
    )


def _by_name(cells: Sequence[Cell]) -> dict[tuple[str, str, str], Cell]:
    return {(cell.target_class, cell.attribute, cell.bias_class): cell for cell in cells}


def _median(numbers: Iterable[int]) -> str:
    return words.count(round(median(numbers)))


def _held(cell: Cell) -> int:
    return cell.n + cell.errors


def _of(number: int, total: int) -> str:
    return "all cells" if number == total else f"{words.count(number)} of {words.plural(total, 'cell')}"
