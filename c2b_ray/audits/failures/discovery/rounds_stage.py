"""The stage that draws rounds: each process holds a generator and all classifiers, and returns only counts.

It is placed like the stage that generates images; reading, writing and resuming are left to `stage`. Other stages
describe and inspect the failures whose images were kept, and classify labelled images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import pyarrow as pa

from c2b_ray.audits.failures.discovery.clusters import describe
from c2b_ray.audits.failures.discovery.rounds import (
    AnswerRules,
    Draws,
    LabelledModels,
    RoundModels,
    answer_images,
    draw_rounds,
    pictures,
)
from c2b_ray.engine.images import VERIFY, OnProgress
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.roles import Captioner, Classifier
from c2b_ray.steps.classify import check_revision
from c2b_ray.steps.draw import ImageSource
from c2b_ray.tables import ANSWERS, DESCRIPTIONS, ROUNDS
from c2b_ray.tables.failures import PICTURES

S = TypeVar("S")
M = TypeVar("M")
DRAWS_AT_ONCE = 4096
"""Draws of the rounds that a process gets at once."""
ROUND_STAGE = StageConfig(ROUNDS, stage="generate", rows_per_file=64, most_weight=DRAWS_AT_ONCE)
DESCRIBE = replace(VERIFY, schema=DESCRIPTIONS, weigh=None)
ANSWER = replace(DESCRIBE, schema=ANSWERS, stage="classify")
_BLOCK, _IMAGES = 16, 256


@dataclass(frozen=True)
class DiscoveryClassifier:
    """A classifier of a run: how to load it, and what its answers mean."""

    classifier: Callable[[], Classifier]
    decider: AnswerRules


@dataclass(frozen=True)
class RoundStage:
    """Draws rounds from one source. `seed`: the run's, from which the draws' seeds follow."""

    runner: Runner
    source: Callable[[], Draws]
    classifiers: tuple[DiscoveryClassifier, ...]
    out: str
    seed: int

    def run(self, orders: pa.Table, on_progress: OnProgress) -> None:
        """Writes a round (`tables.ROUNDS`) per order and classifier, except those that are written already."""
        total = orders.num_rows * len(self.classifiers)
        config = replace(ROUND_STAGE, total=total, weigh=_draws)
        self.runner.run(
            replace(Rows.of(orders, _BLOCK), total=total),
            draw_rounds,
            partial(_loaded, RoundModels, self.source, self.classifiers),
            self.out,
            id_column="round_id",
            config=config,
            on_progress=on_progress,
        )


def answer_all(
    runner: Runner,
    rows: pa.Table,
    source: Callable[[], ImageSource],
    classifiers: tuple[DiscoveryClassifier, ...],
    out: str,
    on_progress: OnProgress,
) -> None:
    """Writes a row of `tables.ANSWERS` per labelled image (`answer_id`, `row`, `label`) and classifier into parts
    under `out`."""
    total = rows.num_rows * len(classifiers)
    runner.run(
        replace(Rows.of(rows, _IMAGES), total=total),
        answer_images,
        partial(_loaded, LabelledModels, source, classifiers),
        out,
        id_column="answer_id",
        config=replace(ANSWER, total=total),
        on_progress=on_progress,
    )


def read_pictures(
    runner: Runner, rows: pa.Table, source: Callable[[], ImageSource], out: str, on_progress: OnProgress
) -> None:
    """Writes a row of `PICTURES` per labelled image (`image_id`, `row`) into parts under `out`."""
    config = replace(ANSWER, schema=PICTURES, total=rows.num_rows)
    runner.run(
        Rows.of(rows, _IMAGES), pictures, source, out, id_column="image_id", config=config, on_progress=on_progress
    )


def describe_all(
    runner: Runner,
    images: pa.Table,
    captioner: Callable[[], Captioner],
    out: str,
    on_progress: OnProgress,
    step: Callable[[pa.Table, Captioner], pa.Table] = describe,
) -> None:
    """Writes a row of `tables.DESCRIPTIONS` per image (`description_id`, `label`, `image`) into parts under `out`.

    `step`: `describe`, or `inspect`, which answers what a verifier sees among the column `labels`.
    """
    rows, config = Rows.of(images, _BLOCK), replace(DESCRIBE, total=images.num_rows)
    runner.run(rows, step, captioner, out, id_column="description_id", config=config, on_progress=on_progress)


def _draws(orders: pa.Table) -> Sequence[int]:
    draws: list[int] = orders["draws"].to_pylist()
    return draws


def _loaded(
    kind: Callable[[S, tuple[tuple[Classifier, AnswerRules], ...]], M],
    source: Callable[[], S],
    classifiers: Sequence[DiscoveryClassifier],
) -> M:
    """Returns `kind` of the source and the classifiers, loaded in the process that calls it."""
    pairs = []
    for entry in classifiers:
        classifier = entry.classifier()
        check_revision(entry.decider.classifier, classifier.revision, entry.decider.revision)
        pairs.append((classifier, entry.decider))
    return kind(source(), tuple(pairs))
