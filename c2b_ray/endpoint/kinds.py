"""The kinds of jobs that the endpoint runs: their names, their configs, and the functions that run them.

To add a kind, add an entry to `KINDS`. References of the form "module:attribute" are imported on first use, so that the
API needs no model's library. This module knows neither HTTP nor the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from c2b_ray.audits.kit.events import Listener
from c2b_ray.errors import ConfigError, nearest


@dataclass(frozen=True)
class JobKind:
    """A kind of job. References of the form "module:attribute" are imported on first use.

    `name`: the name in requests. `label`: a sentence for pages. `config`: the model of what a user submits. `run`: the
    function that does the work, (config, out, via, listener, placement); a second call with the same config and `out`
    resumes it. `models`: the field of the config that names the models which use is booked on; empty where another
    job's config names them (`booking`). `served`: whether its models may run elsewhere, through Ray Serve; False where
    it needs gradients.
    """

    name: str
    label: str
    config: str
    run: str
    models: str = "classifier"
    served: bool = True

    @property
    def config_class(self) -> type[BaseModel]:
        loaded: type[BaseModel] = resolve_name(self.config)
        return loaded

    def work(
        self, config: Mapping[str, Any], out: str, via: str, listener: Listener | None, placement: Any = None
    ) -> None:
        """Does the job, or what is left of it, at `out`. Raises what the kind's function raises."""
        resolve_name(self.run)(dict(config), out, via, listener, placement)

    def models_of(self, config: Mapping[str, Any]) -> list[str]:
        """Returns the models that use is booked on, each once; none if the config names none, as for a question."""
        named = config.get(self.models)
        if isinstance(named, Mapping):
            named = list(named.values())
        specs = named if isinstance(named, list | tuple) else [named]
        return list(dict.fromkeys(spec for spec in specs if isinstance(spec, str) and spec))


KINDS: Mapping[str, JobKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            JobKind(
                "c2b",
                "Which attributes of an image make the classifier better or worse?",
                "c2b_ray.config.audit:AuditConfig",
                "c2b_ray.audits.c2b.audit:audit",
            ),
            JobKind(
                "failures",
                "Which captions make the classifier fail, and how often?",
                "c2b_ray.audits.failures.config:FailuresConfig",
                "c2b_ray.audits.failures.audit:find_failures",
            ),
            JobKind(
                "dataset",
                "A dataset of images that the classifier fails on",
                "c2b_ray.audits.dataset.config:DatasetConfig",
                "c2b_ray.audits.dataset.build:build_dataset",
            ),
            JobKind(
                "prompts",
                "Which natural prompts expose a hidden bias of a generator?",
                "c2b_ray.audits.prompts.config:PromptsConfig",
                "c2b_ray.audits.prompts.audit:search_prompts",
                models="generators",
            ),
            JobKind(
                "clip-bias",
                "How biased are CLIP models, and does it show in what is built on them?",
                "c2b_ray.audits.clip_bias.config:ClipBiasConfig",
                "c2b_ray.audits.clip_bias.audit:clip_bias",
                models="models",
            ),
            JobKind(
                "latent",
                "Which directions of a generator's latent space bias the classifier?",
                "c2b_ray.config.latent:LatentConfig",
                "c2b_ray.audits.latent.audit:latent_directions",
                served=False,
            ),
            JobKind(
                "evaluate",
                "How well do detected biases agree with a ground truth?",
                "c2b_ray.audits.evaluate.config:EvaluateConfig",
                "c2b_ray.audits.evaluate.evaluate:evaluate",
            ),
            JobKind(
                "question",
                "A question to a finished audit: how does the classifier do on images of a sentence?",
                "c2b_ray.config.question:QuestionConfig",
                "c2b_ray.audits.question:answer_question",
                models="",
            ),
        )
    }
)


ANSWERING_KINDS = ("c2b", "failures")
"""The kinds whose finished runs can answer questions."""
COMPARED_KINDS = tuple(name for name in KINDS if name not in ("dataset", "question"))
"""The kinds of which two finished runs can be compared."""


def kind_named(name: str) -> JobKind:
    """Returns the kind of this name. Raises ConfigError if there is none."""
    if name not in KINDS:
        raise ConfigError("kind", f"there is no kind {name!r}; {nearest(name, KINDS)}")
    return KINDS[name]
