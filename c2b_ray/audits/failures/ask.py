"""Answers a person's question to a finished run: does the classifier fail more often on "a fly on a leaf"?

The question gets draws of its own, of its caption and of the baseline; no decision of the run used them. Questions form
a family of their own: question number t is tested at 1/(t(t + 1)) of alpha, so that all questions to a run together,
each asked in the light of earlier answers, give a false finding with probability alpha at most. The run's own decisions
and earlier answers do not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.confirmation import TEST_SHARE, Confirmation, discovered
from c2b_ray.audits.failures.discovery.candidates import Candidate, table, written
from c2b_ray.audits.failures.drawing import DISCOVERY, SEARCH, WantedDraws
from c2b_ray.audits.failures.report.captions import answer_lines
from c2b_ray.audits.failures.report.page import write_report
from c2b_ray.audits.failures.run import FailuresRun, load_failures_run, open_failures_run
from c2b_ray.audits.failures.state import FailuresState, Hypothesis, Kind, of_persons, start
from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.audits.kit.models import HERE, held_in_memory
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.config.named import DRAWS, QuestionConfig
from c2b_ray.errors import Argument, BusyRunError, ConfigError, nearest
from c2b_ray.storage.run import Run, finished
from c2b_ray.tables import seed_of

if TYPE_CHECKING:
    from c2b_ray.models.memory_classifier import InMemory, Model

QUESTIONS, ASKING = "questions", "asking"
LOOK = 0.05
"""The share of a question's draws that shows what failures are taken for."""


@dataclass(frozen=True)
class QuestionRows:
    """`rows`: the rows of `tables.HYPOTHESES` about the question's caption. `is_new`: whether it was asked now; else
    these are the rows of an earlier question, and nothing was drawn."""

    run: FailuresRun
    caption: str
    rows: pa.Table
    is_new: bool = True


def ask(
    run: str | Path | Run,
    sentence: str,
    draws: int = 20_000,
    target: str | None = None,
    via: str = AUTO,
    listener: Listener | None = None,
    *,
    classifier: Model | InMemory | Mapping[str, Model | InMemory] | None = None,
    labels: Sequence[str] | None = None,
) -> QuestionRows:
    """Tests whether the run's classifiers fail more often on images of the sentence than on the label's baseline.

    `sentence`: a caption that holds one of the run's labels. `draws`: the most images to draw, those of the baseline
    included. `target`: the wrong label to test besides any failure; by default the most frequent one. A question that
    was asked before is answered from the run, whatever `draws` is; another target of the same sentence is another
    question. `classifier`, `labels`: models in memory, as the run had them.

    ConfigError where the sentence names none of the run's labels, or several, or where a classifier lacks the target;
    RunError for a run that is not finished.
    """
    in_memory = held_in_memory(classifier, labels, via)
    done = load_failures_run(finished(run))
    config = FailuresConfig.model_validate(done.config)
    if config.images.generate is None:
        raise ConfigError(
            Argument.RUN, f"{done.path} is a run on labelled images, which holds none for a sentence of yours"
        )
    caption = written(sentence, config.labels, "person", Argument.SENTENCE)
    before = _of_caption(done.hypotheses, caption)
    if before.num_rows and (target is None or target in before["target"].to_pylist()):
        return QuestionRows(_ended(done), caption.text, before, is_new=False)
    session, steps = Session(HERE if in_memory else via, None, listener), Steps(listener)
    with open_failures_run(done.path, done.record.run_id, done.record.config) as open_run:
        number = _questions(open_run) + 1  # counted under the run's lock: each question has a share of alpha of its own
        with session.backend(lambda: draws) as models:
            work = start(config, open_run, models, steps, seed_of("ask", config.seed, number))
            _check_target(work, caption.label, target)
            any_failure = [] if before.num_rows else [None]  # tested once, by the first question
            new = _answer(work, caption, [*any_failure, *([target] if target else [])], draws, number)
        _keep(open_run, caption, new, number)
    return QuestionRows(open_run, caption.text, new)


def _questions(run: FailuresRun) -> int:
    """Returns the number of questions that were asked; runs of earlier releases do not say it."""
    return max(int(run.manifest.get(QUESTIONS, 0)), len(set(of_persons(run.hypotheses)["caption_id"].to_pylist())))


def _check_target(work: FailuresState, label: str, target: str | None) -> None:
    if target is None:
        return
    if target == label:
        raise ConfigError(Argument.TARGET, f"{target!r} is the sentence's own label; name a wrong one")
    for decider in work.drawing.deciders:
        if target not in decider.names:
            raise ConfigError(
                Argument.TARGET, f"{decider.classifier} has no label {target!r}; {nearest(target, decider.names)}"
            )


def _answer(
    work: FailuresState, caption: Candidate, targets: Sequence[str | None], draws: int, number: int
) -> pa.Table:
    """`targets`: wrong labels to test; None: any failure. None alone: also the most frequent one."""
    work.run.update({ASKING: number})
    caption = work.register(caption)
    names = [decider.classifier for decider in work.drawing.deciders]
    look = max(int(draws * LOOK), 1)
    base = work.baselines[caption.label]
    work.drawing.draw(
        [WantedDraws(caption_drawn, DISCOVERY, SEARCH, look) for caption_drawn in (caption, base)], work.steps, "look"
    )
    hypotheses = []
    for name in names:
        counts = work.drawing.counts(caption, name, DISCOVERY, SEARCH)
        most_frequent = [label for label, _ in counts.taken_for.most_common(1)] if list(targets) == [None] else []
        hypotheses += [
            Hypothesis(Kind(name, caption.label, tested_target), caption)
            for tested_target in (*targets, *most_frequent)
        ]
    confirmation = Confirmation(work, hypotheses, share=1 / (number * (number + 1)))
    confirmation.test(int((draws - 2 * look) * TEST_SHARE))
    confirmation.measure(draws - sum(work.drawing.spent.values()))
    return pa.concat_tables([confirmation.table(), discovered(work, hypotheses)])


def _keep(run: FailuresRun, caption: Candidate, rows: pa.Table, number: int) -> None:
    run.update({QUESTIONS: number})
    if caption.caption_id not in run.candidates["caption_id"].to_pylist():
        run.write("candidates", pa.concat_tables([run.candidates, table([caption])]))
    run.write("hypotheses", pa.concat_tables([run.hypotheses, rows]))
    _end(run)


def _end(run: FailuresRun) -> None:
    run.update({"status": "finished", "finished": datetime.now(UTC).isoformat(timespec="seconds"), ASKING: 0})
    write_report(run)


def _ended(run: FailuresRun) -> FailuresRun:
    """Returns the run, marked as finished where a question that was interrupted left it otherwise."""
    if run.record.status != "finished":
        with suppress(BusyRunError), open_failures_run(run.path, run.record.run_id, run.record.config) as open_run:
            _end(open_run)
    return run


def _of_caption(rows: pa.Table, caption: Candidate) -> pa.Table:
    return rows.filter(pc.and_(pc.equal(rows["caption_id"], caption.caption_id), pc.equal(rows["origin"], "person")))


# Questions as jobs of the shared endpoint (`audits.runs`).


def check_question(run: FailuresRun, question: QuestionConfig) -> None:
    """Raises ConfigError for a question that the run cannot answer. It loads no model."""
    candidate = written(
        question.sentence, FailuresConfig.model_validate(run.config).labels, "person", Argument.SENTENCE
    )
    if question.target == candidate.label:
        raise ConfigError(Argument.TARGET, f"{question.target!r} is the sentence's own label; name a wrong one")


def answer_question(
    run: FailuresRun, question: QuestionConfig, out: str, via: str, listener: Listener | None
) -> tuple[dict[str, Any], int]:
    """Returns the answer; the listener is told of its images. It adds the answer to the run, and nothing to `out`."""
    result = ask(run, question.sentence, question.n or DRAWS, question.target, via, listener)
    rows = [row for row in result.rows.to_pylist() if row["stage"] == "confirmation"]
    return {"run": run.path, "sentence": result.caption, "answers": rows, "lines": answer_lines(rows)}, 0
