"""The RayJob that the nightly CronJob makes of its pattern, and the components that no overlay uses."""

from __future__ import annotations

import runpy
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from checks.manifests import Manifest
from checks.render import RenderError, render
from checks.rules import violations

ROOT = Path(__file__).parents[3]
tonights = runpy.run_path(str(ROOT / "k8s" / "components" / "nightly" / "copy" / "create_rayjob.py"))["tonights"]


def pattern(overlay: list[Manifest]) -> Manifest:
    [found] = [m for m in overlay if m["kind"] == "RayJob" and m["metadata"]["name"] == "c2b-nightly"]
    return found


@pytest.mark.parametrize("queue", [None, "c2b-ray"])
def test_tonights_job_runs_and_breaks_no_rule(overlay: list[Manifest], definitions: Path, queue: str | None) -> None:
    served = pattern(overlay)
    served["metadata"] |= {"uid": "1", "resourceVersion": "7"}  # as the API server answers
    job = tonights({**served, "status": {}}, date(2026, 1, 2), queue)
    assert job["metadata"]["name"] == "c2b-nightly-20260102"
    assert "/nightly/2026-01-02 " in job["spec"]["entrypoint"]
    assert job["spec"]["suspend"] is (queue is not None)  # Kueue starts what waits in its queue
    assert job["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") == queue
    assert "uid" not in job["metadata"]
    assert violations([job], definitions) == []
    assert pattern(overlay)["spec"]["suspend"] is True, "the pattern itself would run"


KUSTOMIZATION = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: c2b-ray
resources: [{overlay}/cluster]
components: [{components}/nightly-raycronjob, {components}/rayjobs, {components}/kueue, {components}/ingress]
images: [{{name: c2b-ray-cpu, newName: registry.example.org/c2b-ray, newTag: 0.1.0-cpu}}]
patches: [{{target: {{kind: RayJob}}, path: ends.yaml}}]
"""


def test_components_that_no_overlay_uses_break_no_rule(tmp_path: Path, definitions: Path) -> None:
    base = Path(*[".."] * (len(tmp_path.resolve().parts) - 1)) / ROOT.relative_to("/") / "k8s"
    text = KUSTOMIZATION.format(overlay=base / "overlays" / "gpu", components=base / "components")
    (tmp_path / "kustomization.yaml").write_text(text)
    (tmp_path / "ends.yaml").write_text((ROOT / "k8s" / "overlays" / "gpu" / "jobs" / "ends.yaml").read_text())
    try:
        objects = render(tmp_path)
    except RenderError as error:
        if str(error).startswith("no kustomize"):
            pytest.skip(str(error))
        raise
    assert violations(objects, definitions) == []
    kinds: dict[str, Any] = {m["kind"]: m for m in objects}
    assert kinds["RayJob"]["spec"]["suspend"] is True
    assert kinds["RayJob"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "c2b-ray"
    assert kinds["RayCronJob"]["spec"]["jobTemplate"]["rayClusterSpec"]["workerGroupSpecs"][0]["groupName"] == "gpu"
