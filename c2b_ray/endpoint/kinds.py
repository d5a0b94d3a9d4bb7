"""The kinds of jobs that the endpoint runs: every audit (`audits.audit`), and questions to finished runs.

This module knows no audit, and neither HTTP nor the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from c2b_ray.audits.audit import QUESTION, Audit, audits
from c2b_ray.errors import ConfigError, nearest

_QUESTION = Audit(
    name=QUESTION,
    question="A question to a finished audit: how does the classifier do on images of a sentence?",
    about="Ask a finished run.",
    config="c2b_ray.config.named:QuestionConfig",
    run="c2b_ray.audits.runs:answer_question",
    models="",  # its use is booked on the models of the run that it asks (`booking`)
)


@cache
def kinds() -> Mapping[str, Audit]:
    """Returns the kinds by name, those of other packages last but for questions."""
    return MappingProxyType({**audits(), QUESTION: _QUESTION})


def answering_kinds() -> list[str]:
    """Returns the kinds whose finished runs can answer questions."""
    return [name for name, kind in kinds().items() if kind.questions is not None]


def compared_kinds() -> list[str]:
    """Returns the kinds of which two finished runs can be compared."""
    return [name for name, kind in kinds().items() if kind.is_compared]


def kind_named(name: str) -> Audit:
    """Returns the kind of this name. Raises ConfigError if there is none."""
    if name not in kinds():
        raise ConfigError("kind", f"there is no kind {name!r}; {nearest(name, kinds())}")
    return kinds()[name]
