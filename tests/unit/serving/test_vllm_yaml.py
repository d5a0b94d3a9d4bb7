"""The configurations that serve vLLM: Serve accepts them, what they name exists, and an absent environment is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ray.serve.config import AutoscalingConfig
from ray.serve.schema import ServeApplicationSchema, ServeDeploySchema
from test_laptop_yaml import arguments, fills, only

from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.serving import app as apps
from c2b_ray.serving import batching
from c2b_ray.serving.app import LAPTOP, OneModel

FOLDER = LAPTOP.parent
CONFIGS = {
    name: ServeDeploySchema.model_validate(yaml.safe_load((FOLDER / name).read_text()))
    for name in ("gpu.yaml", "vllm-cpu.yaml")
}
EVERY = [pytest.param(app, id=f"{name}/{app.name}") for name, config in CONFIGS.items() for app in config.applications]
KINDS = {label: kind for kind, label in apps.APPS.items()}


def test_a_gpu_node_has_every_app_and_its_gpu_is_enough_for_all() -> None:
    placed = {app.name: only(app) for app in CONFIGS["gpu.yaml"].applications}
    assert set(placed) == set(apps.APPS.values())
    most = 0.0
    for deployment in placed.values():
        replicas = AutoscalingConfig.model_validate(deployment.autoscaling_config).max_replicas
        most += replicas * float(deployment.ray_actor_options.num_gpus or 0)
    assert 0.99 <= most <= 1.0


def test_vllm_takes_no_more_of_the_gpu_than_ray_books_for_it() -> None:
    [app] = [app for app in CONFIGS["gpu.yaml"].applications if app.name == "language-model"]
    spec = catalog.parse(app.args["model"])
    assert float(spec.options["gpu_memory_utilization"]) <= only(app).ray_actor_options.num_gpus


@pytest.mark.parametrize("app", EVERY)
def test_an_app_can_be_built_of_a_model_that_the_catalogue_has(app: ServeApplicationSchema) -> None:
    builder, args = arguments(app)
    assert builder(args)._bound_deployment.name == only(app).name
    if isinstance(args, OneModel):
        assert (KINDS[app.name], catalog.parse(args.model).scheme) in catalog.CATALOG


@pytest.mark.parametrize("app", EVERY)
def test_queues_are_bounded_and_calls_can_overlap(app: ServeApplicationSchema) -> None:
    deployment = only(app)
    assert deployment.max_queued_requests > 0
    if isinstance(deployment.user_config, dict):
        assert fills(deployment)
    else:  # vLLM: gathered by no one, so as many threads as it is to answer at once
        assert 64 <= app.args["threads"] <= deployment.max_ongoing_requests


@pytest.mark.parametrize("name", CONFIGS)
def test_it_listens_on_this_machine_alone(name: str) -> None:
    assert CONFIGS[name].http_options.host == "127.0.0.1"
    assert all(app.route_prefix is None for app in CONFIGS[name].applications)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_readme_names_the_file_and_the_fields_in_use(name: str) -> None:
    text = (FOLDER / "README.md").read_text()
    assert f"`{name}`" in text
    used = {field for app in CONFIGS[name].applications for field in only(app).model_dump(exclude_unset=True)}
    assert [field for field in used - {"name"} if f"`{field}`" not in text] == []


def test_an_absent_environment_is_named_with_what_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "ROOT", tmp_path)
    options = {"num_cpus": 1, "runtime_env": {"py_executable": "env/bin/python", "env_vars": {"A": "b"}}}
    with pytest.raises(ConfigError, match=r"no \S+/env/bin/python; make it with deployments/vllm-cpu/install\.sh"):
        batching.resolved(options, "language-model")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").touch()
    found = batching.resolved(options, "language-model")
    assert found["runtime_env"] == {"py_executable": str(tmp_path / "env/bin/python"), "env_vars": {"A": "b"}}
    assert found["num_cpus"] == 1


@pytest.mark.parametrize("executable", [None, "python3", "/opt/vllm/bin/python"])
def test_a_node_s_own_interpreter_is_not_looked_for_here(executable: str | None) -> None:
    options = {"runtime_env": {"py_executable": executable}} if executable else {}
    assert batching.resolved(options, "language-model") is options


@pytest.mark.parametrize("module", ["llm", "captioner"])
def test_a_replica_of_vllm_imports_nothing_that_its_environment_lacks(module: str) -> None:
    lines = (FOLDER / "vllm-cpu" / "requirements.txt").read_text().splitlines()
    there = {line.partition("==")[0].lower() for line in lines if "==" in line and not line.startswith("#")}
    absent = sorted({"simplejpeg", "pillow-heif", "faiss-cpu", "timm", "open_clip_torch", "torchvision"} - there)
    assert "torchvision" in absent
    modules = [name.replace("-", "_").removesuffix("_cpu") for name in absent]
    code = f"import sys; sys.modules.update(dict.fromkeys({modules})); import c2b_ray.serving.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
