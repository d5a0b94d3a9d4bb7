"""The method section of a C2B run: its settings in words, beside the models, counts and times that all runs have.

Reads the manifest, any part of which may be absent. Knows nothing of scores or pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.derived import DerivedValues
from c2b_ray.audits.c2b.report.measured import named as metric_name
from c2b_ray.audits.c2b.report.ranking import Cell, Group
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.method import Method, Row, mapping, method_of, times
from c2b_ray.report.redact import clean
from c2b_ray.steps.draw import codes, vocabulary
from c2b_ray.steps.labels import TARGET

_RIGHT = {
    "top1": "the likeliest of all the classifier's labels stands for the class (right: top1)",
    "top5": "one of the five likeliest of all its labels stands for the class (right: top5)",
    "among_classes": "the class is the likeliest of the audit's classes alone, whatever other labels are likelier "
    "(right: among_classes)",
}
_COUNTS = {
    "proposals": "Attributes proposed",
    "rejected": "Replies rejected",
    "captions": "Captions",
    "draws": "Draws",
    "images": "Images",
    "image_errors": "Images that could not be read or made",
    "predictions": "Predictions",
    "prediction_errors": "Predictions that failed",
}


def method(manifest: Mapping[str, Any]) -> Method:
    config = mapping(manifest.get("config"))
    settings = tuple(_settings(manifest, {name: value for name, value in config.items() if value is not None}))
    return method_of(manifest, settings, _COUNTS, "c2b audit audit.yaml --out RUN")


def right_line(config: AuditConfig, rule: str | None = None) -> str:
    """Returns a sentence that tells when an answer counts as right. `rule`: the run's own, which follows from its
    classifiers (`C2BManifest.rule`)."""
    return f"An answer is right when {rule or _RIGHT[config.right]}."


def _settings(manifest: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[Row]:
    source = mapping(config.get("images")).get("source")
    kinds = {
        "retrieve": "retrieved by caption from an index",
        "generate": "made from each caption",
        "labelled": "labelled, from a table",
    }
    named_source = " and ".join(kinds.get(str(kind), str(kind)) for kind in _several(source))
    settings = {
        "Task": config.get("task"),
        "Cells are compared by": metric_name(str(config["metric"])) if config.get("metric") else None,
        "An answer is right when": manifest.get("rule") or _RIGHT.get(str(config.get("right"))),
        "Images": named_source or None,
        "Independent samples": mapping(config.get("images")).get("cluster"),
        "Attributes that nobody annotated": DerivedValues(manifest).setting() or None,
        "Images per caption": config.get("images_per_caption"),
        "Captions per cell": config.get("captions_per_cell"),
        "Seed": config.get("seed"),
        "τ, smallest |φ| that counts": config.get("tau"),
        "α, false discovery rate": config.get("alpha"),
        "Run": manifest.get("run_id"),
    }
    for name, value in settings.items():
        if value is not None:
            yield name, clean(words.decimal(value) if isinstance(value, float) else str(value))
    yield from times(manifest)


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


# Merged names with their reasons, as rows of words. Knows rows of `tables.PROPOSALS`.


MOST = 60
_WHY = {
    "values": "much the same values",
    "spelling": "one word, in two forms",
    "head word": "the same head word, and near in the encoder",
    "language model": "near in the encoder, and the language model says so",
}


@dataclass(frozen=True)
class Merged:
    kind: str
    name: str
    into: str
    why: str
    similarity: str
    classes: str


@dataclass(frozen=True)
class Merges:
    rows: tuple[Merged, ...]
    more: int


def merges(proposals: pa.Table) -> Merges:
    """Returns a row per merge, with the classes that it concerns, commonest first."""
    merges_by_rule: dict[tuple[str, str, str, str], list[tuple[str, float | None]]] = {}
    for row in proposals.to_pylist():
        for merge in row.get("merged") or ():
            into = merge["into"] if merge["kind"] == "attribute" else f"{row['attribute']}: {merge['into']}"
            rule = (merge["kind"], merge["from"], into, merge["rule"])
            merges_by_rule.setdefault(rule, []).append((row["target_class"], merge["similarity"]))
    ordered = sorted(merges_by_rule.items(), key=lambda item: -len(item[1]))
    rows = tuple(
        Merged(
            kind, name, into, _WHY.get(rule, rule), _similarity(of_rule[0][1]), _classes([name for name, _ in of_rule])
        )
        for (kind, name, into, rule), of_rule in ordered[:MOST]
    )
    return Merges(rows, max(len(ordered) - MOST, 0))


def _similarity(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _classes(names: Sequence[str]) -> str:
    return words.listed(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"


# Counts draws, replies and images that do not count, by reason.


@dataclass(frozen=True)
class Drop:
    """`number` of dropped items of kind `what`; `then` tells what happened to them."""

    number: str
    what: str
    then: str


def drops(
    rejected: pa.Table,
    pool: pa.Table,
    draws: pa.Table,
    images: pa.Table,
    cells: Sequence[Cell],
    blank_rows: Mapping[str, int] | None = None,
) -> tuple[Drop, ...]:
    """Returns the kinds of drops that occurred, in order from captions to scores. `images` needs no bytes.

    `blank_rows`: for each column of a labelled table, the rows without a value.
    """
    counts = [*_blank(blank_rows or {}), *_drops(rejected, pool, draws, images, cells)]
    return tuple(Drop(words.count(number), noun, consequence) for number, noun, consequence in counts if number)


def _blank(rows: Mapping[str, int]) -> Iterator[tuple[int, str, str]]:
    for column, number in rows.items():
        cells = "in no cell" if column == TARGET else f"in no cell of {column}"
        yield number, f"rows of the labelled table without a value in column {column}", cells


def _drops(
    rejected: pa.Table, pool: pa.Table, draws: pa.Table, images: pa.Table, cells: Sequence[Cell]
) -> Iterator[tuple[int, str, str]]:
    captions = int(pc.sum(pc.equal(rejected["step"], "caption")).as_py() or 0)
    yield rejected.num_rows - captions, "replies with attributes, values or templates", "rejected, asked for again"
    yield captions, "captions", "rejected: they did not name class and value, or said nothing new"
    # `pool` holds what was looked at, by caption.
    captions_of, ids = (vocabulary(pool[name], draws[name]) for name in ("caption_id", "image_id"))
    looked_at, drawn_numbers = (
        codes(rows["caption_id"], captions_of) * len(ids) + codes(rows["image_id"], ids) for rows in (pool, draws)
    )
    yield (
        len(np.setdiff1d(looked_at, drawn_numbers)),
        "images that a caption’s search gave",
        "not drawn: not accepted, or the cell was full",
    )
    yield images.num_rows - images["error"].null_count, "images", "without bytes, or no picture"
    once = {(cell.target_class, cell.attribute, cell.bias_class): cell for cell in cells}
    yield sum(cell.repeats for cell in once.values()), "near-duplicates of another image of the cell", "left out"
    yield sum(cell.errors for cell in cells), "answers, of all classifiers", "failed: in no accuracy"
    yield sum(cell.undecided for cell in cells), "answers, of all classifiers", "undecided: counted as wrong"
    shared = sum(cell.shared for cell in once.values())
    yield shared, "images of a cell that another value holds too", "counted in both; many of them, and nothing is clear"


# The spending of a budget of images: each look at the evidence, the rest of the budget, and the cost of settling
# the open groups.


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
    looks = [(int(look["images"]), int(look["open"]), int(look["groups"])) for look in budget["looks"]]
    return Spending(
        present=True,
        line=_line(int(budget["images"]), looks, manifest.get("status", "finished") == "finished"),
        looks=tuple(
            Look(
                words.count(images),
                words.count(open_groups),
                words.count(total),
                f"{100 * open_groups / total if total else 0:.1f}",
            )
            for images, open_groups, total in looks
        ),
        rest=_rest(groups),
    )


def _line(images: int, looks: Sequence[tuple[int, int, int]], finished: bool) -> str:
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
