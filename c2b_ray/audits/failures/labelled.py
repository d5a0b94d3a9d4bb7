"""Labelled images in the place of a generator's draws: all are answered once, captions are values of columns.

    images → answers │ one half: conditions that go with failures │ the other half: tested and measured

Which half an image is in follows from its row and the run's seed. It composes steps, models and a run directory.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.failures.labelled_claims import Answers, Halves, claims_of, hypotheses
from c2b_ray.audits.failures.labels import baselines, contenders
from c2b_ray.audits.failures.standing_in import rounds_of
from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config.failures import FailuresConfig
from c2b_ray.pipelines.rounds import Contender, answer_all
from c2b_ray.schemas import content_id
from c2b_ray.steps.discovery.candidates import table
from c2b_ray.steps.discovery.conditions import Answered, Condition
from c2b_ray.steps.labels import check_classes, chosen, compared
from c2b_ray.store.failures_run import FailuresRun
from c2b_ray.store.labelled import LabelledTable
from c2b_ray.store.parts import writing


def find_labelled(config: FailuresConfig, run: FailuresRun, models: Backend, steps: Steps) -> None:
    """The whole protocol on labelled images, from their answers to the table of hypotheses."""
    assert config.images.labelled is not None
    baselines(config)  # refuses a hierarchy that lacks a label
    images = LabelledTable(config.images.labelled.table, "images.labelled.table", config.images.labelled.columns)
    classifiers = contenders(config, models)
    rows, answered = _rows(images, config)
    answers = Answers.of(_answer(images, rows, answered, classifiers, run, models, steps), rows, classifiers)
    answers.refuse_silence(run.path)
    with steps.step("find conditions of failures"):
        claims = claims_of(answered, answers, config)
        found = hypotheses(config, images.location, Halves(answered, answers), claims)
    captions = [Condition(label).caption for label in dict.fromkeys(claim.condition.label for claim in claims)]
    run.write("candidates", table([*captions, *(claim.condition.caption for claim in claims)]))
    rounds = rounds_of(images, rows, answered, answers.tables, [claim.condition for claim in claims])
    with writing(run.location("rounds")) as parts:
        if not parts.names():
            parts.write(rounds, "round_id")
    run.write("hypotheses", found)
    run.update({"spent": {"labelled images": len(rows)}})


def _rows(images: LabelledTable, config: FailuresConfig) -> tuple[list[int], Answered]:
    """The rows of the run's labels, and what they show."""
    labels = images.labels
    check_classes(labels, config.labels)
    spelt = {name.casefold().strip(): name for name in config.labels}
    of_row = [spelt.get(str(name).casefold().strip()) for name in labels["target_class"].to_pylist()]
    rows = [row for row, label in enumerate(of_row) if label is not None]
    at = np.array(rows, np.int64)
    columns = {name: compared(labels, name)[at] for name in chosen(labels, None)}
    names = images.keys.to_pylist()
    halves = [int(content_id("half", config.seed, names[row], row), 16) % 2 == 0 for row in rows]
    return rows, Answered(np.array([of_row[row] for row in rows], object), columns, np.array(halves, bool))


def _answer(
    images: LabelledTable,
    rows: list[int],
    answered: Answered,
    classifiers: tuple[Contender, ...],
    run: FailuresRun,
    models: Backend,
    steps: Steps,
) -> pa.Table:
    noted = {
        f"classifier {one.decider.classifier}": {"spec": one.decider.classifier, "revision": one.decider.revision}
        for one in classifiers
    }
    run.update({"models": {**noted, "images": {"spec": images.location, "revision": images.revision}}})
    names = [f"{images.revision} {row}" for row in rows]
    ids = [
        [one.decider.round_id(name, label) for one in classifiers]
        for name, label in zip(names, answered.labels.tolist(), strict=True)
    ]
    wanted = pa.table(
        {"answer_id": pa.array(ids, pa.list_(pa.string())), "row": rows, "name": names, "label": list(answered.labels)}
    )
    with steps.step("classify labelled images") as on_progress:
        run.begin_writing()
        source = partial(_itself, images)
        answer_all(models.runner, wanted, source, classifiers, run.location("answers"), on_progress)
    answers, current = run.read("answers"), pa.array([one for group in ids for one in group])
    return answers.filter(pc.is_in(answers["answer_id"], current))


def _itself(images: LabelledTable) -> LabelledTable:
    return images
