"""The kinds of jobs, and the models that their use is booked on: every audit (`audits.audit`), and questions to runs.

A question is booked on the models of the run that it asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from c2b_ray.audits.audit import QUESTION, Audit, audits
from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.policy.names import RUN
from c2b_ray.errors import ConfigError, nearest

_QUESTION = Audit(
    name=QUESTION,
    question="A question to a finished audit: how does the classifier do on images of a sentence?",
    about="Ask a finished run.",
    config="c2b_ray.config.named:QuestionConfig",
    run="c2b_ray.audits.runs:answer_question",
    models="",  # its use is booked on the models of the run that it asks (`models_of`)
)


@cache
def kinds() -> Mapping[str, Audit]:
    """Returns the kinds by name, those of other packages last but for questions."""
    return MappingProxyType({**audits(), QUESTION: _QUESTION})


def compared_kinds() -> list[str]:
    """Returns the kinds of which two finished runs can be compared."""
    return [name for name, kind in kinds().items() if kind.is_compared]


def kind_named(name: str) -> Audit:
    """Returns the kind of this name. Raises ConfigError if there is none."""
    if name not in kinds():
        raise ConfigError("kind", f"there is no kind {name!r}; {nearest(name, kinds())}")
    return kinds()[name]


# Which models a job's use is booked on and counted against, and how many images a question takes.


UNKNOWN = ""
"""The model of jobs whose config names none."""


def models_of(db: Database, tenant_id: str, kind: str, config: Mapping[str, Any]) -> list[str]:
    """Returns the models that a job's use is booked on, each once; [`UNKNOWN`] if there is none."""
    if kind == QUESTION:
        return _of_question(db, tenant_id, config)
    return (kinds()[kind].models_of(config) if kind in kinds() else []) or [UNKNOWN]


def images_of_question(db: Database, tenant_id: str, config: Mapping[str, Any]) -> int | None:
    """Returns how many images a question takes at most, where each classifier of an audit answers about each; None if
    there is no such run."""
    job = jobs.get(db, tenant_id, str(config.get("run", "")).removeprefix(RUN))
    questions = None if job is None or job.kind not in kinds() else kinds()[job.kind].questions
    if questions is None:
        return None
    images = int(config.get("n") or questions.images)
    return images * len(_of_question(db, tenant_id, config)) if questions.of_each_classifier else images


def _of_question(db: Database, tenant_id: str, config: Mapping[str, Any]) -> list[str]:
    """Returns the models of the run that is asked, or the one that the question names among them."""
    job = jobs.get(db, tenant_id, str(config.get("run", "")).removeprefix(RUN))
    if job is None or job.kind == QUESTION:
        return [UNKNOWN]
    specs, name = job.config.get("classifier"), config.get("classifier")
    if isinstance(specs, Mapping) and name in specs:
        return [str(specs[name])]
    models = models_of(db, tenant_id, job.kind, job.config)
    return [name] if name in models else models
