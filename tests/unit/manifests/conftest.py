"""Every overlay, rendered once; skipped by name without kustomize or KubeRay's resource definitions."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "k8s"))  # as for `python k8s/check.py`

from checks.manifests import Manifest  # noqa: E402
from checks.render import RenderError, render  # noqa: E402

OVERLAYS = ("dev-cpu", "gpu", "gpu-autoscaling", "air-gapped")
PARTS = (".", "cluster", "jobs")


@cache
def rendered() -> dict[str, list[Manifest]]:
    """The objects of each overlay: the platform, its RayCluster and its RayJobs."""
    folders = [ROOT / "k8s" / "overlays" / overlay / part for overlay in OVERLAYS for part in PARTS]
    with ThreadPoolExecutor(2) as pool:
        renders = dict(zip(folders, pool.map(render, folders), strict=True))
    return {
        overlay: [manifest for folder, found in renders.items() if overlay in folder.parts for manifest in found]
        for overlay in OVERLAYS
    }


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> list[Manifest]:
    return objects(request.param)


@pytest.fixture
def gpu() -> list[Manifest]:
    return objects("gpu")


@pytest.fixture
def air_gapped() -> list[Manifest]:
    return objects("air-gapped")


def objects(overlay: str) -> list[Manifest]:
    try:
        return rendered()[overlay]
    except RenderError as error:
        if str(error).startswith("no kustomize"):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="session")
def definitions() -> Path:
    folder = ROOT.parent / "shared" / "kuberay-v1.7.0-crds"
    if not folder.is_dir():
        pytest.skip(f"KubeRay's resource definitions are not here: {folder}")
    return folder
