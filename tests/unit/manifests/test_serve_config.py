"""serveConfigV2 is generated: each overlay's file is what deployments/ make now."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from checks import serve
from packaging.utils import canonicalize_name

SCRIPT = Path(serve.ROOT) / "k8s" / "serve_config.py"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", [str(SCRIPT), *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    return int(ended.value.code or 0)


def test_every_overlay_is_in_step_with_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "--check") == 0


def test_a_changed_deployment_is_noticed_and_carried_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "deployments").mkdir()
    for overlay, source in serve.SOURCES.items():
        (tmp_path / "k8s" / "overlays" / overlay).mkdir(parents=True)
        text = (serve.ROOT / "deployments" / f"{source}.yaml").read_text()
        (tmp_path / "deployments" / f"{source}.yaml").write_text(text)
    monkeypatch.setattr(serve, "ROOT", tmp_path)
    assert run(monkeypatch) == 0
    assert run(monkeypatch, "--check") == 0
    laptop = tmp_path / "deployments" / "laptop.yaml"
    laptop.write_text(laptop.read_text().replace("max_queued_requests: 500", "max_queued_requests: 600"))
    capsys.readouterr()
    assert run(monkeypatch, "--check") == 1
    assert capsys.readouterr().out.startswith("k8s/overlays/dev-cpu/serve.yaml: not in step with deployments/")
    assert run(monkeypatch) == 0
    written = yaml.safe_load((tmp_path / "k8s" / "overlays" / "dev-cpu" / "serve.yaml").read_text())
    config = yaml.safe_load(written["spec"]["serveConfigV2"])
    assert {d["max_queued_requests"] for app in config["applications"] for d in app["deployments"]} == {600}
    assert config["http_options"] == {"host": "0.0.0.0", "port": 8000}


def test_an_overlay_of_ones_own_names_its_serve_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "deployments").mkdir()
    for overlay, source in {**serve.SOURCES, "mine": "mine"}.items():
        (tmp_path / "k8s" / "overlays" / overlay).mkdir(parents=True)
        text = (serve.ROOT / "deployments" / f"{source.replace('mine', 'gpu')}.yaml").read_text()
        (tmp_path / "deployments" / f"{source}.yaml").write_text(
            text.replace("max_queued_requests: 500", "max_queued_requests: 7")
        )
    mine = tmp_path / "k8s" / "overlays" / "mine" / "serve.yaml"
    own = tmp_path / "deployments" / "mine.yaml"
    own.write_text(own.read_text().replace("max_ongoing_requests: 100", "max_ongoing_requests: 7"))
    mine.write_text("# Made from deployments/mine.yaml by k8s/serve_config.py\n")
    monkeypatch.setattr(serve, "ROOT", tmp_path)
    assert run(monkeypatch) == 0
    config = yaml.safe_load(yaml.safe_load(mine.read_text())["spec"]["serveConfigV2"])
    assert config in serve.made_of_deployments()
    assert "'max_ongoing_requests': 7" in str(config)
    own.unlink()
    assert run(monkeypatch, "--check") == 2


CHECK = SCRIPT.with_name("check.py")


def test_the_check_names_the_packages_that_it_needs() -> None:
    blocked = f"import runpy, sys; sys.path.insert(0, {str(CHECK.parent)!r}); sys.modules['celpy'] = None"
    code = f"{blocked}; runpy.run_path({str(CHECK)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    [needed] = re.findall(r'^NEEDED = "(.*)"$', CHECK.read_text(), re.MULTILINE)
    said = f"error: this check needs the package 'celpy': pip install {needed}\n"
    assert (done.returncode, done.stderr) == (2, said)
    lock = (serve.ROOT / "requirements.lock").read_text()
    assert all(re.search(rf"^{canonicalize_name(name)}==", lock, re.MULTILINE) for name in needed.split())
