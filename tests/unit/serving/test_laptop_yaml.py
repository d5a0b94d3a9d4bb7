"""Every Serve configuration in deployments/: Serve accepts it, and what it names exists. No cluster is started."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import DeploymentSchema, ServeApplicationSchema, ServeDeploySchema

from c2b_ray.models import catalog
from c2b_ray.serving import app as apps
from c2b_ray.serving.app import LAPTOP, ManyModels, OneModel
from c2b_ray.serving.batching import BatchSettings, CachedSettings
from c2b_ray.serving.meters import limits

APPS = {app.name: app for app in ServeDeploySchema.model_validate(yaml.safe_load(LAPTOP.read_text())).applications}


def only(app: ServeApplicationSchema) -> DeploymentSchema:
    [deployment] = app.deployments
    return deployment


def arguments(app: ServeApplicationSchema) -> tuple[Any, OneModel | ManyModels]:
    """The builder that the import path names, and the app's args as it takes them."""
    module, _, name = app.import_path.partition(":")
    builder = getattr(importlib.import_module(module), name)
    [parameter] = inspect.signature(builder).parameters.values()
    # Serve validates args only if it finds the class itself here, not its name.
    assert parameter.annotation in (OneModel, ManyModels)
    return builder, parameter.annotation.model_validate(app.args)


def settings_of(deployment: DeploymentSchema) -> BatchSettings:
    """As the deployment itself reads them."""
    kind = CachedSettings if deployment.name in ("Encoder", "Classifiers") else BatchSettings
    return kind.model_validate(deployment.user_config)


def fills(deployment: DeploymentSchema) -> bool:
    """Whether the requests that a replica holds, as large as callers make them, fill a batch."""
    rows = settings_of(deployment).max_batch_size
    scaling = AutoscalingConfig.model_validate(deployment.autoscaling_config)
    request = limits(rows, 1, scaling.target_ongoing_requests, scaling.max_replicas)
    return request.rows * deployment.max_ongoing_requests >= 2 * rows


def test_it_deploys_every_app_under_its_name() -> None:
    assert set(APPS) == set(apps.APPS.values())


def test_it_listens_on_this_machine_alone() -> None:
    config = ServeDeploySchema.model_validate(yaml.safe_load(LAPTOP.read_text()))
    assert config.http_options.host == "127.0.0.1"
    assert all(app.route_prefix is None for app in config.applications)


@pytest.mark.parametrize("name", APPS)
def test_an_app_can_be_built_and_has_the_deployment_it_places(name: str) -> None:
    builder, args = arguments(APPS[name])
    built = builder(args)
    assert built._bound_deployment.name == only(APPS[name]).name


@pytest.mark.parametrize("name", APPS)
def test_a_model_is_one_that_the_catalogue_has(name: str) -> None:
    _, args = arguments(APPS[name])
    if isinstance(args, OneModel):
        role = {label: kind for kind, label in apps.APPS.items()}[name]
        assert (role, catalog.parse(args.model).scheme) in catalog.CATALOG


@pytest.mark.parametrize("name", APPS)
def test_every_queue_is_bounded_and_batches_can_fill(name: str) -> None:
    deployment = only(APPS[name])
    assert deployment.max_queued_requests > 0
    assert fills(deployment)


def test_two_cores_leave_one_for_reading() -> None:
    most = 0.0
    for app in APPS.values():
        deployment = only(app)
        scaling = AutoscalingConfig.model_validate(deployment.autoscaling_config)
        most += scaling.max_replicas * float(deployment.ray_actor_options.num_cpus or 1)
    assert round(most, 6) <= 1.0


def test_a_misspelt_argument_is_refused() -> None:
    with pytest.raises(ValueError, match="modle"):
        OneModel.model_validate({"modle": "world:lm"})


def test_the_readme_names_the_fields_in_use() -> None:
    text = (Path(LAPTOP).parent / "README.md").read_text()
    used = {field for app in APPS.values() for field in only(app).model_dump(exclude_unset=True)} - {"name"}
    assert [field for field in used if f"`{field}`" not in text] == []
