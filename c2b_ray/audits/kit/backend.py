"""Backends, which decide where stages and models run: in this process, in Ray Data's actors, or behind Ray Serve.

All give the same roles and the same parts, so an audit reads the same. This module knows the catalogue and no model;
Ray is imported where it is used, so that runs with `here` do without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import cast

from c2b_ray.audits.kit.loaders import (
    DESCRIBED_IN,
    STAGES,
    Backend,
    InCallingProcess,
    Loaders,
    computing_of,
    describe,
    described,
    description_of_loaded,
    load,
)
from c2b_ray.config.placement import Computing, PlacementConfig
from c2b_ray.engine.here import InProcess
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import ConfigError, InputError
from c2b_ray.models import catalog, devices
from c2b_ray.roles import (
    Captioner,
    Classifier,
    Description,
    Floats,
    ImageGenerator,
    ImageIndex,
    LanguageModel,
    TextEncoder,
    TextImageEncoder,
)

VIAS = ("here", "actors", "serve")
AUTO = "auto"
SMALL_RUN = 20_000
"""Up to this many images, `auto` runs here: starting Ray and its processes would take longer than they save."""

_open_here: ContextVar[HereBackend | None] = ContextVar("open_here", default=None)


@dataclass(frozen=True)
class EncoderThere:
    """Encodes texts where stages run. A worker keeps its model, because the next call is likely to reach it again."""

    runner: Runner
    computing: Computing
    spec: str

    def encode_texts(self, texts: Sequence[str]) -> Floats:
        return self.runner.call(partial(_embedded, self.computing, self.spec, list(texts)), DESCRIBED_IN["encoder"])


_kept = cache(partial(load, "encoder"))


def _embedded(computing: Computing, spec: str, texts: list[str]) -> Floats:
    embeddings: Floats = _kept(computing, spec).encode_texts(texts)
    return embeddings


class ActorsBackend(InCallingProcess):
    """Runs stages on Ray; each model loads in the actors that use it."""

    def __init__(self, placement: PlacementConfig | None = None) -> None:
        from c2b_ray.engine.ray_stage import OnRay

        super().__init__(placement)
        self._on_ray = OnRay(placement)
        self._on_ray.check_placement()
        self.runner: Runner = self._on_ray
        self.searcher = self.runner
        # Each once: where only a process of its stage can describe a model, starting it takes seconds. (A cache of
        # functools around the method would keep this object alive, and with it the models of a caller.)
        self._descriptions: dict[tuple[str, str], Description] = {}

    def describe(self, role: str, spec: str) -> Description:
        if (role, spec) not in self._descriptions:
            self._descriptions[role, spec] = self._describe(role, spec)
        return self._descriptions[role, spec]

    def _describe(self, role: str, spec: str) -> Description:
        if role == "language_model":  # this process calls it
            return catalog.describe(role, spec) or description_of_loaded(self, role, spec)
        computing = computing_of(role, self._placement)
        # Without GPUs all processes there compute on CPUs, so this one can describe the model.
        on_cpus = not self._on_ray.gpus(DESCRIBED_IN[role])
        with devices.assigned(()) if on_cpus else nullcontext():
            description = describe(role, computing, spec)
        if description is None or description.of_device:
            return self.runner.call(partial(described, role, computing, spec), DESCRIBED_IN[role])
        return description

    def text_encoder(self, spec: str) -> TextEncoder:
        return EncoderThere(self.runner, computing_of("encoder", self._placement), spec)

    def start(
        self, language_model: str | None = None, encoder: str | None = None, captioner: str | None = None
    ) -> None:
        """Does nothing: the processes that load the models do not exist yet."""

    def language_model(self, spec: str) -> LanguageModel:
        return catalog.language_model(spec)


class HereBackend:
    """Runs stages in this process, and loads each model in it once."""

    def __init__(self, placement: PlacementConfig | None = None) -> None:
        self.runner: Runner = InProcess(placement)
        self.searcher = self.runner
        self.language_model = cache(catalog.language_model)
        stages = self._stages = placement or PlacementConfig()
        self._encoder, self._captioner, self._image_generator, self._classifier = (
            cache(partial(load, role, stages.stage(stage).computing)) for role, stage in STAGES.items()
        )
        self._index = cache(catalog.index)
        self._descriptions: dict[tuple[str, str], Description] = {}

    def describe(self, role: str, spec: str) -> Description:
        if (role, spec) not in self._descriptions:
            self._descriptions[role, spec] = self._describe(role, spec)
        return self._descriptions[role, spec]

    def _describe(self, role: str, spec: str) -> Description:
        return describe(role, computing_of(role, self._stages), spec) or description_of_loaded(self, role, spec)

    def text_encoder(self, spec: str) -> TextEncoder:
        encoder: TextEncoder = self._encoder(spec)
        return encoder

    def start(
        self, language_model: str | None = None, encoder: str | None = None, captioner: str | None = None
    ) -> None:
        """Does nothing: models load one after the other."""

    def language_model_there(self, spec: str) -> Callable[[], LanguageModel]:
        return partial(self.language_model, spec)

    def encoder(self, spec: str) -> Callable[[], TextImageEncoder]:
        return partial(self._encoder, spec)

    def captioner(self, spec: str) -> Callable[[], Captioner]:
        return partial(self._captioner, spec)

    def image_generator(self, spec: str) -> Callable[[], ImageGenerator]:
        return partial(self._image_generator, spec)

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(self._index, path)

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(self._classifier, spec)


def cluster_in_reach() -> bool:
    """Returns whether this process is connected to a Ray cluster, or RAY_ADDRESS names one."""
    if "ray" not in sys.modules and os.environ.get("RAY_ADDRESS", "local") in ("", "local"):
        return False
    from c2b_ray.engine.cluster import reachable

    return reachable()


@contextmanager
def at_hand() -> Iterator[Loaders]:
    """Yields models for a quick question: from Ray Serve where this process or RAY_ADDRESS knows a cluster that runs
    it, otherwise in this process, without Ray."""
    if not cluster_in_reach():
        yield InCallingProcess()
        return
    try:
        from c2b_ray.audits.kit.served import RunningApps
        from c2b_ray.serving.ensure import running
    except InputError:  # installed without Ray Serve, which the caller did not name
        yield InCallingProcess()
        return
    from c2b_ray.engine.cluster import ensure_ray

    with ensure_ray(), devices.assigned(()):
        yield RunningApps(running())


def check_via(via: str) -> None:
    """Raises ConfigError for an unknown `via`, and InputError where what it needs is not installed."""
    if via not in (AUTO, *VIAS):
        raise ConfigError("via", f"{via!r} is none of {', '.join((AUTO, *VIAS))}")
    if via == "serve":
        import c2b_ray.serving  # noqa: F401  (which says what to install)


def chosen_via(via: str, images: Callable[[], int | None]) -> str:
    """Returns `via` where it names a backend; for `auto`, `here` where there are few images and no cluster can be
    reached, otherwise `actors`.

    `images`: returns an upper limit of their number, None where unknown.
    """
    check_via(via)
    if via != AUTO:
        return via
    if cluster_in_reach():
        return "actors"
    count = images()
    return "here" if count is not None and count <= SMALL_RUN else "actors"


@contextmanager
def backend(via: str, placement: PlacementConfig | None = None) -> Iterator[Backend]:
    """Yields a backend, with Ray running beneath it if it needs Ray; what it started, it stops.

    `placement`: how its stages are placed; by default this follows from the cluster's resources. `here` within `here`
    is the same backend, so that loaded models are not loaded again.
    """
    if via not in VIAS:
        raise ConfigError("via", f"{via!r} is none of {', '.join(VIAS)}")
    if via == "here":
        token = _open_here.set(_open_here.get() or HereBackend(placement))
        try:
            yield cast(HereBackend, _open_here.get())
        finally:
            _open_here.reset(token)
        return
    from c2b_ray.engine.cluster import ensure_ray

    # Ray assigns no GPU to a driver: those that it sees are its workers'.
    with ensure_ray() as started, devices.assigned(()), ExitStack() as stack:
        try:
            if via == "actors":
                yield ActorsBackend(placement)
            else:
                from c2b_ray.audits.kit.served import ServeBackend

                yield ServeBackend(stack, placement, "alone" if started else None)
        finally:
            if started:  # the apps end with their cluster, in one go
                stack.pop_all()
