"""What the verdicts rest on: what images show by the verifier, whether sources agree, and how a budget was spent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.findings import value_cell
from c2b_ray.audits.c2b.report.ranking import Group
from c2b_ray.report import words
from c2b_ray.report.blocks import Article, Bar, Block, Cell, Paragraph, Segment, Table, spec
from c2b_ray.report.redact import clean, clean_setting
from c2b_ray.report.words import Column, Span
from c2b_ray.steps.draw import GENERATE, RETRIEVE
from c2b_ray.steps.observe import CLASS

MOST_DOUBTS = 20
Row = Mapping[str, Any]


_CORRECTION = (
    "Accuracy, φ and their intervals are corrected for the images that show another value; numbers of images and of "
    "right answers are counted as the images were drawn. The correction assumes that whether the classifier is right "
    "depends on what an image shows, not on what it was drawn for nor on whether the verifier errs."
)


def shown_article(
    verifications: pa.Table,
    calibration: pa.Table,
    scores: pa.Table,
    models: Mapping[str, Any],
    names: Mapping[str, str],
    has_intersections: bool = False,
) -> list[Article]:
    """Returns the verifier's calibration, the share of images that show what their caption says, and the cells in
    doubt; nothing where no image was verified. `verifications` needs only `image_id` and `error`; `models` are the
    manifest's."""
    if not verifications.num_rows:
        return []
    rows = scores.to_pylist()
    crossed = " In intersections an image counts for the cell that the verifier says it shows."
    doubts = _doubts(rows, names)
    blocks: list[Block] = [
        Paragraph(f"{_verifier_line(verifications, models)} {_trusted(calibration)}".strip()),
        Table(
            [
                Column("Attribute"),
                Column("Verifier checked"),
                *(Column(name, number=True) for name in ("Median cell", "Lowest cell", "Near-duplicates left out")),
            ],
            list(_attributes(rows, calibration.to_pylist())),
            caption="Share of a cell’s images that show what their caption says, estimated with the verifier’s own "
            "errors in mind",
        ),
        Paragraph(f"{_CORRECTION}{crossed if has_intersections else ''}"),
        Paragraph(_doubts_line(len(doubts))),
    ]
    if doubts:
        columns = [Column("Class"), Column("Attribute: value"), Column("Why")]
        more = words.further(len(doubts), MOST_DOUBTS, "in the run’s scores.parquet")
        blocks.append(Table(columns, doubts[:MOST_DOUBTS], more=more))
    return [Article("What the images show", blocks, "shown")]


def _verifier_line(verifications: pa.Table, models: Mapping[str, Any]) -> str:
    verifier = models.get("verifier")
    spec = verifier.get("spec") if isinstance(verifier, Mapping) else verifier
    name = clean_setting(str(spec)) if spec else "The verifier"
    failed = verifications.filter(pc.is_valid(verifications["error"]))
    looked_at, blind = (pc.count_distinct(table["image_id"]).as_py() for table in (verifications, failed))
    sentence = f"{name} looked at {words.plural(looked_at, 'image')} and said what each shows."
    if not blind:
        return sentence
    reason = words.shortened(clean(failed["error"][0].as_py()), 120)
    return f"{sentence} Of {words.count(blind)} it could not say: {reason}{'' if blind == 1 else ', for example'}."


def _trusted(calibration: pa.Table) -> str:
    """Returns the consequence of a missing calibration; empty where there is one, which the attributes then show."""
    if "table" in calibration["source"].to_pylist():
        return ""
    return "The verifier was not checked on labelled images: its own certainty is taken for its accuracy."


def _attributes(rows: Sequence[Row], calibration: Sequence[Row]) -> Iterator[list[str | Cell]]:
    """Yields the class first, where classes were verified, then the attributes in the scores' order, each with the
    verifier's calibration on it and its answers as shares of the cells' images."""
    class_rows = [
        (row["class_shown"], None, None, row["target_class"]) for row in rows if _is_known(row["class_shown"])
    ]
    if class_rows:
        yield _attribute("the class itself", _calibrated(CLASS, calibration, "taken at its word"), class_rows, "")
    by_attribute: dict[str, list[Row]] = {}
    for row in rows:
        by_attribute.setdefault(row["attribute"], []).append(row)
    for name, of_attribute in by_attribute.items():
        shares = [
            (row["shown"], row["shown_low"], row["shown_high"], f"{row['target_class']}, {row['bias_class']}")
            for row in of_attribute
            if _is_known(row["shown"])
        ]
        repeats = {(row["target_class"], row["bias_class"]): row["repeats"] or 0 for row in of_attribute}
        calibrated = _calibrated(name, calibration, "by its own certainty")
        yield _attribute(name, calibrated, shares, words.count(sum(repeats.values())))


def _attribute(
    name: str, calibrated: str, shares: Sequence[tuple[float, float | None, float | None, str]], repeats: str
) -> list[str | Cell]:
    if not shares:
        return [name, calibrated, words.UNKNOWN, words.UNKNOWN, repeats]
    share, low, high, cell = min(shares, key=lambda entry: entry[0])
    interval = "" if low is None or high is None else words.percent_range(low, high)
    middle = words.percent(median(entry[0] for entry in shares))
    return [name, calibrated, middle, Cell(words.percent(share), [interval, cell]), repeats]


def _calibrated(attribute: str, calibration: Sequence[Row], otherwise: str) -> str:
    calibration_rows = [row for row in calibration if row["attribute"] == attribute and row["source"] == "table"]
    images = sum(row["images"] for row in calibration_rows)
    if not images:
        return f"{otherwise}, not checked"
    right = sum(row["images"] for row in calibration_rows if row["value"] == row["answer"]) / images
    return f"on {words.plural(round(images), 'labelled image')}, {words.percent(right)} right"


def _is_known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _doubts(rows: Sequence[Row], names: Mapping[str, str]) -> list[tuple[str, Cell, Cell]]:
    """Returns the cells whose images cannot be trusted in the scores' order, each once: classifiers see the same
    images, so their reasons differ only in digits. Classifiers are named where the doubt is not about all."""
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        if row["doubt"]:
            cell = (row["target_class"], row["attribute"], row["bias_class"])
            cells.setdefault(cell, {})[row["classifier"]] = row["doubt"]
    everyone = {row["classifier"] for row in rows}
    doubts = []
    for (target, attribute, value), reasons in cells.items():
        concerned = words.listed([names[name] for name in reasons])
        small = [] if reasons.keys() == everyone else [(Span("for "), spec(concerned))]
        doubts.append((target, value_cell(attribute, value), Cell(clean(next(iter(reasons.values()))), small)))
    return doubts


def _doubts_line(number: int) -> str:
    if not number:
        return "No cell is in doubt for what its images show."
    return (
        f"{words.plural(number, 'cell is', 'cells are')} in doubt and left undetermined, whatever was counted: more of "
        "the same images would not help."
    )


# Agreement of retrieved and generated images on a classifier, as counts and the cells that differ.


MOST_DIFFERING = 20


def sources_article(table: pa.Table, names: Mapping[str, str], confidence: float) -> list[Article]:
    """Returns whether retrieved and generated images agree, and the cells that differ, largest difference first;
    nothing where the run has one source."""
    rows = table.to_pylist()
    if not rows:
        return []
    differing = sorted(
        (row for row in rows if row["agreement"] == "different"), key=lambda row: -abs(row["difference"])
    )
    blocks: list[Block] = [Paragraph(_sources_line(rows))]
    if differing:
        columns = [
            Column("Class"),
            Column("Attribute: value"),
            *([Column("Classifier", spec=True)] if len(names) > 1 else []),
            *(Column(name, number=True) for name in ("φ, retrieved", "φ, generated", "Difference")),
        ]
        blocks.append(
            Table(
                columns,
                [_differing(row, names) for row in differing[:MOST_DIFFERING]],
                caption=f"Largest difference first; small print are {words.percent(confidence)} intervals",
                more=words.further(len(differing), MOST_DIFFERING, "in the run’s agreement.parquet"),
            )
        )
    return [Article("Do the sources agree?", blocks, "sources")]


def _sources_line(rows: Sequence[Row]) -> str:
    agreements = [row["agreement"] for row in rows]
    same, different, open_cells = (agreements.count(name) for name in ("same", "different", "undetermined"))
    line = (
        f"Of {words.plural(len(rows), 'cell')}, φ of retrieved and of generated images is the same in "
        f"{words.count(same)}, different in {words.count(different)} and undetermined in {words.count(open_cells)}."
    )
    if not different:
        return line
    return (
        f"{line} Where it differs, one source shows more than its captions say: look at both before believing either."
    )


def _differing(row: Row, names: Mapping[str, str]) -> list[str | Cell]:
    interval = words.signed_range(row["difference_low"], row["difference_high"])
    return [
        row["target_class"],
        value_cell(row["attribute"], row["bias_class"]),
        *([names[row["classifier"]]] if len(names) > 1 else []),
        *(_phi_of_source(row, source) for source in (RETRIEVE, GENERATE)),
        Cell(words.signed(row["difference"]), [interval]),
    ]


def _phi_of_source(row: Row, source: str) -> Cell:
    interval = words.signed_range(row[f"phi_low_{source}"], row[f"phi_high_{source}"])
    return Cell(words.signed(row[f"phi_{source}"]), [interval, words.plural(row[f"n_{source}"], "image")])


# The spending of a budget of images: each look at the evidence, the rest of the budget, and the cost of settling
# the open groups.


def spending_article(manifest: Mapping[str, Any], groups: Sequence[Group]) -> list[Article]:
    """Returns the looks at the evidence, and what the open groups would take; nothing for a run without a budget. A
    group is one attribute of one class for all classifiers together, because they see the same images."""
    budget = manifest.get("budget")
    if not isinstance(budget, Mapping) or not budget.get("looks"):
        return []
    looks = [(int(look["images"]), int(look["open"]), int(look["groups"])) for look in budget["looks"]]
    columns = [
        Column("Images drawn by then", number=True),
        Column("Groups open", number=True),
        Column("Share", hidden=True),
    ]
    table = Table(
        columns,
        [
            (
                words.count(images),
                Cell((Span(words.count(open_groups)), Span(f" of {words.count(total)}", style="of"))),
                Bar([Segment("undetermined", f"{100 * open_groups / total if total else 0:.1f}")]),
            )
            for images, open_groups, total in looks
        ],
        style="steps",
        caption="Looks at the evidence; a group is one attribute of one class, open while a verdict of it is",
        headed=False,
    )
    line = _spending_line(int(budget["images"]), looks, manifest.get("status", "finished") == "finished")
    would_settle = _would_settle(groups)
    blocks = [Paragraph(line), table, *([Paragraph(would_settle)] if would_settle else [])]
    return [Article("What was spent", blocks, "spent")]


def _spending_line(images: int, looks: Sequence[tuple[int, int, int]], finished: bool) -> str:
    spent, left_open, _ = looks[-1]
    remaining = max(images - spent, 0)
    line = (
        f"{words.count(spent)} of the budget’s {words.plural(images, 'image')} were drawn, in "
        f"{words.plural(len(looks), 'look')}; {words.count(remaining) if remaining else 'none'} "
        f"{'is' if remaining == 1 else 'are'} left."
    )
    if not finished or not remaining:
        return line
    if not left_open:
        return f"{line} They were not drawn: each group is settled, or a decision is unlikely."
    return (
        f"{line} No open group could use them: its captions have all the images that they can get, its images are in "
        "doubt, or they are too few for one of each value."
    )


def _would_settle(groups: Sequence[Group]) -> str:
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


def _cost(groups: Sequence[Group]) -> int | None:
    """Computes the images to draw for one group over several classifiers; None where no open cell could be settled."""
    cells = [cell for group in groups for cell in group.cells]
    to_settle = [cell.images_to_settle for cell in cells if cell.verdict == "undetermined" and cell.images_to_settle]
    if not to_settle:
        return None
    images_of_value = {
        name: max(cell.n for cell in cells if cell.bias_class == name) for name in {c.bias_class for c in cells}
    }
    return sum(max(max(to_settle) - images, 0) for images in images_of_value.values())
