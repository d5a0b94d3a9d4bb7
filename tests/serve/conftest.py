"""One small Ray cluster for the Serve tests, and the apps that they share on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from c2b_ray.models import catalog
from c2b_ray.serving.ensure import Served, ensure

TOYS = """[c2b_ray.models]
language_model.toy = toys:language_model
encoder.toy = toys:encoder
captioner.toy = toys:captioner
classifier.toy = toys:classifier
"""


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The search path that makes the `toy:` models a package like any third party's; this process has it too."""
    root = tmp_path_factory.mktemp("toys")
    info = root / "c2b_toys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: c2b-toys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(TOYS)
    path = [str(root), str(Path(__file__).parent)]
    sys.path[:0] = path
    catalog.third_parties.cache_clear()
    yield os.pathsep.join(path)
    sys.path[:] = [entry for entry in sys.path if entry not in path]
    catalog.third_parties.cache_clear()


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Two CPUs; the cluster of another suite if one is up already."""
    import ray
    from ray import serve

    mine = not ray.is_initialized()
    if mine:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray.init(
            address="local", num_cpus=2, object_store_memory=300 * 2**20, include_dashboard=False, log_to_driver=False
        )
    yield
    if mine:
        serve.shutdown()
        ray.shutdown()


@pytest.fixture(scope="session")
def placement(tmp_path_factory: pytest.TempPathFactory, toys: str) -> Path:
    """Quick health checks, replicas that find the toys, and little room in the language model's queue."""
    apps = [
        _app("language-model", "LanguageModel", toys, max_ongoing_requests=2, max_queued_requests=2),
        _app("encoder", "Encoder", toys),
        _app("captioner", "Captioner", toys, autoscaling_config={"min_replicas": 0, "max_replicas": 1}),
        _app("generator", "Generator", toys, builder="image_generator"),
        _app(
            "classifiers",
            "Classifiers",
            toys,
            args={"models_per_replica": 2, "models_gb": 0.1},
            user_config={"max_batch_size": 50, "batch_wait_timeout_s": 0.1, "answers_mb": 1},
        ),
        _app("index", "Index", toys),
    ]
    path = tmp_path_factory.mktemp("placement") / "test.yaml"
    path.write_text(yaml.safe_dump({"applications": apps}))
    return path


def _app(
    name: str,
    deployment: str,
    toys: str,
    args: dict[str, Any] | None = None,
    builder: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    deployed = {
        "name": deployment,
        "max_ongoing_requests": 100,
        "health_check_period_s": 0.5,
        "graceful_shutdown_wait_loop_s": 0.1,
        "ray_actor_options": {"num_cpus": 0.1, "runtime_env": {"env_vars": {"PYTHONPATH": toys}}},
        "user_config": {"max_batch_size": 50, "batch_wait_timeout_s": 0.1},
        **options,
    }
    return {
        "name": name,
        "route_prefix": None,
        "import_path": f"c2b_ray.serving.app:{builder or name.replace('-', '_')}",
        "args": args or {},
        "deployments": [deployed],
    }


@pytest.fixture(scope="session")
def served(cluster: None, placement: Path) -> Iterator[Served]:
    """All six apps, with a `toy:` language model, encoder and captioner, and the world's renderer."""
    with ensure(
        language_model="toy:talker",
        encoder="toy:eye",
        captioner="toy:teller",
        image_generator="world:renderer?mislabel=0.2",
        classifiers=True,
        index=True,
        placement=placement,
    ) as apps:
        yield apps
