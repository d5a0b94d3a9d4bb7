"""Models behind Ray Serve: from the apps that an audit may use (`serving.ensure`), or from apps that already run.

It knows which app serves which model, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from c2b_ray.audits.kit.loaders import STAGES, InCallingProcess, computing_of, description_of_loaded
from c2b_ray.config.placement import PlacementConfig
from c2b_ray.engine.here import InProcess
from c2b_ray.engine.ray_stage import OnRay
from c2b_ray.engine.stage import Runner
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
from c2b_ray.serving.app import LAPTOP
from c2b_ray.serving.channel import APPS, Channel
from c2b_ray.serving.ensure import Tenancy, ensure
from c2b_ray.serving.handles import ServedClassifier, ServedEncoder, ServedIndex, scoring

T = TypeVar("T")
KINDS = {**{role: role for role in STAGES}, "classifier": "classifiers"}
"""The kind of app that serves each role whose models compute as the placement says."""


class ServeBackend:
    """Runs stages on Ray; each model answers from an app of Ray Serve.

    The app is a declared one, or one that the run starts and that ends with `stack`, unless another run uses it.
    """

    def __init__(
        self, stack: ExitStack, placement: PlacementConfig | None = None, tenancy: Tenancy | None = None
    ) -> None:
        self._stack = stack
        self._ensure = partial(
            ensure,
            placement=Path(placement.serve) if placement and placement.serve else LAPTOP,
            tenancy=tenancy,
            computing={KINDS[role]: computing_of(role, placement) for role in STAGES},
        )
        runner = OnRay(placement, served=True)
        runner.check_placement()
        self.runner: Runner = runner
        self.searcher: Runner = InProcess()

    def describe(self, role: str, spec: str) -> Description:
        return description_of_loaded(self, role, spec)

    def text_encoder(self, spec: str) -> TextEncoder:
        return self.encoder(spec)()

    def start(
        self, language_model: str | None = None, encoder: str | None = None, captioner: str | None = None
    ) -> None:
        models = self._ensure(
            language_model=language_model,
            encoder=encoder,
            captioner=captioner,
            classifiers=True,
            index=True,
        )
        self._stack.enter_context(models)

    def language_model(self, spec: str) -> LanguageModel:
        model = self._stack.enter_context(self._ensure(language_model=spec)).language_model
        assert model is not None
        return model

    def language_model_there(self, spec: str) -> Callable[[], LanguageModel]:
        return partial(_unchanged, self.language_model(spec))

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        model = self._stack.enter_context(self._ensure(encoder=spec)).encoder
        assert model is not None
        return partial(_unchanged, model)

    def captioner(self, spec: str) -> Callable[[], Captioner]:
        model = self._stack.enter_context(self._ensure(captioner=spec)).captioner
        assert model is not None
        return partial(_unchanged, scoring(model))

    def image_generator(self, spec: str) -> Callable[[], ImageGenerator]:
        model = self._stack.enter_context(self._ensure(image_generator=spec)).image_generator
        assert model is not None
        return partial(_unchanged, model)

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(_unchanged, self._stack.enter_context(self._ensure(index=True)).index(path))

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(_unchanged, self._stack.enter_context(self._ensure(classifiers=True)).classifier(spec))


class RunningApps(InCallingProcess):
    """Models from the apps that already run, and in this process those that no app serves; it starts no app."""

    def __init__(self, apps: Mapping[str, str | None]) -> None:
        super().__init__()
        self._apps = apps

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        app = next((name for name, model in self._apps.items() if model == spec and _is_of("encoder", name)), None)
        return super().encoder(spec) if app is None else partial(_unchanged, ServedEncoder(spec, Channel(app)))

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(ServedIndex, path) if APPS["index"] in self._apps else super().index(path)

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(ServedClassifier, spec) if APPS["classifiers"] in self._apps else super().classifier(spec)


def _is_of(kind: str, app: str) -> bool:
    return app == APPS[kind] or app.startswith(f"{APPS[kind]}-")


def _unchanged(model: T) -> T:
    return model
