"""Asks a finished run of any audit that can answer a question, as a job that keeps its answer in files.

    OUT/answer.json    the answer as `c2b ask --json` and `c2b failures ask --json` print it, and in `lines` as they
                       print it for people
        report.html    the page, where the audit has one

It calls the functions that the run's audit declares, and knows no formula. An interrupted job asks again.
"""

from __future__ import annotations

import json
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from c2b_ray.audits.audit import Questions, audit_of
from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.audits.kit.events import IMAGES, Listener
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config.named import QuestionConfig
from c2b_ray.errors import ConfigError
from c2b_ray.storage import files
from c2b_ray.storage.run import Run, finished
from c2b_ray.text import finite

ANSWER = "answer.json"


def answer_question(
    config: dict[str, Any] | QuestionConfig,
    out: str | Path,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: object = None,
) -> str:
    """Asks, writes the answer under `out`, and returns its path. An existing answer is kept.

    `via` and `listener` as for audits; a question needs no `placement`. Raises ConfigError where the audit does not
    take a field, or the sentence names no class; RunError for a run that is not finished.
    """
    question = config if isinstance(config, QuestionConfig) else QuestionConfig.model_validate(config)
    location = f"{str(out).rstrip('/')}/{ANSWER}"
    if files.exists(location):
        return location
    run = finished(question.run)
    check_question(run, question)
    steps = Steps(listener)
    with steps.step(f"ask: {question.sentence}"):
        answer, images = resolve_name(_questions(run).answer)(run, question, str(out), via, listener)
        if images:
            steps.count({IMAGES: images})
    text = json.dumps(finite(answer), ensure_ascii=False, indent=2, default=str)
    files.write_under(location, f"{text}\n".encode())
    return location


def check_question(run: Run, question: QuestionConfig) -> None:
    """Raises ConfigError for a question that a finished run cannot answer, such as about a class that it does not have.
    It loads no model."""
    questions = _questions(run)
    for name in ("classifier", "target_class", "target"):
        if name not in questions.fields and getattr(question, name) is not None:
            raise ConfigError(name, f"a run of {run.kind.command} has no use for it; leave it out")
    resolve_name(questions.check)(run, question)


def _questions(run: Run) -> Questions:
    questions = audit_of(run).questions
    if questions is None:
        raise ConfigError("run", f"a run of {run.kind.command} answers no questions")
    return questions
