"""Builds Serve apps: the builders that `deployments/*.yaml` names, and apps for models that no running app serves.

It knows which apps there are and how to build each; placement is read from a configuration.
"""
# No `from __future__ import annotations` here: with it Serve, which reads a builder's pydantic model from its
# signature, would get a string and check nothing.

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from ray.serve import Application, Deployment, RunTarget
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema

from c2b_ray.config.placement import DEPLOYMENTS, UNSAID, Computing, Decoder, Precision
from c2b_ray.errors import ConfigError, InputError
from c2b_ray.models import catalog
from c2b_ray.serving import batching
from c2b_ray.serving.captioner import CaptionerServer
from c2b_ray.serving.channel import APPS
from c2b_ray.serving.classifier import ClassifierServer
from c2b_ray.serving.encoder import EncoderServer
from c2b_ray.serving.generator import GeneratorServer
from c2b_ray.serving.index import IndexServer
from c2b_ray.serving.llm import LanguageModelServer
from c2b_ray.storage.manifest import read_yaml

LAPTOP, GPU = DEPLOYMENTS / "laptop.yaml", DEPLOYMENTS / "gpu.yaml"
LEFT_CPUS = 4
"""CPUs of a GPU's node that no replica's decoding takes: they read, and send what was read."""


class Args(BaseModel):
    """`args` of every app: how many threads may call a model at once. `decoders`: of an encoder or classifiers, the
    processes that decode their images; by default one per reserved CPU where there is a GPU. The others are a stage's
    in a placement file, and say how torch models compute."""

    model_config = ConfigDict(extra="forbid")

    threads: int = Field(default=1, ge=1)
    decoders: int | None = Field(default=None, ge=0)
    precision: Precision | None = None
    decode: Decoder | None = None
    compile: bool | None = None

    @property
    def computing(self) -> Computing:
        return Computing(self.precision, self.decode, self.compile)


class OneModel(Args):
    """`args` of an app that serves one model, by its spec."""

    model: str


class ManyModels(Args):
    """`args` of an app whose requests name their models: how many models a replica keeps, and the most gigabytes of
    their weights together."""

    models_per_replica: int = Field(default=4, ge=1)
    models_gb: float | None = Field(default=None, gt=0)


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


OF_IMAGES = ("encoder", "classifiers")
"""Apps whose torch models are shown images: they alone decode, and can be compiled."""
OF_ONE_MODEL = ("language_model", "encoder", "captioner", "image_generator")


def _bound(kind: str, args: OneModel | ManyModels, **options: Any) -> Application:
    _check_computing(kind, args)
    deployment: Deployment = _DEPLOYMENTS[kind]
    # An option that is not set is not passed: only what shows a model images has processes that decode.
    arguments = args.model_dump(exclude_none=True, exclude={"precision", "decode", "compile"})
    if args.computing != UNSAID:
        arguments["computing"] = args.computing
    return deployment.options(**options).bind(**arguments)


def _check_computing(kind: str, args: OneModel | ManyModels) -> None:
    """Raises ConfigError for an argument that models of this kind know nothing of."""
    for name in ("decoders", "decode", "compile"):
        if getattr(args, name) is not None and kind not in OF_IMAGES:
            raise ConfigError(f"args.{name}", f"only encoder and classifiers have it, and this app is {kind}")
    if args.precision is not None and kind in ("language_model", "index"):
        raise ConfigError("args.precision", f"an app of kind {kind} has none; write it into the model's spec")


def computing_of(app: ServeApplicationSchema | None) -> Computing:
    """Returns how the models of a configured app compute, as far as its `args` say."""
    names = ("precision", "decode", "compile")
    args = {} if app is None else app.args
    return Args(**{name: args[name] for name in names if name in args}).computing


def targets(
    missing: dict[str, str],
    specs: dict[str, str | None],
    placed_apps: dict[str, ServeApplicationSchema],
    computing: Mapping[str, Computing] = MappingProxyType({}),
) -> list[RunTarget]:
    """Returns the app to run under each name, placed as the configuration places its kind; `computing`: how its models
    compute, by kind, over what the configuration says."""
    result = []
    for kind, name in missing.items():
        spec = specs.get(kind)
        if spec and (kind, catalog.parse(spec).scheme) not in catalog.CATALOG:
            catalog.loader(kind, catalog.parse(spec))  # a third party's, or a SpecError before anything starts
        placed_app = placed_apps.get(APPS[kind])
        if placed_app is None:
            raise ConfigError("applications", f"the placement has no app {APPS[kind]!r}")
        options: dict[str, Any] = (
            placed_app.deployments[0].model_dump(exclude_unset=True) if placed_app.deployments else {}
        )
        if actor := options.get("ray_actor_options"):
            options["ray_actor_options"] = batching.resolved(actor, name)
        # A model that cannot be loaded cannot be loaded at a second attempt either.
        options["max_constructor_retry_count"] = 1
        if scaling := options.get("autoscaling_config"):  # the process that starts an app is about to call it
            options["autoscaling_config"] = {**scaling, "initial_replicas": max(1, scaling.get("min_replicas", 1))}
        stated = {name: value for name, value in vars(computing.get(kind, UNSAID)).items() if value is not None}
        arguments = {**placed_app.args, **stated}
        args = OneModel(**{**arguments, "model": spec}) if spec else ManyModels(**arguments)
        result.append(RunTarget(_bound(kind, args, **options), name=name, route_prefix=None))
    return result


def on_gpu(placed_apps: dict[str, ServeApplicationSchema], cpus: int) -> dict[str, ServeApplicationSchema]:
    """Returns the apps of `placed_apps` whose models are shown images, for a node of so many CPUs: all but a few "
    "decode."""
    decoders = max(1, cpus - LEFT_CPUS)
    result = {}
    for name in (APPS["encoder"], APPS["classifiers"]):
        app = placed_apps[name].model_copy(deep=True)
        app.args = {**app.args, "decoders": decoders}
        for deployment in app.deployments:
            # Ray reserves half of them: encoder and classifiers take turns, and no other work may starve.
            options = deployment.model_dump(exclude_unset=True)["ray_actor_options"]
            reserved = {**options, "num_cpus": max(0.1, decoders // 2)}
            deployment.ray_actor_options = type(deployment.ray_actor_options)(**reserved)
        result[name] = app
    return result


def placements(path: Path) -> dict[str, ServeApplicationSchema]:
    try:
        schema = ServeDeploySchema.model_validate(read_yaml(path))
    except (ValueError, InputError) as error:
        raise ConfigError("placement", f"{path} is no Serve configuration that can be read: {error}") from error
    return {app.name: app for app in schema.applications}
