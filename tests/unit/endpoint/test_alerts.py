"""Alert rules and dashboard: promtool's tests of the rules, and no name that the code does not export."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from c2b_ray.endpoint.operate.metrics import exposed, registry
from c2b_ray.engine import ray_stage as of_stages
from c2b_ray.serving import meters

MONITORING = Path(__file__).parents[3] / "deployments" / "monitoring"
TYPE = re.compile(r"^# TYPE (c2b_\w+) (\w+)$", re.MULTILINE)
ENDS = {"histogram": ("_bucket", "_sum", "_count")}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("command", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")])
def test_promtool_passes(command):
    done = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["alerts.yaml", "alerts_test.yaml", "grafana.json"])
def test_each_metric_is_one_that_the_code_exports(db, name):
    types = TYPE.findall(exposed(registry(db)).decode())
    exported = {metric + end for metric, kind in types for end in ENDS.get(kind, ("",))}
    text = (MONITORING / name).read_text()
    if name == "grafana.json":
        text = "\n".join(target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"])
    used = set(re.findall(r"\bc2b_\w+", text)) - {"c2b_ray"}
    assert len(used) >= 8
    assert used <= exported


def test_each_metric_of_ray_on_the_dashboard_is_one_that_replicas_and_stages_count():
    """Ray exports them with `ray_` before; what comes behind is Prometheus' for each type."""
    panels = json.loads((MONITORING / "grafana.json").read_text())["panels"]
    shown = {
        name for panel in panels for target in panel["targets"] for name in re.findall(r"ray_c2b_\w+", target["expr"])
    }
    names = {re.sub("_(sum|count|total)$", "", name) for name in shown}
    assert names == {f"ray_{name}" for name in (*meters.NAMES, *of_stages.NAMES)}


def test_each_alert_has_a_series_that_raises_it_and_one_that_does_not():
    rules = set(re.findall(r"alert: (\w+)", (MONITORING / "alerts.yaml").read_text()))
    tests = (MONITORING / "alerts_test.yaml").read_text()
    quiet = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", tests))
    raised = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", tests))
    assert rules == quiet == raised
