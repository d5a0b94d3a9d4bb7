"""Captions of two values at once, and a labelled table as captions, drawn rows and measured properties.

A language model writes two captions into one; without a model, or where its reply loses one of the two, the first
caption is continued with what the second says after the class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import prompts
from c2b_ray.audits.c2b.thresholds import Limit
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.numbered import numbered
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.errors import ReplyError, SourceError
from c2b_ray.names import normalise
from c2b_ray.roles import ChatRequest, LanguageModel
from c2b_ray.steps import draw
from c2b_ray.steps.caption import MAX_TOKENS, Cell, caption_of
from c2b_ray.steps.cells import ATTRIBUTE, Pair, bias_class
from c2b_ray.steps.draw import IDS_AT_ONCE, LABELLED, draws_of, image_ids, no_numbers
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.image_properties import measured
from c2b_ray.steps.labels import TARGET, ComparedColumn, check_classes, chosen, names_class
from c2b_ray.steps.propose import TEMPERATURE, TOP_P
from c2b_ray.steps.replies import CAPTION_SCHEMA, parse_reply
from c2b_ray.tables import CAPTIONS, DRAWS, PROPERTIES, PROPOSALS, REJECTED, content_id, seed_of

PROMPT = "pair"
Texts = dict[tuple[str, str, int], str]
_SMALL = frozenset({"a", "an", "the", "in", "on", "at", "by", "of", "with", "is", "are", "it", "and", "to", "that"})


def caption_pairs(
    pairs: Sequence[Pair], captions: pa.Table, language_model: LanguageModel | None, seed: int
) -> tuple[pa.Table, pa.Table]:
    """Returns tables of `tables.CAPTIONS`, a row per cell of a pair and number, and of `tables.REJECTED`.

    `captions`: those of the single values. A cell gets as many as its first value has.
    """
    columns = ("proposal_id", "bias_class", "number", "text")
    rows_of = zip(*(captions[name].to_pylist() for name in columns), strict=True)
    texts = {(proposal, value, number): text for proposal, value, number, text in rows_of}
    numbers = sorted(set(captions["number"].to_pylist()))
    rows = [
        {**pair.as_proposal(), "bias_class": bias_class(x, y), "number": number, "pair": pair, "values": (x, y)}
        for pair in pairs
        for x, y in pair.cells()
        for number in numbers
        if (pair.a["proposal_id"], x, number) in texts
    ]
    rejected: list[dict[str, str]] = []
    replies = _ask(rows, texts, language_model, seed) if language_model and rows else [None] * len(rows)
    for row, reply in zip(rows, replies, strict=True):
        first, second = _both(row, texts)
        if isinstance(reply, ReplyError):
            cell_name = f"{row['target_class']}/{row['attribute']}/{row['bias_class']}"
            rejected.append({"step": "caption", "about": cell_name, "reply": reply.reply, "reason": str(reply)})
        row["text"] = reply if isinstance(reply, str) else _continued(row, first, second)
        row["caption_id"] = content_id("caption", row["proposal_id"], row["bias_class"], row["number"], row["text"])
    caption_rows = [{name: row[name] for name in CAPTIONS.names} for row in rows]
    return pa.Table.from_pylist(caption_rows, CAPTIONS), pa.Table.from_pylist(rejected, REJECTED)


def _both(row: Cell, texts: Texts) -> tuple[str, str]:
    pair, (x, y) = row["pair"], row["values"]
    return tuple(  # type: ignore[return-value]
        texts.get((part["proposal_id"], value, row["number"]), texts[part["proposal_id"], value, 0])
        for part, value in ((pair.a, x), (pair.b, y))
    )


def _ask(rows: Sequence[Cell], texts: Texts, language_model: LanguageModel, seed: int) -> list[str | ReplyError]:
    requests = []
    for row in rows:
        pair, (first, second) = row["pair"], _both(row, texts)
        fields = {"target_class": row["target_class"], "first": first, "second": second}
        fields |= {"attribute_a": pair.a["attribute"], "value_a": row["values"][0]}
        fields |= {"attribute_b": pair.b["attribute"], "value_b": row["values"][1]}
        identity = [row[name] for name in ("proposal_id", "bias_class", "number")]
        requests.append(
            ChatRequest(
                prompts.messages(PROMPT, **fields),
                schema=CAPTION_SCHEMA,
                temperature=TEMPERATURE,
                top_p=TOP_P,
                max_tokens=MAX_TOKENS,
                seed=seed_of("pair", prompts.text(PROMPT), identity, seed),
            )
        )
    result: list[str | ReplyError] = []
    for row, reply in zip(rows, language_model.chat(requests), strict=True):
        try:
            text = " ".join(str(parse_reply(reply, CAPTION_SCHEMA)["caption"]).split())
            result.append(_checked(text, reply.text, row, _both(row, texts)))
        except ReplyError as error:
            result.append(error)
    return result


def _checked(text: str, reply: str, row: Cell, pair_captions: tuple[str, str]) -> str:
    """Returns the caption. Raises ReplyError unless it names the class and uses a word that is specific to each of the
    two captions."""
    caption_words = _words(text)
    if not names_class(text, row["target_class"]):
        raise ReplyError("the caption does not name the class", reply)
    words_a, words_b = (
        _words(caption) | _words(value) for caption, value in zip(pair_captions, row["values"], strict=True)
    )
    for own_words, other_words, part, value in (
        (words_a, words_b, row["pair"].a, row["values"][0]),
        (words_b, words_a, row["pair"].b, row["values"][1]),
    ):
        if not (own_words - other_words) & caption_words:
            raise ReplyError(f"the caption does not show that {part['attribute']} is {value}", reply)
    return text


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", normalise(text))) - _SMALL


def _continued(row: Cell, first: str, second: str) -> str:
    """Returns the first caption with what the second says after the class, or both values in general words where it
    says nothing there."""
    match = re.search(rf"(?<!\w){re.escape(row['target_class'])}(?!\w)", second, re.IGNORECASE)
    ending = second[match.end() :].strip().rstrip(".") if match else ""
    if not re.search(r"\w", ending):
        pair, (x, y) = row["pair"], row["values"]
        values = [(pair.a["attribute"], x), (pair.b["attribute"], y)]
        return caption_of(row["target_class"], values, row["number"])
    return f"{first.rstrip('. ')}{'' if ending[0] in ',;:.' else ' '}{ending}"


# Turns a labelled table into captions and images: a caption for each value of each attribute, and the rows that it
# draws.


TableRows = NDArray[np.int32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RowDraws:
    """The rows of a labelled table that each caption draws, by caption id and in the order of drawing."""

    rows: Mapping[str, TableRows]
    revision: str

    @property
    def num_rows(self) -> int:
        return sum(map(len, self.rows.values()))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields batches of `tables.DRAWS`."""
        for caption, rows in self.rows.items():
            for start in range(0, len(rows), IDS_AT_ONCE):
                batch = rows[start : start + IDS_AT_ONCE]
                count = len(batch)
                ranks = np.arange(start, start + count)
                draws = draws_of(pa.repeat(caption, count), batch, self.revision, ranks, no_numbers(count), LABELLED)
                yield from draws.to_batches()

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.to_batches(), DRAWS)

    def distinct(self) -> TableRows:
        """Returns each row once, in ascending order."""
        is_drawn = np.zeros(1 + max((int(rows.max(initial=-1)) for rows in self.rows.values()), default=-1), bool)
        for rows in self.rows.values():
            is_drawn[rows] = True
        return np.flatnonzero(is_drawn).astype(np.int32)

    def image_ids(self) -> pa.Array:
        """Returns the id of each image once."""
        return image_ids(self.distinct(), self.revision)

    def first(self, most: Mapping[str, int]) -> RowDraws:
        """Returns the first rows of each caption, at most `most` of them."""
        return RowDraws({caption: rows[: most.get(caption, 0)] for caption, rows in self.rows.items()}, self.revision)

    def where(self, kept: Callable[[pa.Array], Mask]) -> RowDraws:
        """Returns the rows whose image ids `accepts` accepts."""
        return RowDraws({caption: self._kept(rows, kept) for caption, rows in self.rows.items()}, self.revision)

    def _kept(self, rows: TableRows, accepts: Callable[[pa.Array], Mask]) -> TableRows:
        chunks = [rows[start : start + IDS_AT_ONCE] for start in range(0, len(rows), IDS_AT_ONCE)]
        accepted = np.concatenate([rows[:0], *(part[accepts(image_ids(part, self.revision))] for part in chunks)])
        return rows if len(accepted) == len(rows) else accepted  # no copy of millions

    def equals(self, other: RowDraws) -> bool:
        return self.rows.keys() == other.rows.keys() and all(
            np.array_equal(rows, other.rows[caption]) for caption, rows in self.rows.items()
        )


def labelled_rows(
    labels: pa.Table,
    revision: str,
    classes: Sequence[str],
    attributes: Mapping[str, Sequence[str]] | None,
    limit: Limit,
    needed: bool = True,
) -> tuple[pa.Table, pa.Table, RowDraws]:
    """Returns proposals, captions and the rows that each caption draws, from a table of labels.

    `labels`: `target_class` and a string column per attribute, a row per image; nulls belong to no cell. `attributes`:
    which columns, and which of their values; None: all possible ones (`labels.no_attribute`). `limit`: of the images of
    each cell. `needed`: whether a table without anything to compare is an error.
    """
    attributes = chosen(labels, attributes, needed=needed)
    check_classes(labels, classes)
    targets = ComparedColumn.of(labels, TARGET)
    proposals, captions = [], []
    draws: dict[str, TableRows] = {}
    for target_class in classes:
        of_class = targets.equal(target_class)
        for attribute, values in attributes.items():
            column = ComparedColumn.of(labels, attribute)
            present = [v for v in values if (of_class & column.equal(v)).any()]
            if len(present) < 2:
                continue
            proposal = _proposal(target_class, attribute, present)
            proposals.append(proposal)
            for value in present:
                caption_id = content_id("labelled", proposal["proposal_id"], value)
                draws[caption_id] = _limited(of_class & column.equal(value), limit, caption_id)
                captions.append(_caption(caption_id, proposal, value))
    if not captions and needed:
        raise SourceError("the labelled table has no class with two or more values of an attribute: nothing to compare")
    return (
        pa.Table.from_pylist(proposals, PROPOSALS),
        pa.Table.from_pylist(captions, CAPTIONS),
        RowDraws(draws, revision),
    )


def labelled_pair_rows(
    labels: pa.Table, revision: str, pairs: Sequence[Pair], limit: Limit
) -> tuple[pa.Table, RowDraws]:
    """Returns captions of every cell of the pairs, and the rows that each draws; a cell without rows gets only a
    caption.

    The arguments are those of `labelled_rows`; the pairs consist of its proposals.
    """
    targets = ComparedColumn.of(labels, TARGET)
    columns = {
        name: ComparedColumn.of(labels, name) for pair in pairs for name in (pair.a["attribute"], pair.b["attribute"])
    }
    captions = []
    draws: dict[str, TableRows] = {}
    for pair in pairs:
        of_class = targets.equal(pair.target_class)
        a, b = columns[pair.a["attribute"]], columns[pair.b["attribute"]]
        for x, y in pair.cells():
            value = bias_class(x, y)
            caption_id = content_id("labelled", pair.proposal_id, value)
            draws[caption_id] = _limited(of_class & a.equal(x) & b.equal(y), limit, caption_id)
            captions.append(_caption(caption_id, pair.as_proposal(), value))
    return pa.Table.from_pylist(captions, CAPTIONS), RowDraws(draws, revision)


def lacking(proposals: pa.Table, classes: Sequence[str], chosen_values: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns in words which of the chosen attributes and values have no image in some class, and so are not compared
    there."""
    of_class: dict[tuple[str, str], list[str]] = {
        (row["target_class"], row["attribute"]): row["bias_classes"] for row in proposals.to_pylist()
    }
    sentences = []
    for attribute, values in chosen_values.items():
        for name in classes:
            present = of_class.get((name, attribute), [])
            absent = [value for value in values if value not in present]
            if not present:
                sentences.append(f"{attribute} of {name}: fewer than two values have images, so nothing is compared")
            elif absent:
                sentences.append(f"{attribute} of {name}: no image shows {', '.join(map(repr, absent))}")
    return sentences


def _limited(is_drawn: Mask, limit: Limit, caption_id: str) -> TableRows:
    rows = np.flatnonzero(is_drawn)
    most, seed = limit
    if most is not None and len(rows) > most:
        rows = np.sort(np.random.default_rng(seed_of("labelled", caption_id, seed)).permutation(rows)[:most])
    return rows.astype(np.int32)


def _proposal(target_class: str, attribute: str, values: list[str]) -> dict[str, object]:
    return {
        # Sorted: the order in which values are listed must not decide which rows are drawn of them.
        "proposal_id": content_id("labelled", target_class, attribute, sorted(values)),
        "target_class": target_class,
        "attribute": attribute,
        "bias_classes": values,
        "source": "user",
        "merged_from": [attribute],
        "merged": [],
    }


def _caption(caption_id: str, proposal: Mapping[str, object], value: str) -> dict[str, object]:
    return {
        "caption_id": caption_id,
        "proposal_id": proposal["proposal_id"],
        "kind": proposal.get("kind", ATTRIBUTE),
        "target_class": proposal["target_class"],
        "attribute": proposal["attribute"],
        "bias_class": value,
        "number": 0,
        "text": f"{proposal['target_class']}, {proposal['attribute']}: {value}",
    }


# The stage that measures properties of images (`steps.image_properties`): each is read where it lies and decoded
# once.


MEASURE = StageConfig(PROPERTIES, stage="measure", rows_per_file=1024)


def measure_images(
    runner: Runner, rows: tuple[draw.RowNumbers, str], source: Load, out: str, on_progress: OnProgress
) -> None:
    """Writes the properties of `rows` of a source, as parts of `PROPERTIES`. `rows`: their numbers, and the source's
    revision, which the images' ids contain."""
    numbers, revision = rows
    config = replace(MEASURE, total=len(numbers))
    prepare_rows(
        runner, numbered(numbers, revision), partial(measured, load=source), out, "image_id", config, on_progress
    )


def prepare_rows(
    runner: Runner,
    rows: Rows,
    prepare: Callable[[pa.Table], pa.Table],
    out: str,
    id_column: str,
    config: StageConfig,
    on_progress: OnProgress,
) -> None:
    """Runs a stage that is all preparation, which processes share where a machine has many cores: no model answers."""
    runner.run(
        rows, _as_prepared, _no_role, out, id_column=id_column, config=config, on_progress=on_progress, prepare=prepare
    )


def _as_prepared(rows: pa.Table, role: None) -> pa.Table:
    return rows


def _no_role() -> None:
    return None
