"""The endpoint's pods: their configuration is read by the endpoint itself, and their commands exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from checks.manifests import Manifest, environment
from typer.testing import CliRunner

from c2b_ray.cli.endpoint import app
from c2b_ray.config.endpoint import DATABASE_VARIABLE, SECRET_VARIABLE, read_endpoint
from c2b_ray.config.placement import read_placement
from c2b_ray.endpoint.application import create_application
from c2b_ray.endpoint.ledger.database import Database


@pytest.fixture
def files(overlay: list[Manifest], tmp_path: Path) -> Path:
    """What the pods find in /etc/c2b."""
    [found] = [m for m in overlay if m["kind"] == "ConfigMap" and "endpoint.yaml" in m["data"]]
    for name, text in found["data"].items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_endpoint_reads_its_configuration(overlay: list[Manifest], files: Path) -> None:
    config = read_endpoint(files / "endpoint.yaml")
    [api] = [m for m in overlay if (m["kind"], m["metadata"]["name"]) == ("Deployment", "c2b-api")]
    ports = {port["containerPort"] for port in api["spec"]["template"]["spec"]["containers"][0]["ports"]}
    assert {config.port} == ports
    assert config.host == "0.0.0.0"
    assert config.database is None, "it comes from a Secret"
    assert config.storage is not None
    assert config.storage.startswith("s3://")
    assert config.placement == "/etc/c2b/placement.yaml"
    read_placement(files / "placement.yaml")


def containers(overlay: list[Manifest]) -> dict[str, dict[str, Any]]:
    pods = {m["metadata"]["name"]: m["spec"]["template"]["spec"] for m in overlay if m["kind"] in ("Deployment", "Job")}
    return {name: pod["containers"][0] for name, pod in pods.items()}


def test_the_commands_of_the_pods_exist_and_find_their_secrets(overlay: list[Manifest]) -> None:
    found = containers(overlay)
    assert {name.removeprefix("c2b-") for name in found} == {"api", "dispatcher", "runner", "migrate"}
    for container in found.values():
        program, room, command, *options = container["command"]
        assert (program, room, options[:2]) == ("c2b", "endpoint", ["--config", "/etc/c2b/endpoint.yaml"])
        assert CliRunner().invoke(app, [command, "--help"]).exit_code == 0, command
        assert environment(container).keys() >= {DATABASE_VARIABLE}
    for name in ("c2b-api", "c2b-runner", "c2b-dispatcher"):
        assert SECRET_VARIABLE in environment(found[name])


def test_probes_and_prometheus_ask_for_what_the_api_answers(overlay: list[Manifest], tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path / 'ledger.db'}")
    routes = create_application(read_endpoint({"folder": str(tmp_path)}), db).openapi()["paths"].keys()
    db.close()
    [api] = [m for m in overlay if (m["kind"], m["metadata"]["name"]) == ("Deployment", "c2b-api")]
    container = api["spec"]["template"]["spec"]["containers"][0]
    probes = [container[kind]["httpGet"]["path"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {*probes, api["spec"]["template"]["metadata"]["annotations"]["prometheus.io/path"]} <= routes
    # A restart mends no database: being alive does not depend on it, and being ready does.
    assert probes == ["/healthz", "/readyz", "/healthz"]


def test_prometheus_finds_each_part_and_a_policy_lets_it_in(overlay: list[Manifest]) -> None:
    policies = [m["spec"] for m in overlay if m["kind"] == "NetworkPolicy"]
    for name in ("c2b-api", "c2b-dispatcher", "c2b-runner"):
        [pod] = [m["spec"]["template"] for m in overlay if (m["kind"], m["metadata"]["name"]) == ("Deployment", name)]
        about, labels, container = (
            pod["metadata"]["annotations"],
            pod["metadata"]["labels"],
            pod["spec"]["containers"][0],
        )
        assert (about["prometheus.io/scrape"], about["prometheus.io/path"]) == ("true", "/metrics")
        port = int(about["prometheus.io/port"])
        assert port in {one["containerPort"] for one in container["ports"]}
        if name != "c2b-api":
            command, options = container["command"][2], container["command"][3:]
            assert options[options.index("--metrics") + 1] == f"0.0.0.0:{port}"
            assert "--metrics" in CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        allowed = {
            rule_port["port"]
            for policy in policies
            if policy["podSelector"].get("matchLabels", {}).items() <= labels.items() and policy.get("ingress")
            for rule in policy["ingress"]
            if {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}} in rule["from"]
            for rule_port in rule["ports"]
        }
        assert port in allowed, name


def test_runners_and_their_node_join_the_cluster_of_the_configuration(overlay: list[Manifest], files: Path) -> None:
    address = yaml.safe_load((files / "endpoint.yaml").read_text())["serve"]
    [runner] = [m for m in overlay if (m["kind"], m["metadata"]["name"]) == ("Deployment", "c2b-runner")]
    pod = runner["spec"]["template"]["spec"]
    [node] = pod["initContainers"]
    [service] = [m for m in overlay if m["kind"] == "RayService"]
    assert address == f"{service['metadata']['name']}-head-svc:6379"  # the name that the operator gives it
    assert f"--address={address}" in node["args"][0]
    assert environment(pod["containers"][0])["RAY_ADDRESS"] == address
    shared = [{m["mountPath"]: m["name"] for m in c["volumeMounts"]} for c in (node, pod["containers"][0])]
    assert shared[0] == shared[1], "a driver finds its node's sockets in /tmp, and its objects in /dev/shm"
