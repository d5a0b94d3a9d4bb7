"""deployments/cluster.yaml: Serve accepts it, and its replicas fit the nodes that its header asks for."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import yaml
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import DeploymentSchema, ServeDeploySchema

from c2b_ray.models import catalog
from c2b_ray.serving import app as apps
from c2b_ray.serving.app import LAPTOP, OneModel
from c2b_ray.serving.replica import BatchSettings

CLUSTER = LAPTOP.with_name("cluster.yaml")
CONFIG = ServeDeploySchema.model_validate(yaml.safe_load(CLUSTER.read_text()))
DEPLOYMENTS: dict[str, DeploymentSchema] = {app.name: app.deployments[0] for app in CONFIG.applications}
SCALING = {name: AutoscalingConfig.model_validate(of.autoscaling_config) for name, of in DEPLOYMENTS.items()}


def options(name: str) -> Any:
    return DEPLOYMENTS[name].ray_actor_options


def test_it_deploys_every_app_and_opens_none_to_others() -> None:
    assert {app.name for app in CONFIG.applications} == set(apps.APPS.values())
    assert all(app.route_prefix is None for app in CONFIG.applications)
    assert CONFIG.http_options.host == "127.0.0.1"


@pytest.mark.parametrize("app", CONFIG.applications, ids=lambda app: app.name)
def test_an_app_is_what_its_builder_makes_of_its_arguments(app: Any) -> None:
    module, _, name = app.import_path.partition(":")
    builder = getattr(importlib.import_module(module), name)
    [parameter] = inspect.signature(builder).parameters.values()
    args = parameter.annotation.model_validate(app.args)
    assert builder(args)._bound_deployment.name == app.deployments[0].name
    if isinstance(args, OneModel):
        role = {label: kind for kind, label in apps.APPS.items()}[app.name]
        assert (role, catalog.parse(args.model).scheme) in catalog.CATALOG


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_queues_are_bounded_and_batches_can_fill(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    assert deployment.max_queued_requests > 0
    assert BatchSettings.model_validate(deployment.user_config).max_batch_size <= deployment.max_ongoing_requests
    assert SCALING[name].target_ongoing_requests <= deployment.max_ongoing_requests
    assert SCALING[name].min_replicas < SCALING[name].max_replicas


def test_one_of_each_shares_the_gpu_of_a_node() -> None:
    on_gpus = [name for name in DEPLOYMENTS if options(name).num_gpus]
    assert on_gpus == ["language-model", "encoder", "captioner", "generator", "classifiers"]
    assert sum(options(name).num_gpus for name in on_gpus) == pytest.approx(1)
    assert {DEPLOYMENTS[name].max_replicas_per_node for name in on_gpus} == {1}
    assert all(options(name).label_selector == {"pool": "gpu"} for name in on_gpus)


def test_the_header_asks_for_the_labels_and_resources_in_use() -> None:
    header = CLUSTER.read_text().partition("proxy_location")[0]
    for name in DEPLOYMENTS:
        for key, value in (options(name).label_selector or {}).items():
            assert f"--labels={key}={value}" in header
        for resource in options(name).resources:
            assert f'"{resource}"' in header


def test_the_readme_names_the_fields_in_use() -> None:
    text = CLUSTER.with_name("README.md").read_text()
    used = {field for of in DEPLOYMENTS.values() for field in of.model_dump(exclude_unset=True)} - {"name"}
    used |= {field for name in DEPLOYMENTS for field in options(name).model_dump(exclude_unset=True)}
    assert [field for field in used if f"`{field}`" not in text] == []
