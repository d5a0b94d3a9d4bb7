"""Intersections: cells of two attributes at once, their captions and draws, and how much more than the two they say.

A pair's captions and draws stand among the others', under an id that names both proposals; its scores are a table of
their own. It knows which images belong to which cell; the formulas are `metrics`'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray import metrics
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.metrics.scores import Ints
from c2b_ray.schemas import INTERSECTIONS
from c2b_ray.steps.answers import Answers, answers_of
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.propose import normalise

FIELD = "intersections"
TIMES = "×"
"""Between the ids of two proposals, which are hexadecimal, and between the names of two attributes."""


@dataclass(frozen=True)
class Pair:
    """Two attributes of one class: rows of `schemas.PROPOSALS`."""

    a: dict[str, Any]
    b: dict[str, Any]

    @property
    def proposal_id(self) -> str:
        return f"{self.a['proposal_id']}{TIMES}{self.b['proposal_id']}"

    @property
    def target_class(self) -> str:
        return str(self.a["target_class"])

    @property
    def attribute(self) -> str:
        return f"{self.a['attribute']} {TIMES} {self.b['attribute']}"

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.a["bias_classes"]), len(self.b["bias_classes"])

    def as_proposal(self) -> dict[str, str]:
        """What a caption says of its proposal."""
        names = ("proposal_id", "target_class", "attribute")
        return {name: getattr(self, name) for name in names}

    def cells(self) -> Iterator[tuple[str, str]]:
        """(value of a, value of b), row by row."""
        for x in self.a["bias_classes"]:
            for y in self.b["bias_classes"]:
                yield x, y


def is_pair(proposal_id: str) -> bool:
    return TIMES in proposal_id


def bias_class(x: str, y: str) -> str:
    return f"{x}, {y}"


def pairs(proposals: pa.Table, intersections: Sequence[tuple[str, str]]) -> list[Pair]:
    """The pairs of every class that has both attributes, under the names they have or were merged from.

    ConfigError names an attribute that no class has, or a pair that no class has both of.
    """
    of_class: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for row in proposals.to_pylist():
        for name in (*row["merged_from"], row["attribute"]):
            of_class[row["target_class"]][normalise(name)] = row
    known = {name for rows in of_class.values() for name in rows}
    found = []
    for a, b in intersections:
        for name in (a, b):
            if normalise(name) not in known:
                raise ConfigError(FIELD, f"no class has an attribute {name!r} to pair; {nearest(name, known)}")
        both = [
            Pair(rows[normalise(a)], rows[normalise(b)])
            for rows in of_class.values()
            if normalise(a) in rows and normalise(b) in rows
        ]
        if not both or any(pair.a is pair.b for pair in both):
            problem = "are one attribute: they were merged" if both else "are not both attributes of any one class"
            raise ConfigError(FIELD, f"{a!r} and {b!r} {problem}")
        found += both
    return found


def of_run(proposals: pa.Table, captions: pa.Table) -> list[Pair]:
    """The pairs that captions were made for, in the order of the captions."""
    by_id = {row["proposal_id"]: row for row in proposals.to_pylist()}
    ids = [i for i in dict.fromkeys(captions["proposal_id"].to_pylist()) if is_pair(i)]
    return [Pair(*(by_id[part] for part in i.split(TIMES))) for i in ids]


def score_pairs(
    tables: tuple[pa.Table, pa.Table, pa.Table, pa.Table],
    classifiers: Sequence[str],
    tau: float,
    alpha: float,
    distinct: Distinct | None = None,
) -> pa.Table:
    """A table of `schemas.INTERSECTIONS`: a row per classifier and cell of a pair.

    `tables`: a run's proposals, captions, draws and predictions. φ is among all cells of the pair, as for an attribute.
    The verdict is on the interaction, the accuracy minus what the two attributes' own effects predict. The false
    discovery rate is controlled over all cells of all pairs of one classifier, apart from the scores'. A cell without
    predictions is NaN and undetermined. Of near-duplicates, by `distinct`, a cell counts one.
    """
    proposals, captions, draws, predictions = tables
    asked = of_run(proposals, captions)
    drawn = _images(captions, draws)
    images = drawn if distinct is None else {cell: distinct.distinct(own) for cell, own in drawn.items()}
    rows: list[dict[str, Any]] = []
    for classifier in classifiers:
        answers = answers_of(predictions, classifier)
        own = [row for pair in asked for row in _pair_rows(classifier, pair, images, answers, (tau, alpha))]
        _judge(own, tau, alpha)
        rows += own
    repeats = {(proposal, value): len(own) - len(images[proposal, value]) for (proposal, value), own in drawn.items()}
    for row in rows:
        row["repeats"] = repeats.get((row.pop("proposal_id"), row["bias_class"]), 0)
    return pa.Table.from_pylist(rows, INTERSECTIONS)


def _images(captions: pa.Table, draws: pa.Table) -> dict[tuple[str, str], set[str]]:
    """The images of each (proposal id of a pair, bias class)."""
    columns = ("caption_id", "proposal_id", "bias_class")
    place = {
        caption_id: (proposal, value)
        for caption_id, proposal, value in zip(*(captions[c].to_pylist() for c in columns), strict=True)
        if is_pair(proposal)
    }
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for caption_id, image in zip(draws["caption_id"].to_pylist(), draws["image_id"].to_pylist(), strict=True):
        if caption_id in place:
            found[place[caption_id]].add(image)
    return found


def _pair_rows(
    classifier: str,
    pair: Pair,
    images: dict[tuple[str, str], set[str]],
    answers: Answers,
    levels: tuple[float, float],
) -> Iterable[dict[str, Any]]:
    cells = list(pair.cells())
    taken = answers.of(pair.target_class)
    given = [[taken.get(i) for i in images.get((pair.proposal_id, bias_class(*cell)), ())] for cell in cells]
    total = np.array([sum(a is not None for a in cell) for cell in given], dtype=np.int64)
    correct = np.array([sum(a == pair.target_class for a in cell) for cell in given], dtype=np.int64)
    errors = np.array([len(cell) for cell in given]) - total
    columns = {"n": total, "correct": correct, "errors": errors, **_numbers(correct, total, pair.shape, levels)}
    for i, (x, y) in enumerate(cells):
        yield {
            "proposal_id": pair.proposal_id,
            "classifier": classifier,
            "target_class": pair.target_class,
            "attribute": pair.attribute,
            "bias_class": bias_class(x, y),
            "attribute_a": pair.a["attribute"],
            "attribute_b": pair.b["attribute"],
            "value_a": x,
            "value_b": y,
            **{name: values[i].item() for name, values in columns.items()},
        }


def _numbers(correct: Ints, total: Ints, shape: tuple[int, int], levels: tuple[float, float]) -> dict[str, Any]:
    tau, alpha = levels
    confidence = 1 - alpha
    low, high = metrics.wilson_interval(correct, total, confidence)
    phi_low, phi_high = metrics.bias_score_interval(correct, total, confidence)
    table = correct.reshape(shape), total.reshape(shape)
    interaction = metrics.interactions(*table).ravel()
    least, most = metrics.interaction_interval(*table, confidence)
    accuracy = np.divide(correct, total, out=np.full(len(total), np.nan), where=total > 0)
    return {
        "accuracy": accuracy,
        "accuracy_low": low,
        "accuracy_high": high,
        "phi": metrics.bias_scores(correct, total),
        "phi_low": phi_low,
        "phi_high": phi_high,
        "phi_p_value": metrics.bias_score_p_values(correct, total, tau),
        "expected": accuracy - interaction,
        "interaction": interaction,
        "interaction_low": least.ravel(),
        "interaction_high": most.ravel(),
        "p_value": metrics.interaction_p_values(*table, tau).ravel(),
    }


def _judge(rows: list[dict[str, Any]], tau: float, alpha: float) -> None:
    def column(name: str) -> Any:
        return np.array([row[name] for row in rows], float)

    q, phi_q = metrics.benjamini_hochberg(column("p_value")), metrics.benjamini_hochberg(column("phi_p_value"))
    within = (column("interaction_low") >= -tau) & (column("interaction_high") <= tau)
    verdicts = metrics.verdicts(column("interaction"), q, np.where(within, 0.0, 1.0), tau, alpha)
    for row, q_value, phi_q_value, verdict in zip(rows, q, phi_q, verdicts, strict=True):
        row.update({"q_value": float(q_value), "phi_q_value": float(phi_q_value), "verdict": verdict})
