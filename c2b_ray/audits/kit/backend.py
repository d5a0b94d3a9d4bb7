"""Where an audit's models run: in Ray Data's actors and this process, or behind Ray Serve.

Both give the same roles, so an audit reads the same. It knows the catalogue and Serve's handles, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol, TypeVar

from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.pipelines.cluster import ensure_ray, reachable
from c2b_ray.roles import Captioner, Classifier, ImageGenerator, ImageIndex, LanguageModel, TextImageEncoder
from c2b_ray.serving.app import ensure, running
from c2b_ray.serving.channel import APPS, Channel
from c2b_ray.serving.handles import ServedClassifier, ServedEncoder, ServedIndex

VIAS = ("actors", "serve")
T = TypeVar("T")


class Loaders(Protocol):
    """Factories of roles that can be sent to workers."""

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]: ...

    def captioner(self, spec: str) -> Callable[[], Captioner]: ...

    def image_generator(self, spec: str) -> Callable[[], ImageGenerator]: ...

    def index(self, path: str) -> Callable[[], ImageIndex]: ...

    def classifier(self, spec: str) -> Callable[[], Classifier]: ...


class Backend(Loaders, Protocol):
    """A language model for this process besides."""

    def start(
        self, language_model: str | None = None, encoder: str | None = None, captioner: str | None = None
    ) -> None:
        """Loads what an audit is about to ask for, all at once, where loading ahead is of use."""

    def language_model(self, spec: str) -> LanguageModel: ...


class InActors:
    """Each model loads in the process that uses it."""

    def start(
        self, language_model: str | None = None, encoder: str | None = None, captioner: str | None = None
    ) -> None:
        """Nothing to do: those processes are still to come."""

    def language_model(self, spec: str) -> LanguageModel:
        return catalog.language_model(spec)

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        return partial(catalog.encoder, spec)

    def captioner(self, spec: str) -> Callable[[], Captioner]:
        return partial(catalog.captioner, spec)

    def image_generator(self, spec: str) -> Callable[[], ImageGenerator]:
        return partial(catalog.image_generator, spec)

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(catalog.index, path)

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(catalog.classifier, spec)


class BehindServe:
    """Each model answers from an app of Ray Serve, which is started if none runs it yet and stopped with `stack`."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def start(
        self, language_model: str | None = None, encoder: str | None = None, captioner: str | None = None
    ) -> None:
        models = ensure(
            language_model=language_model, encoder=encoder, captioner=captioner, classifiers=True, index=True
        )
        self._stack.enter_context(models)

    def language_model(self, spec: str) -> LanguageModel:
        model = self._stack.enter_context(ensure(language_model=spec)).language_model
        assert model is not None
        return model

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        model = self._stack.enter_context(ensure(encoder=spec)).encoder
        assert model is not None
        return partial(_itself, model)

    def captioner(self, spec: str) -> Callable[[], Captioner]:
        model = self._stack.enter_context(ensure(captioner=spec)).captioner
        assert model is not None
        return partial(_itself, model)

    def image_generator(self, spec: str) -> Callable[[], ImageGenerator]:
        model = self._stack.enter_context(ensure(image_generator=spec)).image_generator
        assert model is not None
        return partial(_itself, model)

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(_itself, self._stack.enter_context(ensure(index=True)).index(path))

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(_itself, self._stack.enter_context(ensure(classifiers=True)).classifier(spec))


class WhereServed(InActors):
    """Models from the apps that run already, and in this process what none of them serves; it starts none."""

    def __init__(self, there: Mapping[str, str | None]) -> None:
        self._there = there

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        app = next((name for name, model in self._there.items() if model == spec and _is_of("encoder", name)), None)
        return super().encoder(spec) if app is None else partial(_itself, ServedEncoder(spec, Channel(app)))

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(ServedIndex, path) if APPS["index"] in self._there else super().index(path)

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(ServedClassifier, spec) if APPS["classifiers"] in self._there else super().classifier(spec)


def _is_of(kind: str, app: str) -> bool:
    return app == APPS[kind] or app.startswith(f"{APPS[kind]}-")


@contextmanager
def at_hand() -> Iterator[Loaders]:
    """Models for a quick question: from Ray Serve where this process or RAY_ADDRESS knows a cluster that runs it, else
    in this process, without Ray."""
    if not reachable():
        yield InActors()
        return
    with ensure_ray():
        yield WhereServed(running())


def _itself(model: T) -> T:
    return model


@contextmanager
def backend(via: str) -> Iterator[Backend]:
    """A backend with Ray running beneath it; what it started, it stops."""
    if via not in VIAS:
        raise ConfigError("via", f"{via!r} is none of {', '.join(VIAS)}")
    with ensure_ray() as started, ExitStack() as stack:
        try:
            yield InActors() if via == "actors" else BehindServe(stack)
        finally:
            if started:  # the apps end with their cluster, in one go
                stack.pop_all()
