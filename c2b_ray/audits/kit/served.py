"""Models behind Ray Serve: from apps that an audit starts where none runs, or from those alone that run already.

It knows which app serves what, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from c2b_ray.audits.kit.loaders import InCallingProcess
from c2b_ray.config.placement import PlacementConfig
from c2b_ray.pipelines.ray_stage import OnRay
from c2b_ray.pipelines.stage import Runner
from c2b_ray.roles import Captioner, Classifier, ImageGenerator, ImageIndex, LanguageModel, TextImageEncoder
from c2b_ray.serving.app import LAPTOP, ensure
from c2b_ray.serving.channel import APPS, Channel
from c2b_ray.serving.handles import ServedClassifier, ServedEncoder, ServedIndex

T = TypeVar("T")


class ServeBackend:
    """Stages run on Ray; each model answers from an app of Ray Serve, which is started if none runs it yet and stopped
    with `stack`."""

    def __init__(self, stack: ExitStack, placement: PlacementConfig | None = None) -> None:
        self._stack = stack
        self._apps = Path(placement.serve) if placement and placement.serve else LAPTOP
        self.runner: Runner = OnRay(placement, served=True)

    def start(
        self, language_model: str | None = None, encoder: str | None = None, captioner: str | None = None
    ) -> None:
        models = ensure(
            language_model=language_model,
            encoder=encoder,
            captioner=captioner,
            classifiers=True,
            index=True,
            placement=self._apps,
        )
        self._stack.enter_context(models)

    def language_model(self, spec: str) -> LanguageModel:
        model = self._stack.enter_context(ensure(language_model=spec, placement=self._apps)).language_model
        assert model is not None
        return model

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        model = self._stack.enter_context(ensure(encoder=spec, placement=self._apps)).encoder
        assert model is not None
        return partial(_itself, model)

    def captioner(self, spec: str) -> Callable[[], Captioner]:
        model = self._stack.enter_context(ensure(captioner=spec, placement=self._apps)).captioner
        assert model is not None
        return partial(_itself, model)

    def image_generator(self, spec: str) -> Callable[[], ImageGenerator]:
        model = self._stack.enter_context(ensure(image_generator=spec, placement=self._apps)).image_generator
        assert model is not None
        return partial(_itself, model)

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(_itself, self._stack.enter_context(ensure(index=True, placement=self._apps)).index(path))

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(
            _itself, self._stack.enter_context(ensure(classifiers=True, placement=self._apps)).classifier(spec)
        )


class RunningApps(InCallingProcess):
    """Models from the apps that run already, and in this process what none of them serves; it starts none."""

    def __init__(self, apps: Mapping[str, str | None]) -> None:
        self._apps = apps

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        app = next((name for name, model in self._apps.items() if model == spec and _is_of("encoder", name)), None)
        return super().encoder(spec) if app is None else partial(_itself, ServedEncoder(spec, Channel(app)))

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(ServedIndex, path) if APPS["index"] in self._apps else super().index(path)

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(ServedClassifier, spec) if APPS["classifiers"] in self._apps else super().classifier(spec)


def _is_of(kind: str, app: str) -> bool:
    return app == APPS[kind] or app.startswith(f"{APPS[kind]}-")


def _itself(model: T) -> T:
    return model
