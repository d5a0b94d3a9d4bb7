"""deployments/cluster.yaml: Serve accepts it, and its replicas fit the nodes that its header asks for."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import pytest
import yaml
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import DeploymentSchema, ServeDeploySchema

from c2b_ray.models import catalog
from c2b_ray.serving import app as apps
from c2b_ray.serving.app import LAPTOP, OneModel
from c2b_ray.serving.batching import CachedSettings
from c2b_ray.serving.meters import MOST_REQUESTS, limits

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
    assert SCALING[name].target_ongoing_requests <= deployment.max_ongoing_requests
    assert SCALING[name].min_replicas < SCALING[name].max_replicas
    rows = 1 if name == "language-model" else CachedSettings.model_validate(deployment.user_config).max_batch_size
    target, replicas = SCALING[name].target_ongoing_requests, SCALING[name].max_replicas
    of_one_caller = limits(rows, 1, target, replicas)
    # One audit's requests bring every replica to its target, and with it to a full batch and one that waits.
    assert of_one_caller.requests >= min(MOST_REQUESTS, target * replicas)
    assert of_one_caller.rows * target >= 2 * rows
    assert of_one_caller.requests <= deployment.max_queued_requests


GPUS, CPUS, NODES = 8, 96, 2
"""Of a GPU node, and how many such nodes, as the header asks for."""

ON_GPUS = ["language-model", "encoder", "captioner", "generator", "classifiers"]


def of_a_node(resource: str) -> list[float]:
    """What each replica of a node takes when all is busy."""
    return [
        getattr(options(name), resource) for name in ON_GPUS for _ in range(DEPLOYMENTS[name].max_replicas_per_node)
    ]


def test_all_is_busy_on_eight_gpus_of_each_node() -> None:
    assert [name for name in DEPLOYMENTS if options(name).num_gpus] == ON_GPUS
    assert all(options(name).label_selector == {"pool": "gpu"} for name in ON_GPUS)
    assert sum(of_a_node("num_gpus")) == GPUS
    assert sum(of_a_node("num_cpus")) <= CPUS
    for name in ON_GPUS:
        assert SCALING[name].max_replicas == NODES * DEPLOYMENTS[name].max_replicas_per_node


@pytest.mark.parametrize("seed", range(20))
def test_the_replicas_of_a_node_fit_its_gpus_in_whatever_order_they_start(seed: int) -> None:
    """As Ray places them: each on one GPU, the fullest that has room."""
    free = [1.0] * GPUS
    for share in np.random.default_rng(seed).permutation(of_a_node("num_gpus")):
        fullest = min((i for i in range(GPUS) if free[i] >= share), key=lambda i: free[i])
        free[fullest] -= share
    assert free == [0.0] * GPUS


def test_the_models_on_a_gpu_fit_its_memory() -> None:
    [app] = [app for app in CONFIG.applications if app.name == "classifiers"]
    assert app.args["models_gb"] <= 0.75 * 80 * options("classifiers").num_gpus  # the rest is for what it computes
    [app] = [app for app in CONFIG.applications if app.name == "language-model"]
    assert (
        float(catalog.parse(app.args["model"]).options["gpu_memory_utilization"]) <= options("language-model").num_gpus
    )


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
