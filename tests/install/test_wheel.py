"""The wheel holds whatever the package reads when it runs, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="make setup installs it")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=ROOT, check=True)
    [path] = out.glob("*.whl")
    return zipfile.ZipFile(path)


def test_it_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    tracked = subprocess.run(["git", "ls-files", "c2b_ray"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(tracked.stdout.splitlines()) <= set(wheel.namelist())


@pytest.mark.parametrize(
    "pattern",
    [
        r"c2b_ray/py\.typed",
        r"c2b_ray/report/templates/report\.html\.j2",
        r"c2b_ray/report/templates/.+\.css",
        r"c2b_ray/report/templates/.+\.js",
        r"c2b_ray/prompts/propose\.txt",
        r"c2b_ray/models/vocabulary\.txt",
        r"c2b_ray/world/weights/lm/model\.safetensors",
        r"c2b_ray/endpoint/ledger/migrations/versions/r0001_ledger\.py",
        r"c2b_ray/deployments/laptop\.yaml",
        r"c2b_ray/deployments/placement/one-gpu\.yaml",
        r"c2b_ray-.+\.dist-info/licenses/LICENSE",
    ],
)
def test_it_holds_what_is_read_at_run_time(wheel: zipfile.ZipFile, pattern: str) -> None:
    assert any(re.fullmatch(pattern, name) for name in wheel.namelist())


def test_every_placement_has_its_serve_config_beside_it(wheel: zipfile.ZipFile) -> None:
    placements = [name for name in wheel.namelist() if name.startswith("c2b_ray/deployments/placement/")]
    assert placements
    for name in placements:
        [serve] = re.findall(r"^serve: \.\./(\S+)$", wheel.read(name).decode(), re.MULTILINE)
        assert f"c2b_ray/deployments/{serve}" in wheel.namelist(), name


def test_it_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {re.sub(r"-.*\.dist-info$", ".dist-info", top) for top in tops} == {"c2b_ray", "c2b_ray.dist-info"}
    strange = re.compile(r"tests?/|bench/|__pycache__|\.pyc$|\.tmp|/runs/")
    assert [name for name in wheel.namelist() if strange.search(name)] == []


def test_its_metadata_has_ranges_extras_and_classifiers(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = BytesParser().parsebytes(wheel.read(name))
    needed = metadata.get_all("Requires-Dist", [])
    assert [line for line in needed if "==" in line.split(";")[0]] == []
    assert not any(line.startswith(("boto3", "diffusers", "onnx")) and "extra ==" not in line for line in needed)
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "all",
        "endpoint",
        "evaluate",
        "generate",
        "gpu",
        "heic",
        "llm",
        "mlflow",
        "onnx",
        "s3",
        "serve",
        "vllm",
        "wandb",
    }
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert metadata["License-Expression"] == "Apache-2.0"
