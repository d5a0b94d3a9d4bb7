"""The cells without a finding: undetermined ones with the images that would settle them, and clear ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from c2b_ray.audits.c2b.report.findings import BASES, paper_cell, value_cell
from c2b_ray.audits.c2b.report.method import compared_by, right_line
from c2b_ray.audits.c2b.report.ranking import Cell, Group
from c2b_ray.audits.c2b.scoring.clusters import TOO_FEW_CLUSTERS
from c2b_ray.audits.c2b.scoring.judge import LABELS
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import blocks, words
from c2b_ray.report.blocks import (
    Article,
    Bar,
    Block,
    Details,
    Paragraph,
    Section,
    Segment,
    Table,
    TableRow,
    spec,
)
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column, Sentence, Span

MOST_LISTED = 100
SMALLEST_LISTED = 5  # images: a cell with fewer cannot be settled
_STEPS = (100, 300, 1_000, 3_000, 10_000, 100_000)


def undetermined_section(groups: Sequence[Group], names: Mapping[str, str], tau: float, verified: bool) -> Section:
    """Returns the undetermined cells, largest |φ| first, and how many images would settle how many of them.
    `verified`: whether it was looked at what the images show."""
    everything = [cell for group in groups for cell in group.cells]
    undetermined_cells = [cell for cell in everything if cell.verdict == "undetermined"]
    contents: list[Block] = []
    if steps := _steps(undetermined_cells):
        columns = [
            Column("Images in each cell", number=True),
            Column("Cells settled", number=True),
            Column("Share", hidden=True),
        ]
        rows = [(images, cells, Bar([Segment("undetermined", share)])) for images, cells, share in steps]
        accuracies = "corrected" if verified else "observed"
        caption = f"How many images would settle them, were the {accuracies} accuracies the truth"
        contents.append(Table(columns, rows, style="steps", caption=caption, headed=False))
    listed = [cell for cell in undetermined_cells if cell.n >= SMALLEST_LISTED]
    listed.sort(key=lambda cell: (-cell.weight, cell.target_class, cell.attribute, cell.bias_class))
    if listed:
        contents.append(_open_cells(listed, names, verified))
    details = Details(_line(undetermined_cells, len(everything), tau), contents)
    return Section("What stays undetermined", [details], "open", "Undetermined")


def _open_cells(cells: Sequence[Cell], names: Mapping[str, str], verified: bool) -> Table:
    several = len(names) > 1
    columns = [
        Column("Class"),
        Column("Attribute: value"),
        *([Column("Classifier", spec=True)] if several else []),
        Column("φ", number=True),
        Column("Paper’s"),
        Column("Images", number=True),
        Column(f"Would settle{words.FIXED}it", number=True),
        Column("Why it is open"),
    ]
    return Table(
        columns,
        [_open_row(cell, names, verified) for cell in cells[:MOST_LISTED]],
        style="open",
        caption="Strongest first; the images that would settle a cell are those of each value of its attribute",
        sortable=True,
        filtered="open",
        most=20,
        more=words.further(len(cells), MOST_LISTED, "in the run’s scores.parquet"),
    )


def _open_row(cell: Cell, names: Mapping[str, str], verified: bool) -> TableRow:
    in_doubt = bool(cell.doubt)
    data = {
        "class": cell.target_class,
        "attribute": cell.attribute,
        "verdict": "in doubt" if in_doubt else "undetermined",
    }
    return TableRow(
        [
            cell.target_class,
            value_cell(cell.attribute, cell.bias_class),
            *([names[cell.classifier]] if len(names) > 1 else []),
            blocks.Cell(words.signed(cell.phi), [words.signed_range(cell.phi_low, cell.phi_high)]),
            paper_cell(cell),
            words.count(cell.n),
            blocks.Cell(_images_to_settle(cell), link="#shown" if in_doubt and verified else ""),
            blocks.Cell(clean(cell.because), style="why"),
        ],
        data=data,
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


def _steps(cells: Sequence[Cell]) -> list[tuple[str, str, str]]:
    """Returns numbers of images per cell, the number of cells that each settles, and their share of the open cells in
    percent. The last includes all cells that any number settles, and says so where that exceeds our steps."""
    settling = [cell.images_to_settle for cell in cells if cell.images_to_settle is not None]
    steps: list[tuple[str, str, str]] = []
    most = max(settling, default=0)
    for limit in (*(limit for limit in _STEPS if limit < most), most):
        settled = sum(images <= limit for images in settling)
        if settled and (not steps or steps[-1][1] != words.count(settled)):
            images = f"more than {words.count(_STEPS[-1])}" if limit > _STEPS[-1] else words.count(limit)
            steps.append((images, words.count(settled), f"{100 * settled / len(cells):.1f}"))
    return steps


def _images_to_settle(cell: Cell) -> str:
    if cell.doubt:
        return "in doubt"
    return words.count(cell.images_to_settle) if cell.images_to_settle else words.UNKNOWN


def clear_section(groups: Sequence[Group], names: Mapping[str, str], tau: float) -> Section:
    """Returns, per classifier and attribute, the classes and values whose whole interval lies within ±τ, most first; or
    why there are none."""
    tables = [
        Article((spec(names[classifier]),), [table]) if len(names) > 1 else table
        for classifier in dict.fromkeys(group.classifier for group in groups)
        if (table := _clear_values([group for group in groups if group.classifier == classifier]))
    ]
    line = (
        f"It is established that φ lies within ±{words.decimal(tau)}, on images that are known to differ: whatever "
        "difference there is, it is smaller than what counts."
    )
    cells = [cell for group in groups for cell in group.cells]
    block = Details(line, tables) if tables else Paragraph(no_clear(cells, tau))
    return Section("What is ruled out", [block], "clear", "Ruled out")


def _clear_values(groups: Sequence[Group]) -> Table | None:
    by_attribute: dict[str, list[tuple[Group, list[Cell]]]] = {}
    for group in groups:
        cells = [cell for cell in group.cells if cell.verdict == "none"]
        if cells:
            by_attribute.setdefault(group.attribute, []).append((group, cells))
    if not by_attribute:
        return None
    numbers = {attribute: sum(len(cells) for _, cells in members) for attribute, members in by_attribute.items()}
    rows = [
        (attribute, words.count(numbers[attribute]), blocks.Cell(_clear_classes(members)))
        for attribute, members in sorted(by_attribute.items(), key=lambda item: (-numbers[item[0]], item[0]))
    ]
    return Table([Column("Attribute"), Column("Cells", number=True), Column("Classes and values")], rows, style="clear")


def _clear_classes(members: Sequence[tuple[Group, Sequence[Cell]]]) -> Sentence:
    spans: list[Span] = []
    for group, cells in members:
        is_whole = len(cells) == len(group.cells)
        values = f"all {len(cells)} values" if is_whole else ", ".join(cell.bias_class for cell in cells)
        spans += [Span(" · ", style="dot")] if spans else []
        spans += [Span(group.target_class, strong=True), Span(f" {values}")]
    return tuple(spans)


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
    if config.label_errors is None and any(cell.verdict == "against" and cell.basis == LABELS for cell in cells):
        yield (
            "The table’s labels are taken as right: a value of which more labels are wrong than of the others looks as "
            "if the classifier did less well on it. `label_errors: {encoder: SPEC}` lists the labels that may be wrong."
        )
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
