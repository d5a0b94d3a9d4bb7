"""An audit that another package declares works on every surface: command, gates, exports, comparison, endpoint."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml
from endpoint_command import started
from PIL import Image

pytest.importorskip("hatchling", reason="make setup installs it")
TOY = Path(__file__).parents[1] / "support" / "toy_audit"
DARK = {"day": 0, "night": 36}
"""Of 40 images of each class."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Installs the package into a folder of its own; returns the PYTHONPATH with which it is found."""
    built, target = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built], cwd=TOY, check=True)
    [wheel] = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return os.pathsep.join(filter(None, (str(target), os.environ.get("PYTHONPATH"))))


def write_images(folder: Path, dark: dict[str, int]) -> Path:
    for name, count in dark.items():
        (folder / name).mkdir(parents=True)
        for number in range(40):
            pixels = np.full((24, 24, 3), 20 if number < count else 180, np.uint8)
            pixels[0, 0] = number  # no two images are one
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two sets of images, and a file for each."""
    place = tmp_path_factory.mktemp("dark")
    for name, dark in (("old", DARK), ("new", {"day": 30, "night": 36})):
        write_images(place / name, dark)
        (place / f"{name}.yaml").write_text(yaml.safe_dump({"images": name, "below": 60}))
    return place


class Shell:
    def __init__(self, pythonpath: str, folder: Path) -> None:
        self.environment = {**os.environ, "PYTHONPATH": pythonpath, "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
        self.folder = folder

    def __call__(self, *arguments: str, status: int = 0, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "c2b_ray", *arguments], cwd=self.folder, env=self.environment | environment,
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout + (done.stderr if status else "")

    def json(self, *arguments: str, **more: Any) -> Any:
        return json.loads(self(*arguments, "--json", **more))


@pytest.fixture(scope="module")
def c2b(installed: str, place: Path) -> Shell:
    return Shell(installed, place)


@pytest.fixture(scope="module")
def runs(c2b: Shell) -> tuple[str, str]:
    for name in ("old", "new"):
        c2b("dark-images", f"{name}.yaml", "--out", f"runs/{name}")
    return "runs/old", "runs/new"


def test_its_command_is_listed_estimates_and_says_what_is_wrong(c2b: Shell, place: Path) -> None:
    assert re.search(r"dark-images +Count the dark images of each class", c2b("--help"))
    assert "--estimate" in c2b("dark-images", "--help")
    assert set(json.loads(c2b("dark-images", "--print-schema"))["properties"]) >= {"images", "below"}
    assert c2b.json("dark-images", "old.yaml", "--estimate") == {"images": 80}
    (place / "wrong.yaml").write_text("images: old\nbelow: 300\n")
    assert "below" in c2b("dark-images", "wrong.yaml", status=2)
    assert "c2b dark-images --print-schema" in c2b("dark-images", status=2)


def test_its_runs_are_loaded_reported_listed_gated_and_exported(c2b: Shell, place: Path, runs: tuple[str, str]) -> None:
    [day, night] = c2b.json("report", runs[0])["findings"]
    assert (night["finding"], night["verdict"], night["value"], night["n"]) == ("night", "found", 0.9, 40)
    assert (day["finding"], day["verdict"], day["value"]) == ("day", "none", 0.0)
    page = (place / runs[0] / "report.html").read_text()
    assert "Which share of the images of each class is dark?" in page
    assert 'http-equiv="Content-Security-Policy"' in page
    listed = {run["name"]: run for run in c2b.json("runs", "runs")["runs"]}
    assert listed["old"]["kind"] == "dark-images"
    assert listed["old"]["headline"] == "night: 0.9. 1 finding among 2 results"
    assert listed["old"]["findings"] == {"images": 1}
    assert "night: value is 0.9" in c2b("gate", runs[0], "--fail-on", "value>0.5", status=1)
    assert "failed found: 1 of 2 cells" in c2b("gate", runs[0], "--fail-on", "found", status=1)
    assert "passed day:found" in c2b("gate", runs[0], "--fail-on", "day:found")
    lines = c2b("export", runs[0], "--format", "csv").splitlines()
    assert lines[0].split(",")[:4] == ['"classifier"', '"finding"', '"verdict"', '"value"']
    assert len(lines) == 3
    assert json.loads(c2b("export", runs[0], "--format", "json"))["findings"] == [day, night]
    assert "model-card" in c2b("export", runs[0], "--format", "model-card", status=2)
    assert c2b.json("dark-images", "old.yaml", "--out", runs[0])["findings"] == [day, night]  # run again


def test_two_of_its_runs_are_compared(c2b: Shell, place: Path, runs: tuple[str, str]) -> None:
    """Of day 0 and 30 of 40 are dark, of night 36 in both."""
    compared = c2b.json("compare", *runs, "--out", "compared", "--fail-on", "worse", status=1)
    cells = {row["finding"]: row for row in compared["cells"]}
    assert (cells["day"]["change"], cells["day"]["difference"]) == ("worse", 0.75)
    assert (cells["night"]["change"], cells["night"]["p_value"]) == ("undetermined", 1.0)
    assert 0.5 < cells["day"]["difference_low"] < 0.75 < cells["day"]["difference_high"] < 0.9
    assert "What changed from A to B" in (place / "compared" / "comparison.html").read_text()
    (place / "other.yaml").write_text("images: old\nbelow: 10\n")
    c2b("dark-images", "other.yaml", "--out", "runs/other")
    assert "differ in below" in c2b("compare", runs[0], "runs/other", status=2)


def test_a_shared_endpoint_offers_runs_and_judges_it(
    c2b: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", c2b.environment["PYTHONPATH"])
    with ExitStack() as stack:
        process, url = stack.enter_context(started(tmp_path, ""))
        assert process.stdout is not None
        key = process.stdout.readline().split()[-1]
        client = stack.enter_context(httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60))
        [tenant] = [item["id"] for item in client.get("/v1/admin/tenants").json()["items"]]
        data = tmp_path / "site" / "storage" / "tenants" / tenant / "data"
        data.mkdir(parents=True, exist_ok=True)
        write_images(data / "old", DARK)

        [kind] = [one for one in client.get("/v1/catalog").json()["kinds"] if one["name"] == "dark-images"]
        assert kind["label"] == "Which share of the images of each class is dark?"
        submitted = client.get("/openapi.json").json()["paths"]["/v1/audits"]["post"]["requestBody"]["content"]
        assert "dark-images" in submitted["application/json"]["schema"]["properties"]["kind"]["enum"]
        outside = {"kind": "dark-images", "config": {"images": "/etc"}}
        refused = client.post("/v1/audits", json=outside)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "config.images")

        (tmp_path / "dark.yaml").write_text("images: data/old\n")
        remote = Shell(c2b.environment["PYTHONPATH"], tmp_path)
        remote.environment |= {"C2B_ENDPOINT": url, "C2B_KEY": key}
        job = remote.json("remote", "dark-images", "dark.yaml", "--name", "dim")
        assert (job["state"], job["kind"]) == ("finished", "dark-images")
        assert "night: value is 0.9" in remote("remote", "gate", job["id"], "--fail-on", "value>0.5", status=1)
        assert "night" in remote("remote", "export", job["id"], "--format", "csv")
        assert remote.json("remote", "list", "--kind", "dark-images")[0]["id"] == job["id"]
        again = remote.json("remote", "dark-images", "dark.yaml", "--name", "again")
        compared = client.get("/v1/comparisons", params={"a": job["id"], "b": again["id"]}).json()
        assert {row["change"] for row in compared["cells"]} == {"undetermined"}
        refused = client.post(f"/v1/audits/{job['id']}/questions", json={"sentence": "a bus at night"})
        assert refused.json()["code"] == "no_questions"

        pages = stack.enter_context(httpx.Client(base_url=url, timeout=60, follow_redirects=True))
        _send(pages, "/ui/signin", {"key": key}, "/ui/signin")
        form = pages.get("/ui/submit", params={"kind": "dark-images"}).text
        assert all(f'name="{name}"' in form for name in ("images", "below"))
        shown = _send(pages, "/ui/submit", {"kind": "dark-images", "name": "by hand", "once": "1", "images": "data/old",
                                            "below": "60", "yaml": ""}, "/ui/submit?kind=dark-images")  # fmt: skip
        assert "by hand" in shown.text
        shown = pages.get(f"/ui/audits/{job['id']}")
        assert shown.status_code == 200
        assert "Which share of the images of each class is dark?" in shown.text
        assert "1 finding among 2 results" in shown.text
        assert f'name="job" value="{job["id"]}"' in pages.get("/ui/").text


def _send(pages: httpx.Client, path: str, fields: dict[str, str], form: str) -> httpx.Response:
    token = re.search(r'name="csrf" value="([^"]+)"', pages.get(form).text)
    assert token is not None
    answer = pages.post(path, data={"csrf": token[1], **fields})
    assert answer.status_code == 200, answer.text
    return answer


def test_a_package_that_cannot_be_imported_breaks_only_its_own_command(c2b: Shell, tmp_path: Path) -> None:
    (tmp_path / "broken-1.dist-info").mkdir()
    (tmp_path / "broken-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (tmp_path / "broken-1.dist-info/entry_points.txt").write_text("[c2b_ray.audits]\ntangled = no_such_module:AUDIT\n")
    path = os.pathsep.join((str(tmp_path), c2b.environment["PYTHONPATH"]))
    assert "dark-images" in c2b("--help", PYTHONPATH=path)
    said = c2b("tangled", status=2, PYTHONPATH=path)
    assert "the audit 'tangled' of broken 1 cannot be loaded: No module named 'no_such_module'" in said
