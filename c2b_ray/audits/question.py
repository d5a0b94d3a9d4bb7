"""Asks a finished run of any kind that can answer a question, as a job that keeps its answer in files.

    OUT/answer.json    the answer as `c2b ask --json` and `c2b failures ask --json` print it, and in `lines` as they
                       print it for people
        report.html    the page, where the kind of run has one

It composes the two commands and knows no formula. An interrupted job asks again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from c2b_ray.audits.ask import ask, class_of, left_out, lines, right_line
from c2b_ray.audits.c2b.classification import one_of
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.failures.ask import ask as ask_failures
from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.candidates import written
from c2b_ray.audits.failures.report.transfers import answer_lines
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.audits.kit.events import IMAGES, Listener
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config.question import DRAWS, LABELLED, QuestionConfig, draws_images
from c2b_ray.config.question import IMAGES as IMAGES_OF_AUDIT
from c2b_ray.errors import ConfigError
from c2b_ray.storage import files
from c2b_ray.storage.run import Run, finished
from c2b_ray.text import finite

ANSWER, PAGE = "answer.json", "report.html"


def answer_question(
    config: dict[str, Any] | QuestionConfig,
    out: str | Path,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: object = None,
) -> str:
    """Asks, writes the answer under `out`, and returns its path. An existing answer is kept.

    `via` and `listener` as for audits; a question needs no `placement`. Raises ConfigError where the kind of run does
    not take a field, or the sentence names no class; RunError for a run that is not finished.
    """
    question = config if isinstance(config, QuestionConfig) else QuestionConfig.model_validate(config)
    location = f"{str(out).rstrip('/')}/{ANSWER}"
    if files.exists(location):
        return location
    run = finished(question.run)
    check_question(run, question)
    steps = Steps(listener)
    with steps.step(f"ask: {question.sentence}"):
        if isinstance(run, C2BRun):
            answer, images = _of_audit(run, question, str(out))
            steps.count({IMAGES: images})
        else:
            assert isinstance(run, FailuresRun)
            answer = _of_failures(run, question, via, listener)
    text = json.dumps(finite(answer), ensure_ascii=False, indent=2, default=str)
    files.write_under(location, f"{text}\n".encode())
    return location


def check_question(run: Run, question: QuestionConfig) -> None:
    """Raises ConfigError for a question that a finished run cannot answer, such as about a class that it does not have.
    It loads no model."""
    if isinstance(run, C2BRun):
        _refuse(question, ("target",), run.kind.command)
        if not draws_images(run.config):
            raise ConfigError("run", LABELLED)
        class_of(question.sentence, run.config["classes"], question.target_class)
        if question.classifier is not None:
            one_of(run, question.classifier, "--classifier")
    elif isinstance(run, FailuresRun):
        _refuse(question, ("classifier", "target_class"), run.kind.command)
        about = written(question.sentence, FailuresConfig.model_validate(run.config).labels, "person", "SENTENCE")
        if question.target == about.label:
            raise ConfigError("--target", f"{question.target!r} is the sentence's own label; name a wrong one")
    else:
        raise ConfigError("run", f"a run of {run.kind.command} answers no questions")


def _of_audit(run: C2BRun, question: QuestionConfig, out: str) -> tuple[dict[str, Any], int]:
    """Returns the answer, and how many images classifiers answered about."""
    result = ask(run, question.sentence, question.n or IMAGES_OF_AUDIT, question.classifier, question.target_class)
    result.write_page(f"{out.rstrip('/')}/{PAGE}")
    shown = [
        line
        for one in result.answers
        for line in (f"{one.classifier}: {right_line(one.of_sentence)}", *lines(one, result.target_class))
    ]
    return {**result.to_json(), "lines": [*shown, *left_out(result.repeats)]}, result.predictions.num_rows


def _of_failures(run: FailuresRun, question: QuestionConfig, via: str, listener: Listener | None) -> dict[str, Any]:
    result = ask_failures(run, question.sentence, question.n or DRAWS, question.target, via, listener)
    rows = [row for row in result.rows.to_pylist() if row["stage"] == "confirmation"]
    return {"run": run.path, "sentence": result.caption, "answers": rows, "lines": answer_lines(rows)}


def _refuse(question: QuestionConfig, names: tuple[str, ...], command: str) -> None:
    for name in names:
        if getattr(question, name) is not None:
            raise ConfigError(name, f"a run of {command} has no use for it; leave it out")
