"""What an overlay's serveConfigV2 must say: a Serve config of deployments/, with two fields that differ in a pod."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from checks.render import LOADER

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"dev-cpu": "laptop", "gpu": "gpu", "gpu-autoscaling": "cluster", "air-gapped": "gpu"}
"""Overlay → Serve config, of those here; an overlay of one's own has its serve.yaml say so in the first line."""
IN_A_POD = {"proxy_location": "EveryNode", "http_options": {"host": "0.0.0.0", "port": 8000}}  # noqa: S104 — a policy closes it
_MADE = re.compile(r"# Made from deployments/([\w-]+)\.yaml")


class _Text(str):
    """A string that YAML shows line by line."""


def _shown(dumper: yaml.SafeDumper, text: _Text) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|")


yaml.SafeDumper.add_representer(_Text, _shown)


def sources() -> dict[str, str]:
    """Overlay → Serve config, of all folders in k8s/overlays."""
    found = dict(SOURCES)
    for file in sorted((ROOT / "k8s" / "overlays").glob("*/serve.yaml")):
        if match := _MADE.match(file.read_text(encoding="utf-8")):
            found[file.parent.name] = match[1]
    return found


def serve_config(source: str) -> dict[str, object]:
    """What serveConfigV2 says that is made of this file of deployments/."""
    text = (ROOT / "deployments" / f"{source}.yaml").read_text(encoding="utf-8")
    config = yaml.load(text, LOADER)  # noqa: S506 — the safe loader in C
    return {**config, **IN_A_POD}


def made_of_deployments() -> list[dict[str, object]]:
    """serveConfigV2 of every Serve config in deployments/."""
    files = sorted((ROOT / "deployments").glob("*.yaml"))
    return [serve_config(file.stem) for file in files if "\napplications:" in file.read_text(encoding="utf-8")]


def patch(source: str) -> str:
    """The text of the serve.yaml of an overlay."""
    config = yaml.safe_dump(serve_config(source), sort_keys=False, width=120)
    service = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "c2b-models", "namespace": "c2b-ray"},
        "spec": {"serveConfigV2": _Text(config)},
    }
    made = f"# Made from deployments/{source}.yaml by k8s/serve_config.py: change that file, then run it.\n"
    return made + yaml.safe_dump(service, sort_keys=False, width=120)
