"""What was merged, what was left out or counts in another way, and what could not be used, by reason."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.report import ranking
from c2b_ray.report import words
from c2b_ray.report.blocks import Article, Block, Cell, Paragraph, Table
from c2b_ray.report.redact import clean
from c2b_ray.report.words import Column
from c2b_ray.steps.draw import codes, vocabulary
from c2b_ray.steps.labels import TARGET

# Merged names with their reasons, as rows of words. Knows rows of `tables.PROPOSALS`.


MOST_MERGED = 60
_WHY = {
    "values": "much the same values",
    "spelling": "one word, in two forms",
    "head word": "the same head word, and near in the encoder",
    "language model": "near in the encoder, and the language model says so",
}


def merged_article(proposals: pa.Table) -> list[Article]:
    """Returns a row for each merge, with the classes that it concerns, commonest first; nothing where nothing was
    merged."""
    merges_by_rule: dict[tuple[str, str, str, str], list[tuple[str, float | None]]] = {}
    for row in proposals.to_pylist():
        for merge in row.get("merged") or ():
            into = merge["into"] if merge["kind"] == "attribute" else f"{row['attribute']}: {merge['into']}"
            rule = (merge["kind"], merge["from"], into, merge["rule"])
            merges_by_rule.setdefault(rule, []).append((row["target_class"], merge["similarity"]))
    if not merges_by_rule:
        return []
    ordered = sorted(merges_by_rule.items(), key=lambda item: -len(item[1]))
    table = Table(
        [Column(name) for name in ("Name", "Into", "Why", "Similarity", "For")],
        [
            (name, into, _WHY.get(rule, rule), _similarity(of_rule[0][1]), _classes([target for target, _ in of_rule]))
            for (_, name, into, rule), of_rule in ordered[:MOST_MERGED]
        ],
        more=words.further(len(ordered), MOST_MERGED, "in the run’s proposals.parquet"),
    )
    line = (
        "Names that mean the same were made one before anything was measured; what you wrote yourself stays as it is."
    )
    return [Article("What was merged", [Paragraph(line), table])]


def _similarity(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _classes(names: Sequence[str]) -> str:
    return words.listed(names) if len(names) <= 3 else f"{names[0]}, {names[1]} and {len(names) - 2} more"


# Counts draws, replies and images that do not count, by reason.


def drops(
    rejected: pa.Table,
    pool: pa.Table,
    draws: pa.Table,
    images: pa.Table,
    cells: Sequence[ranking.Cell],
    blank_rows: Mapping[str, int] | None = None,
    other_rows: int | None = None,
) -> list[tuple[int, str, str]]:
    """Returns (number, what, what became of them) of the kinds of drops that occurred, in order from captions to
    scores. `images` needs no bytes.

    `blank_rows`: for each column of a labelled table, the rows without a value. `other_rows`: those of classes that are
    not audited.
    """
    others = (other_rows or 0, "rows of the labelled table of classes that are not audited", "in no share of answers")
    counts = [others, *_blank(blank_rows or {}), *_drops(rejected, pool, draws, images, cells)]
    return [drop for drop in counts if drop[0]]


def _blank(rows: Mapping[str, int]) -> Iterator[tuple[int, str, str]]:
    for column, number in rows.items():
        cells = "in no cell" if column == TARGET else f"in no cell of {column}"
        yield number, f"rows of the labelled table without a value in column {column}", cells


def _drops(
    rejected: pa.Table, pool: pa.Table, draws: pa.Table, images: pa.Table, cells: Sequence[ranking.Cell]
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


# Problems of a run: rejected replies, unusable images, missing predictions.


MOST_REASONS = 12
LONGEST_REASON = 160
LONGEST_REPLY = 140
_WHILE = {
    "propose": "proposing attributes",
    "template": "the captions' template",
    "caption": "writing captions",
}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def unused_article(
    dropped: Sequence[tuple[int, str, str]],
    rejected: pa.Table,
    draws: pa.Table,
    images: pa.Table,
    predictions: pa.Table,
    names: Mapping[str, str],
) -> Article:
    """Returns what was dropped (as `drops` has it), rejected replies, unusable images and missing predictions.
    `images` needs no bytes; `names` maps all classifiers of the run to their names."""
    blocks: list[Block] = []
    if dropped:
        columns = [Column("Number", number=True), Column("What"), Column("What became of them")]
        rows = [(words.count(number), noun, consequence) for number, noun, consequence in dropped]
        caption = "What was left out, or counts in another way, by reason"
        blocks.append(Table(columns, rows, style="drops", caption=caption, headed=False))
    replies = words.plural(rejected.num_rows, "reply", "replies")
    every_reply = "Every reply of the language model could be used, or none was asked for."
    line = f"{replies} of the language model could not be used." if rejected.num_rows else every_reply
    blocks += [Paragraph(line), *_rejections(rejected)]
    unusable, tables = _unusable(images, predictions, names)
    line = (
        f"{words.plural(unusable, 'image')} could not be used by one classifier or more."
        if unusable
        else "No image was unusable."
    )
    blocks += [Paragraph(" ".join([line, *_missing(draws, images, predictions, names)])), *tables]
    return Article("What could not be used", blocks, "unused")


@dataclass
class _Kind:
    """Rows with the same reason, ignoring numbers: the ids concerned, the affected classifiers, and the original
    reasons."""

    members: set[str] = field(default_factory=set)
    sufferers: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    sample: str = ""

    def reason(self, pattern: str) -> str:
        return self.texts.copy().pop() if len(self.texts) == 1 else pattern


def _rejections(rejected: pa.Table) -> list[Table]:
    kinds: dict[tuple[str, str], _Kind] = defaultdict(_Kind)
    columns = (rejected[name].to_pylist() for name in ("step", "reason", "reply"))
    for row, (step, reason, reply) in enumerate(zip(*columns, strict=True)):
        text, pattern = _message(reason)
        kind = kinds[step, pattern]
        kind.members.add(str(row))
        kind.texts.add(text)
        kind.sample = kind.sample or reply
    ordered = sorted(kinds.items(), key=lambda item: (-len(item[1].members), item[0]))
    rows = [
        (
            words.count(len(kind.members)),
            kind.reason(pattern),
            _WHILE.get(step, step),
            Cell(words.shortened(clean(kind.sample), LONGEST_REPLY), style="sample"),
        )
        for (step, pattern), kind in ordered[:MOST_REASONS]
    ]
    return _reasons(("Replies", "Reason", "While", "For example"), rows, kinds.values(), ", in rejected.parquet")


def _unusable(images: pa.Table, predictions: pa.Table, names: Mapping[str, str]) -> tuple[int, list[Table]]:
    """Returns the number of images concerned, and their reasons.

    An image that could not be fetched fails for every classifier and is one image all the same.
    """
    kinds: dict[str, _Kind] = defaultdict(_Kind)
    failed = pa.chunked_array([t.filter(pc.is_valid(t["error"]))["image_id"].unique() for t in (images, predictions)])
    failed_images = images.filter(pc.is_in(images["image_id"], failed.combine_chunks()))
    key_of = dict(zip(failed_images["image_id"].to_pylist(), failed_images["key"].to_pylist(), strict=True))
    for image_id, classifier, error in _failures(images, predictions):
        text, pattern = _message(error, key_of.get(image_id, ""))
        kind = kinds[pattern]
        kind.members.add(image_id)
        kind.texts.add(text)
        kind.sufferers.update(names if classifier is None else [classifier])
    ordered = sorted(kinds.items(), key=lambda item: (-len(item[1].members), item[0]))
    rows = [
        (words.count(len(kind.members)), kind.reason(pattern), _who(kind.sufferers, names))
        for pattern, kind in ordered[:MOST_REASONS]
    ]
    concerned = len(set().union(*(kind.members for kind in kinds.values())))
    return concerned, _reasons(("Images", "Reason", "For"), rows, kinds.values())


def _reasons(
    names: Sequence[str], rows: Sequence[Sequence[str | Cell]], kinds: Collection[_Kind], where: str = ""
) -> list[Table]:
    """Returns the rows as a table, with the number of cases whose reasons are not listed; nothing without rows."""
    left_out = sum(sorted((len(kind.members) for kind in kinds), reverse=True)[MOST_REASONS:])
    more = f"And {words.count(left_out)} more for other reasons{where}." if left_out else ""
    columns = [Column(name, number=i == 0) for i, name in enumerate(names)]
    style = "reasons replies" if where else "reasons"
    return [Table(columns, rows, style=style, more=more, headed=False)] if rows else []


def _failures(images: pa.Table, predictions: pa.Table) -> Iterator[tuple[str, str | None, str]]:
    """Yields (image, classifier, error); classifier is None where the image itself could not be read."""
    bad = images.filter(pc.is_valid(images["error"]))
    for image_id, error in zip(bad["image_id"].to_pylist(), bad["error"].to_pylist(), strict=True):
        yield image_id, None, error
    bad = predictions.filter(pc.is_valid(predictions["error"]))
    yield from zip(*(bad[name].to_pylist() for name in ("image_id", "classifier", "error")), strict=True)


def _who(sufferers: set[str], names: Mapping[str, str]) -> str:
    if sufferers.issuperset(names):
        return "every classifier" if len(names) > 1 else "the classifier"
    return words.listed([name for spec, name in names.items() if spec in sufferers])


def _missing(draws: pa.Table, images: pa.Table, predictions: pa.Table, names: Mapping[str, str]) -> list[str]:
    drawn_ids = pc.unique(draws["image_id"])
    lines = []
    never = _absent(drawn_ids, images["image_id"])
    if never:
        lines.append(f"{words.plural(never, 'image')} of the draws {_was(never)} never fetched.")
    for classifier, name in names.items():
        answered = predictions.filter(pc.equal(predictions["classifier"], classifier))["image_id"]
        absent = _absent(drawn_ids, answered)
        if absent:
            lines.append(f"{words.plural(absent, 'image')} {_was(absent)} never shown to {name}.")
    return lines


def _absent(ids: pa.Array, present: pa.ChunkedArray) -> int:
    """Counts the ids that are not among others."""
    return len(ids) - int(pc.sum(pc.is_in(ids, present.combine_chunks())).as_py() or 0)


def _was(number: int) -> str:
    return "was" if number == 1 else "were"


def _message(reason: str, key: str = "") -> tuple[str, str]:
    """Returns a reason without the image's name and path, and the same without numbers as the key for counting."""
    for name in (key, key.rsplit("/", 1)[-1]):
        if len(name) > 3:
            reason = reason.replace(name, "")
    text = words.shortened(clean(reason).strip(" :,;"), LONGEST_REASON) or "no reason given"
    return text, _NUMBER.sub("…", text)
