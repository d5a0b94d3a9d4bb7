"""Where an audit's models run: in Ray Data's actors and this process, or behind Ray Serve.

Both give the same roles, so an audit reads the same. It knows catalogue and Serve handles, and no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.pipelines.cluster import ensure_ray
from c2b_ray.roles import Classifier, ImageIndex, LanguageModel, TextImageEncoder

VIAS = ("actors", "serve")


class Backend(Protocol):
    """Roles for this process, and picklable factories of the roles that workers need."""

    def language_model(self, spec: str) -> LanguageModel: ...

    def encoder(self, spec: str) -> TextImageEncoder: ...

    def index(self, path: str) -> Callable[[], ImageIndex]: ...

    def classifier(self, spec: str) -> Callable[[], Classifier]: ...


class Actors:
    """Each model loads where it is used."""

    def language_model(self, spec: str) -> LanguageModel:
        return catalog.language_model(spec)

    def encoder(self, spec: str) -> TextImageEncoder:
        return catalog.encoder(spec)

    def index(self, path: str) -> Callable[[], ImageIndex]:
        return partial(catalog.index, path)

    def classifier(self, spec: str) -> Callable[[], Classifier]:
        return partial(catalog.classifier, spec)


@contextmanager
def backend(via: str) -> Iterator[Backend]:
    """A backend with Ray running beneath it; what it started, it stops."""
    if via not in VIAS:
        raise ConfigError("via", f"{via!r} is none of {', '.join(VIAS)}")
    with ensure_ray():
        if via == "actors":
            yield Actors()
            return
        from c2b_ray.audits.served import served

        with served() as models:
            yield models
