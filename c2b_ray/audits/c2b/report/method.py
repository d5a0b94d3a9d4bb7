"""The method section of a C2B run: its settings, its metric, and what derived values mean, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report.ranking import Cell, Group
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.method import Method, Row, mapping, method_of, times
from c2b_ray.report.redact import clean
from c2b_ray.steps.draw import codes, vocabulary
from c2b_ray.steps.labels import TARGET

# The metric that a run compares cells by, in words. It knows names of metrics and numbers; nothing of pages.


ACCURACY = "accuracy"
_OWN = "python:"
_NAMES = {
    "f1": "F1",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "AUROC",
    "confidence": "mean probability",
    "calibration": "calibration",
}
_SHARES = ("accuracy", "recall", "precision", "f1", "balanced_accuracy", "confidence")
_MEANING = {
    "recall": "recall: the share of a class’s images that are right",
    "confidence": "the mean probability that the classifier gives the class on its images",
    "precision": "precision: among the images of all classes with a value, the share of the answers with the class "
    "that are right",
    "f1": "F1: among the images of all classes with a value, the harmonic mean of the class’s precision and recall",
    "balanced_accuracy": "balanced accuracy: among the images of all classes with a value, the mean of the share of "
    "the class’s images that are right and that of the others",
    "auroc": "AUROC: among the images of all classes with a value, how often the probability of the class is larger "
    "on an image of it than on another one",
    "calibration": "calibration: among the images of all classes with a value, 1 minus the expected calibration error "
    "of the probability of the class (15 bins)",
}
_LIMITS = {
    "confidence": "Limits are Wilson’s, with the sample variance.",
    "precision": "Limits are Wilson’s, given the answers with the class.",
    "f1": "Limits are Wilson’s, with the delta method’s variance.",
    "balanced_accuracy": "Limits are Wilson’s, for the number of answers that would tell as much as MOVER’s limits.",
    "auroc": "Limits are Wilson’s, with DeLong’s variance.",
}
_BOOTSTRAPPED = "Limits are of a bootstrap within each class, and nothing is called clear: no test shows that it is."
_PERMUTED = (
    "A finding must also hold where the values are permuted among the images of each class, so that classes that are "
    "more frequent with one value than with another make none."
)


def metric_named(metric: str) -> str:
    """Returns a metric's name for people."""
    return clean(metric.removeprefix(_OWN)) if metric.startswith(_OWN) else _NAMES.get(metric, metric)


def titled(metric: str) -> str:
    """Returns the name as a heading."""
    name = metric_named(metric)
    return name if metric.startswith(_OWN) else name[:1].upper() + name[1:]


def shown(metric: str, value: float) -> str:
    """Returns a value of a metric: shares in percent, others as a number."""
    return words.percent(value) if metric in _SHARES else words.decimal(round(value, 2))


def shown_range(metric: str, low: float, high: float) -> str:
    return words.percent_range(low, high) if metric in _SHARES else f"{shown(metric, low)}–{shown(metric, high)}"


def compared_by(config: AuditConfig) -> str:
    """Returns a sentence on the metric of a run's config; "" for accuracy."""
    metric = config.metric
    if metric == ACCURACY:
        return ""
    meaning = _MEANING.get(metric, f"{metric_named(metric)}, a function of one’s own, of each class against the rest")
    tested = "" if metric == "recall" else " ".join(["", _LIMITS.get(metric, _BOOTSTRAPPED), _PERMUTED])
    return f"Cells are compared by {meaning}.{tested}"


# What the values of derived attributes are, in words: "Here dark means: mean luma (0 to 255) below 61."


ORIGINS = {
    "property": "measured on the images",
    "number": "cut from columns of numbers",
    "date": "cut from columns of dates",
    "read": "read off the images by a model",
    "word": "words of captions, found on the half of the images that is not tested",
    "slice": "clusters of embeddings, found on the half of the images that is not tested",
}


class DerivedValues:
    """The derived attributes of a run, by its manifest."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self._attributes = {
            clean(str(attribute.get("attribute"))): attribute
            for attribute in manifest.get("derived") or []
            if isinstance(attribute, Mapping)
        }

    def range_of(self, target_class: str, attribute: str, value: str) -> str:
        """Returns the range of a value, such as "below 61"; empty where it has none, or is called so."""
        ranges = mapping(self._attributes.get(attribute, {}).get("ranges"))
        of_class = mapping(ranges.get(target_class) or ranges.get(""))
        range_text = clean(str(of_class.get(value, "")))
        return "" if range_text == value else range_text

    def explained(self, target_class: str, attribute: str, value: str) -> str:
        """Returns a sentence that says what a value means; empty for an attribute that was not derived."""
        if attribute not in self._attributes:
            return ""
        measure = clean(str(self._attributes[attribute].get("measure", "")))
        range_text = self.range_of(target_class, attribute, value)
        return f"Here {value} means: {measure} {range_text}." if range_text else f"Here {attribute} is {measure}."

    def setting(self) -> str:
        """Returns which attributes were derived from what, in a line; empty where none was."""
        parts = []
        for origin, source in ORIGINS.items():
            names = [name for name, attribute in self._attributes.items() if attribute.get("origin") == origin]
            if names:
                parts.append(f"{words.listed(names)} ({source})")
        return "; ".join(parts)


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
        "Cells are compared by": metric_named(str(config["metric"])) if config.get("metric") else None,
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
