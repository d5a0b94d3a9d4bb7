"""The RayJob that the nightly CronJob makes of its pattern, and the components that no overlay uses."""

from __future__ import annotations

import copy
import functools
import json
import runpy
import ssl
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest
from checks.manifests import Manifest
from checks.render import RenderError, render
from checks.rules import meaning, violations

ROOT = Path(__file__).parents[3]
PROGRAM = runpy.run_path(str(ROOT / "k8s" / "components" / "nightly" / "copy" / "create_rayjob.py"))
tonights = PROGRAM["tonights"]


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


class Api:
    """Kubernetes' API for RayJobs, as far as the rendered Role of an account lets it in."""

    def __init__(self, overlay: list[Manifest], account: str) -> None:
        self.jobs = {m["metadata"]["name"]: m for m in overlay if m["kind"] == "RayJob"}
        bound = [
            m["roleRef"]["name"] for m in overlay if m["kind"] == "RoleBinding" and m["subjects"][0]["name"] == account
        ]
        self.rules = [
            rule for m in overlay if m["kind"] == "Role" and m["metadata"]["name"] in bound for rule in m["rules"]
        ]

    def allows(self, verb: str, name: str) -> bool:
        return any(
            verb in rule["verbs"] and "rayjobs" in rule["resources"] and name in (rule.get("resourceNames") or [name])
            for rule in self.rules
        )

    def __call__(self, request: httpx.Request) -> httpx.Response:
        name = request.url.path.partition("/namespaces/c2b-ray/rayjobs")[2].lstrip("/")
        if not self.allows("get" if request.method == "GET" else "create", name):
            return httpx.Response(403)
        if request.method == "GET":
            return httpx.Response(200, json=self.jobs[name]) if name in self.jobs else httpx.Response(404)
        job = json.loads(request.content)
        if job["metadata"]["name"] in self.jobs:
            return httpx.Response(409)
        self.jobs[job["metadata"]["name"]] = job
        return httpx.Response(201, json=job)


def test_the_cron_jobs_account_may_do_what_its_program_does(
    overlay: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [cron] = [m for m in overlay if m["kind"] == "CronJob"]
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    api = Api(overlay, pod["serviceAccountName"])
    for name, text in (("namespace", "c2b-ray"), ("token", "t"), ("ca.crt", "")):
        (tmp_path / name).write_text(text)
    monkeypatch.setitem(PROGRAM["main"].__globals__, "ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT_HTTPS", "443")
    monkeypatch.setattr(ssl, "create_default_context", lambda **options: True)
    monkeypatch.setattr(httpx, "Client", functools.partial(httpx.Client, transport=httpx.MockTransport(api)))
    monkeypatch.setattr("sys.argv", pod["containers"][0]["command"][1:])
    before = set(api.jobs)
    assert (PROGRAM["main"](), PROGRAM["main"]()) == (0, 0)
    [made] = set(api.jobs) - before
    assert capsys.readouterr().out == f"created {made}\n{made} is there already\n"
    assert api.jobs[made]["spec"]["suspend"] is False


KUSTOMIZATION = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: c2b-ray
resources: [{overlay}/cluster]
components: [{components}]
images:
  - {{name: c2b-ray-cpu, newName: registry.example.org/c2b-ray, newTag: 0.1.0-cpu}}
  - {{name: c2b-ray-gpu, newName: registry.example.org/c2b-ray, newTag: 0.1.0-gpu}}
patches: [{patches}]
"""


def rendered_with(folder: Path, overlay: str, components: tuple[str, ...], patches: tuple[str, ...]) -> list[Manifest]:
    """A kustomization of an overlay's cluster, these components, and these patches of its jobs."""
    base = Path(*[".."] * (len(folder.resolve().parts) - 1)) / ROOT.relative_to("/") / "k8s"
    used = ", ".join(str(base / "components" / name) for name in components)
    for name in patches:
        (folder / name).write_text((ROOT / "k8s" / "overlays" / overlay / "jobs" / name).read_text())
    patched = ", ".join(f"{{target: {{kind: RayJob}}, path: {name}}}" for name in patches)
    text = KUSTOMIZATION.format(overlay=base / "overlays" / overlay, components=used, patches=patched)
    (folder / "kustomization.yaml").write_text(text)
    try:
        return render(folder)
    except RenderError as error:
        if str(error).startswith("no kustomize"):
            pytest.skip(str(error))
        raise


def test_components_that_no_overlay_uses_break_no_rule(tmp_path: Path) -> None:
    objects = rendered_with(tmp_path, "gpu", ("nightly-raycronjob", "rayjobs", "kueue", "ingress"), ("ends.yaml",))
    assert list(meaning(objects)) == []
    kinds: dict[str, Any] = {m["kind"]: m for m in objects}
    assert kinds["RayJob"]["spec"]["suspend"] is True
    assert kinds["RayJob"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "c2b-ray"
    assert kinds["RayCronJob"]["spec"]["jobTemplate"]["rayClusterSpec"]["workerGroupSpecs"][0]["groupName"] == "gpu"


def test_components_that_no_overlay_uses_fit_the_schemas(tmp_path: Path, definitions: Path) -> None:
    used = ("nightly-raycronjob", "rayjobs", "kueue", "ingress")
    assert violations(rendered_with(tmp_path, "gpu", used, ("ends.yaml",)), definitions) == []


def test_jobs_of_nodes_that_autoscale_wait_in_a_queue_too(tmp_path: Path) -> None:
    patches = ("ends.yaml", "second-group.yaml", "kueue.yaml")
    objects = rendered_with(tmp_path, "gpu-autoscaling", ("rayjobs", "kueue"), patches)
    assert list(meaning(objects)) == []
    assert {m["metadata"]["labels"].get("kueue.x-k8s.io/queue-name") for m in objects} == {"c2b-ray"}


def test_a_pattern_in_a_queue_is_caught_and_the_component_makes_none(overlay: list[Manifest], tmp_path: Path) -> None:
    objects = rendered_with(tmp_path, "gpu", ("nightly", "rayjobs", "kueue"), ())
    jobs = {m["metadata"]["name"]: m for m in objects if m["kind"] == "RayJob"}
    queued = {name for name, job in jobs.items() if "kueue.x-k8s.io/queue-name" in job["metadata"]["labels"]}
    assert queued == {"c2b-audit", "c2b-dataset-build"}
    pattern(changed := copy.deepcopy(overlay))["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "c2b-ray"
    assert {violation.rule for violation in meaning(changed)} == {"references"}
