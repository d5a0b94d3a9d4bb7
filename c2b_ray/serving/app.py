"""Serve apps: the builders that `deployments/*.yaml` names, and apps of an audit's own where none is deployed.

It knows which apps there are, how one is built and how it is found; placement is read from a configuration.
"""
# No `from __future__ import annotations` here: Serve looks for a builder's pydantic model in its signature, and finds a
# string with it, whereupon nothing is checked.

import logging
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application, Deployment, RunTarget
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from c2b_ray.errors import C2BError, ConfigError, InputError, ServiceError
from c2b_ray.filesystems.documents import read_yaml
from c2b_ray.models import catalog
from c2b_ray.schemas import content_id
from c2b_ray.serving import environment
from c2b_ray.serving.captioner import CaptionerServer
from c2b_ray.serving.channel import APPS, PATIENCE_S, Channel
from c2b_ray.serving.classifier import ClassifierServer
from c2b_ray.serving.encoder import EncoderServer
from c2b_ray.serving.failures import from_text
from c2b_ray.serving.generator import GeneratorServer
from c2b_ray.serving.handles import (
    ServedCaptioner,
    ServedClassifier,
    ServedEncoder,
    ServedGenerator,
    ServedIndex,
    ServedLanguageModel,
)
from c2b_ray.serving.index import IndexServer
from c2b_ray.serving.llm import LanguageModelServer

__all__ = [
    "APPS",
    "Served",
    "captioner",
    "classifiers",
    "encoder",
    "ensure",
    "image_generator",
    "index",
    "language_model",
    "running",
]

_PLACES = (Path(__file__).parents[2] / "deployments" / "laptop.yaml", Path(__file__).with_name("laptop.yaml"))
LAPTOP = next((path for path in _PLACES if path.is_file()), _PLACES[0])
"""In a checkout, or beside this file where the package was installed from a wheel."""


class OneModel(BaseModel):
    """`args` of an app that serves one model: its spec, and how many threads may call it at once."""

    model_config = ConfigDict(extra="forbid")

    model: str
    threads: int = Field(default=1, ge=1)


class ManyModels(BaseModel):
    """`args` of an app whose requests name their models: how many a replica keeps, and its threads."""

    model_config = ConfigDict(extra="forbid")

    models_per_replica: int = Field(default=4, ge=1)
    threads: int = Field(default=1, ge=1)


def language_model(args: OneModel) -> Application:
    """`c2b_ray.serving.app:language_model`"""
    return _bound("language_model", args)


def encoder(args: OneModel) -> Application:
    """`c2b_ray.serving.app:encoder`"""
    return _bound("encoder", args)


def captioner(args: OneModel) -> Application:
    """`c2b_ray.serving.app:captioner`"""
    return _bound("captioner", args)


def image_generator(args: OneModel) -> Application:
    """`c2b_ray.serving.app:image_generator`"""
    return _bound("image_generator", args)


def classifiers(args: ManyModels) -> Application:
    """`c2b_ray.serving.app:classifiers`"""
    return _bound("classifiers", args)


def index(args: ManyModels) -> Application:
    """`c2b_ray.serving.app:index`"""
    return _bound("index", args)


_DEPLOYMENTS: dict[str, Any] = {
    "language_model": LanguageModelServer,
    "encoder": EncoderServer,
    "captioner": CaptionerServer,
    "image_generator": GeneratorServer,
    "classifiers": ClassifierServer,
    "index": IndexServer,
}


_OF_ONE_MODEL = ("language_model", "encoder", "captioner", "image_generator")


def _bound(kind: str, args: OneModel | ManyModels, **options: Any) -> Application:
    deployment: Deployment = _DEPLOYMENTS[kind]
    return deployment.options(**options).bind(**args.model_dump())


@dataclass
class Served:
    """Models behind Serve, and the apps that were started for them; `stop` ends those and no others."""

    language_model: ServedLanguageModel | None = None
    encoder: ServedEncoder | None = None
    captioner: ServedCaptioner | None = None
    image_generator: ServedGenerator | None = None
    started: list[str] = field(default_factory=list)

    def classifier(self, spec: str) -> ServedClassifier:
        """A handle to any classifier of the catalogue; needs the classifiers' app."""
        return ServedClassifier(spec)

    def index(self, path: str) -> ServedIndex:
        """A handle to the index at a path that the cluster can read; needs the indexes' app."""
        return ServedIndex(path)

    def stop(self) -> None:
        """Ends the apps that were started here, once they have answered what they were asked."""
        there = serve.status().applications if self.started else {}
        with ThreadPoolExecutor() as pool:  # each waits for its replicas to drain
            list(pool.map(serve.delete, [name for name in self.started if name in there]))
        self.started = []

    def __enter__(self) -> "Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def running(kinds: Collection[str] = tuple(APPS)) -> dict[str, str | None]:
    """Every app of these kinds that answers, and the model that it serves; None where requests name their models.

    It asks each app, and one that has no replica while nobody asks starts one for it: so ask for what is wanted.
    """
    found: dict[str, str | None] = {}
    for name, app in serve.status().applications.items():
        own = {k: f"{APPS[k]}-" for k in _OF_ONE_MODEL}
        kind = next((k for k in APPS if name == APPS[k] or (k in own and name.startswith(own[k]))), None)
        if app.status != "RUNNING" or kind not in kinds:
            continue
        found[name] = Channel(name).call("describe")["model"] if kind in _OF_ONE_MODEL else None
    return found


def ensure(
    *,
    language_model: str | None = None,
    encoder: str | None = None,
    captioner: str | None = None,
    image_generator: str | None = None,
    classifiers: bool = False,
    index: bool = False,
    placement: Path = LAPTOP,
) -> Served:
    """The given models behind Serve: apps that run already and serve these very models, else apps of one's own.

    An app of one's own is named after its model, so that two audits with different models never meet. It is placed as
    `placement` places its kind. SpecError and WeightsError if a model cannot be loaded, as in this process.
    """
    if not ray.is_initialized():
        raise ServiceError("Serve needs a Ray cluster: call ray.init() first")
    wanted: dict[str, str | None] = {
        "language_model": language_model,
        "encoder": encoder,
        "captioner": captioner,
        "image_generator": image_generator,
    }
    kinds = [kind for kind, spec in wanted.items() if spec]
    kinds += [kind for kind, asked in (("classifiers", classifiers), ("index", index)) if asked]
    logging.getLogger("ray.serve").setLevel(logging.WARNING)  # what it starts and connects to is of no use to a person
    there, served = running(kinds), Served()
    apps = {kind: _app_of(kind, wanted.get(kind), there) for kind in kinds}
    missing = {kind: name for kind, name in apps.items() if name not in there}
    if missing:
        targets = _targets(missing, wanted, _placements(placement))
        try:
            served.started = _deploy(targets)
            _await_running(set(missing.values()))
        except BaseException:
            served.stop()
            raise
    if language_model:
        served.language_model = ServedLanguageModel(language_model, Channel(apps["language_model"]))
    if encoder:
        served.encoder = ServedEncoder(encoder, Channel(apps["encoder"]))
    if captioner:
        served.captioner = ServedCaptioner(captioner, Channel(apps["captioner"]))
    if image_generator:
        served.image_generator = ServedGenerator(image_generator, Channel(apps["image_generator"]))
    return served


def _app_of(kind: str, spec: str | None, there: dict[str, str | None]) -> str:
    """The name of the app to ask: one that serves this model now, else the name that an app of one's own gets."""
    if spec is None:
        return APPS[kind]
    own = f"{APPS[kind]}-{content_id(spec)[:8]}"
    return next((name for name, model in there.items() if model == spec and name in (APPS[kind], own)), own)


def _targets(
    missing: dict[str, str], wanted: dict[str, str | None], placed: dict[str, ServeApplicationSchema]
) -> list[RunTarget]:
    """What is to run under each name, placed as the configuration places its kind."""
    targets = []
    for kind, name in missing.items():
        spec = wanted.get(kind)
        if spec and (kind, catalog.parse(spec).scheme) not in catalog.CATALOG:
            catalog.loader(kind, catalog.parse(spec))  # a third party's, or a SpecError before anything starts
        place = placed.get(APPS[kind])
        if place is None:
            raise ConfigError("applications", f"the placement has no app {APPS[kind]!r}")
        options: dict[str, Any] = place.deployments[0].model_dump(exclude_unset=True) if place.deployments else {}
        if actor := options.get("ray_actor_options"):
            options["ray_actor_options"] = environment.resolved(actor, name)
        # A model that cannot be loaded cannot be loaded at a second attempt either.
        options["max_constructor_retry_count"] = 1
        if scaling := options.get("autoscaling_config"):  # whoever starts an app is about to ask it
            options["autoscaling_config"] = {**scaling, "initial_replicas": max(1, scaling.get("min_replicas", 1))}
        args = OneModel(**{**place.args, "model": spec}) if spec else ManyModels(**place.args)
        targets.append(RunTarget(_bound(kind, args, **options), name=name, route_prefix=None))
    return targets


def _deploy(targets: list[RunTarget]) -> list[str]:
    """Starts what nobody starts already (deploying an app again would restart its replicas); the names of these."""
    apps = serve.status().applications
    mine = [t for t in targets if t.name not in apps or apps[t.name].status in ("DEPLOY_FAILED", "DELETING")]
    if not apps:
        serve.start(proxy_location="Disabled")  # no HTTP: these apps are called through handles
    if mine:
        serve.run_many(mine, wait_for_applications_running=False)
    return [target.name for target in mine]


def _placements(path: Path) -> dict[str, ServeApplicationSchema]:
    try:
        read = ServeDeploySchema.model_validate(read_yaml(path))
    except (ValueError, InputError) as error:
        raise ConfigError("placement", f"{path} is no Serve configuration that can be read: {error}") from error
    return {app.name: app for app in read.applications}


def _await_running(names: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while names:
        apps = serve.status().applications
        for name in sorted(names):
            app = apps.get(name)
            said = " ".join([app.message, *(d.message for d in app.deployments.values())]) if app else "it was deleted"
            if app is None or app.status == "DEPLOY_FAILED":
                raise _named(name, said)
            if time.monotonic() > deadline:
                raise ServiceError(f"app {name!r} is {app.status} after {PATIENCE_S:.0f} s: {said.strip()}")
            if app.status == "RUNNING":
                names = names - {name}
        time.sleep(0.5)  # asking costs the controller some 50 ms


def _named(app: str, said: str) -> C2BError:
    """What the constructor of a replica raised, where it is an error of ours; else what Serve says."""
    cause = from_text(said)
    if cause is None:
        return ServiceError(f"app {app!r} did not start: {said.strip()}", app=app)
    cause.app = cause.app or app
    return cause
