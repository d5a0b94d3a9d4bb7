"""Starts a run, or a person's question to one: loads its models, prepares its draws and captions, and writes its
results.

Rows of questions stay when the run itself is done again: they take no part in its decisions.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.failures.describing import Describing
from c2b_ray.audits.failures.drawing import Drawing
from c2b_ray.audits.failures.labels import baselines, contenders, noted_classifiers
from c2b_ray.audits.failures.sources import generated
from c2b_ray.audits.failures.work import Work
from c2b_ray.audits.kit.events import Steps
from c2b_ray.audits.kit.facts import model_row, warn_of_assumptions
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.config.failures import FailuresConfig
from c2b_ray.pipelines.images import of_revision
from c2b_ray.pipelines.rounds import RoundStage
from c2b_ray.steps.discovery.candidates import table
from c2b_ray.store.failures_run import FailuresRun

LEAST_ROUND, MOST_ROUND, ROUNDS_OF_A_RUN = 50, 2000, 400
PERSON = "person"


def start(config: FailuresConfig, run: FailuresRun, models: Backend, steps: Steps, seed: int) -> Work:
    """Returns what the run works with: its models, which its manifest then names, and its first captions.

    `seed`: the seeds of the run's draws derive from it.
    """
    assert config.images.generate is not None
    source = generated(config.images.generate.model, models, seed)
    classifiers = contenders(config, models)
    noted = noted_classifiers(config, models, steps)
    known = models.describe("image_generator", source.name)
    warn_of_assumptions(steps, source.name, known)
    run.update({"models": {"generator": model_row(source.name, known), **noted}})
    stage = RoundStage(models.runner, source.load, classifiers, run.location("rounds"), seed)
    size = min(MOST_ROUND, max(LEAST_ROUND, config.budget.draws // ROUNDS_OF_A_RUN))
    drawing = Drawing(run, stage, source, [one.decider for one in classifiers], size, config.budget.draws)
    work = Work(config, run, models, steps, drawing, _describing(config, run, models, steps), baselines(config))
    for caption in work.baselines.values():
        work.register(caption)
    return work


def _describing(config: FailuresConfig, run: FailuresRun, models: Backend, steps: Steps) -> Describing | None:
    if config.captioner is None:
        return None
    known = models.describe("captioner", config.captioner)
    revision = known.revision
    run.update({"models": {"captioner": model_row(config.captioner, known)}})
    warn_of_assumptions(steps, config.captioner, known)
    factory = partial(of_revision, models.captioner(config.captioner), revision, config.captioner)
    return Describing(run, models.runner, factory, revision, steps)


def write_candidates(work: Work) -> None:
    """Writes the captions of the run and of the questions to it."""
    mine = table(work.candidates.values())
    questions = of_persons(work.run.candidates)
    others = questions.filter(pc.invert(pc.is_in(questions["caption_id"], mine["caption_id"].combine_chunks())))
    work.run.write("candidates", pa.concat_tables([mine, others]))


def write_hypotheses(run: FailuresRun, rows: pa.Table) -> None:
    """Writes the hypotheses of the run and of the questions to it."""
    run.write("hypotheses", pa.concat_tables([rows, of_persons(run.hypotheses)]))


def of_persons(rows: pa.Table) -> pa.Table:
    """Returns the rows that a person's questions made, of candidates or of hypotheses."""
    return rows.filter(pc.equal(rows["origin"], PERSON))
