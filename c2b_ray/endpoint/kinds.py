"""The kinds of jobs that the endpoint runs: what each is called, which config it takes, and what runs it.

`KINDS` lists them. What a kind names as "module:function" loads on first use, so that the API needs no model's library.
A kind is added by one entry here. It knows neither HTTP nor the ledger.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from c2b_ray.audits.kit.events import Listener
from c2b_ray.errors import ConfigError, nearest


@dataclass(frozen=True)
class JobKind:
    """A kind of job; what it names as "module:attribute" loads when it is used.

    `name`: in requests. `label`: in words, for pages. `config`: the model of what a user submits. `run`: what does the
    work, (config, out, via, listener, placement); called again with the same config and `out` it goes on. `run_kind`:
    the kind of the run directory that it leaves (`store.kinds`); None where it leaves something else.
    """

    name: str
    label: str
    config: str
    run: str
    run_kind: str | None = None

    @property
    def config_class(self) -> type[BaseModel]:
        loaded: type[BaseModel] = _loaded(self.config)
        return loaded

    def work(
        self, config: Mapping[str, Any], out: str, via: str, listener: Listener | None, placement: Any = None
    ) -> None:
        """Does the job, or what is left of it, at `out`. Raises what the kind's function raises."""
        _loaded(self.run)(dict(config), out, via, listener, placement)


KINDS: Mapping[str, JobKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            JobKind(
                "c2b",
                "Which attributes of an image make the classifier better or worse?",
                "c2b_ray.config.audit:AuditConfig",
                "c2b_ray.audits.c2b.audit:audit",
                "c2b",
            ),
            JobKind(
                "failures",
                "Which captions make the classifier fail, and how often?",
                "c2b_ray.config.failures:FailuresConfig",
                "c2b_ray.audits.failures.audit:find_failures",
                "failures",
            ),
            JobKind(
                "dataset",
                "A dataset of images that the classifier fails on",
                "c2b_ray.config.dataset:DatasetConfig",
                "c2b_ray.commands.dataset.build:build_dataset",
            ),
            JobKind(
                "question",
                "A question to a finished audit: how does the classifier do on images of a sentence?",
                "c2b_ray.config.question:QuestionConfig",
                "c2b_ray.commands.question:answer_question",
            ),
        )
    }
)


def kind_named(name: str) -> JobKind:
    """ConfigError where there is no such kind."""
    if name not in KINDS:
        raise ConfigError("kind", f"there is no kind {name!r}; {nearest(name, KINDS)}")
    return KINDS[name]


def _loaded(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)
