"""Interfaces that an audit needs from a backend: factories of roles, and a runner of stages.

It knows the catalogue and no model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from c2b_ray.config.placement import Computing, PlacementConfig, Stage
from c2b_ray.engine.images import CLASSIFY, GENERATE, VERIFY
from c2b_ray.engine.index import RETRIEVE
from c2b_ray.engine.stage import Runner
from c2b_ray.models import as_placed, catalog, devices
from c2b_ray.roles import (
    Captioner,
    Classifier,
    Description,
    ImageGenerator,
    ImageIndex,
    LanguageModel,
    TextEncoder,
    TextImageEncoder,
)
from c2b_ray.steps.decode import decoded

DESCRIBED_IN = {
    "classifier": CLASSIFY,
    "captioner": VERIFY,
    "image_generator": GENERATE,
    "encoder": RETRIEVE,
    "index": RETRIEVE,
}
"""By role, the stage whose placement is used to describe a model, or call it once, where it must be loaded for that."""


class Loaders(Protocol):
    """Factories of roles that can be sent to the processes of `runner`."""

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]: ...

    def captioner(self, spec: str) -> Callable[[], Captioner]: ...

    def image_generator(self, spec: str) -> Callable[[], ImageGenerator]: ...

    def language_model_there(self, spec: str) -> Callable[[], LanguageModel]:
        """Returns a factory like `Backend.language_model`, for the processes that run stages."""
        ...

    def index(self, path: str) -> Callable[[], ImageIndex]: ...

    def classifier(self, spec: str) -> Callable[[], Classifier]: ...


class Backend(Loaders, Protocol):
    """Runs stages, and has a language model for this process besides."""

    @property
    def runner(self) -> Runner: ...

    @property
    def searcher(self) -> Runner:
        """The runner that searches an audit's few captions: where encoder and index are, or in this process where they
        answer remotely."""
        ...

    def describe(self, role: str, spec: str) -> Description:
        """Returns the description of a role's model ("classifier", "index") where its stage runs.

        This process loads no weights for it, unless it runs the stage too.
        """
        ...

    def text_encoder(self, spec: str) -> TextEncoder:
        """Returns an encoder of a few texts for this process to call; the backend decides where its model runs."""
        ...

    def start(
        self, language_model: str | None = None, encoder: str | None = None, captioner: str | None = None
    ) -> None:
        """Loads the models that an audit is about to use, all at once, where loading ahead helps."""

    def language_model(self, spec: str) -> LanguageModel: ...


STAGES: dict[str, Stage] = {
    "encoder": "embed",
    "captioner": "verify",
    "image_generator": "generate",
    "classifier": "classify",
}
"""By role, the stage that loads its models and decides how they compute."""


def load(role: str, computing: Computing, spec: str) -> Any:
    """Loads the model of a role so that it computes as its stage says, with the same revision in every process."""
    return as_placed.load(role, computing, spec, decoded)


def describe(role: str, computing: Computing, spec: str) -> Description | None:
    """Returns the model's description from its files or service; None where it has to be loaded, as where a GPU decodes
    for it: a missing GPU is then found before the first image."""
    if as_placed.decodes_there(role, computing):
        return None
    with devices.computing_in(computing):
        return catalog.describe(role, spec)


def described(role: str, computing: Computing, spec: str) -> Description:
    """Returns the model's description, in a process like those that load it; the model is loaded where nothing else
    describes it."""
    return describe(role, computing, spec) or catalog.description_of(load(role, computing, spec))


def description_of_loaded(loaders: Loaders, role: str, spec: str) -> Description:
    """Returns the description of a model that this process loads, or that an app serves."""
    factory = loaders.language_model_there if role == "language_model" else getattr(loaders, role)
    return catalog.description_of(factory(spec)())


def computing_of(role: str, placement: PlacementConfig | None) -> Computing:
    """Returns how a placement has the models of a role compute."""
    return Computing() if placement is None or role not in STAGES else placement.stage(STAGES[role]).computing


class InCallingProcess:
    """Loads each model in the process that calls its factory."""

    def __init__(self, placement: PlacementConfig | None = None) -> None:
        self._placement = placement or PlacementConfig()

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        return self._factory("encoder", spec)

    def captioner(self, spec: str) -> Callable[[], Captioner]:
        return self._factory("captioner", spec)

    def image_generator(self, spec: str) -> Callable[[], ImageGenerator]:
        return self._factory("image_generator", spec)

    def language_model_there(self, spec: str) -> Callable[[], LanguageModel]:
        return partial(catalog.language_model, spec)

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(catalog.index, path)

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return self._factory("classifier", spec)

    def _factory(self, role: str, spec: str) -> Callable[[], Any]:
        return partial(load, role, self._placement.stage(STAGES[role]).computing, spec)
