"""What an overlay's serveConfigV2 must say: a Serve config of deployments/, with two fields that differ in a pod."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"dev-cpu": "laptop", "gpu": "gpu", "gpu-autoscaling": "cluster", "air-gapped": "gpu"}
"""Overlay → Serve config."""
IN_A_POD = {"proxy_location": "EveryNode", "http_options": {"host": "0.0.0.0", "port": 8000}}  # noqa: S104 — a policy closes it


class _Text(str):
    """A string that YAML shows line by line."""


def _shown(dumper: yaml.SafeDumper, text: _Text) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")


yaml.SafeDumper.add_representer(_Text, _shown)


def serve_config(overlay: str) -> dict[str, object]:
    """What the overlay's serveConfigV2 must say."""
    config = yaml.safe_load((ROOT / "deployments" / f"{SOURCES[overlay]}.yaml").read_text(encoding="utf-8"))
    return {**config, **IN_A_POD}


def patch(overlay: str) -> str:
    """The text of the overlay's serve.yaml."""
    config = yaml.safe_dump(serve_config(overlay), sort_keys=False, width=120)
    service = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "c2b-models", "namespace": "c2b-ray"},
        "spec": {"serveConfigV2": _Text(config)},
    }
    made = f"# Made from deployments/{SOURCES[overlay]}.yaml by k8s/serve_config.py: change that file, then run it.\n"
    return made + yaml.safe_dump(service, sort_keys=False, width=120)
