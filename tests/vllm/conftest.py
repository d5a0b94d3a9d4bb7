"""The world's language model on real vLLM behind Serve, placed by deployments/vllm-cpu.yaml; the tests run in .venv."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from c2b_ray.serving.ensure import Served, ensure

ROOT = Path(__file__).parents[2]
PLACEMENT = ROOT / "deployments" / "vllm-cpu.yaml"
LM = ROOT / "c2b_ray" / "world" / "weights" / "lm"

for role in ("language_models", "captioners"):  # whose suites of the roles are run here once more
    sys.path.append(str(ROOT / "tests" / "contract" / role))


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    import ray
    from ray import serve

    [app] = yaml.safe_load(PLACEMENT.read_text())["applications"]
    options = app["args"]["model"].partition("?")[2]
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(address="local", num_cpus=2, object_store_memory=200 * 2**20, include_dashboard=False, log_to_driver=False)
    try:
        with ensure(language_model=f"vllm:{LM}?{options}", placement=PLACEMENT) as apps:
            yield apps
    finally:
        serve.shutdown()
        ray.shutdown()
