"""The wheel holds what the package reads at run time, and nothing else: no training, no weights that only tests use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import BytesParser
from fnmatch import fnmatch
from pathlib import Path

import pytest

from c2b_ray.world import zoo

pytest.importorskip("hatchling", reason="make setup installs it")
ROOT = Path(__file__).parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
    "wheel"
]
EXCLUDED = WHEEL["exclude"]
TRAINING, WEIGHTS = "c2b_ray/world/training", "c2b_ray/world/weights/"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=ROOT, check=True)
    [path] = out.glob("*.whl")
    return zipfile.ZipFile(path)


def tracked(*paths: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.splitlines()


def left_out(name: str) -> bool:
    """Whether a folder that holds the file is excluded in pyproject.toml."""
    folders = [str(folder) for folder in Path(name).parents]
    return any(fnmatch(folder, pattern) for pattern in EXCLUDED for folder in folders)


def test_it_holds_every_file_of_the_package_but_excluded_folders(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if name.startswith("c2b_ray/") and "/deployments/" not in name}
    assert held == {name for name in tracked("c2b_ray") if not left_out(name)}


def test_what_is_excluded_is_training_and_weights(wheel: zipfile.ZipFile) -> None:
    folders = {str(folder) for name in tracked("c2b_ray") for folder in Path(name).parents}
    assert [pattern for pattern in EXCLUDED if not any(fnmatch(folder, pattern) for folder in folders)] == []
    assert [pattern for pattern in EXCLUDED if pattern != TRAINING and not pattern.startswith(WEIGHTS)] == []


def test_its_weights_are_those_that_readme_guides_and_commands_name(wheel: zipfile.ZipFile) -> None:
    """A reader of these pages has installed the package; papers and decisions are about a checkout."""
    pages = ["README.md", *tracked("docs/*.md", "c2b_ray/cli", "deployments"), "c2b_ray/audits/demo.py"]
    pages += ["c2b_ray/endpoint/web/submit.py", "c2b_ray/endpoint/api/models.py"]
    pages = [page for page in pages if not page.startswith(("docs/papers", "docs/decisions"))]
    texts = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    models = {path.name for path in (ROOT / WEIGHTS).iterdir() if path.is_dir()}
    named = models & {*re.findall(r"world:([a-z][a-z0-9-]*[a-z0-9])", texts), *zoo.LATENT_READERS}
    held = {name.removeprefix(WEIGHTS).split("/")[0] for name in wheel.namelist() if name.startswith(WEIGHTS)}
    assert held - {"MODEL_CARD.md"} == named


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    wheel.extractall(folder)
    return folder


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`c2b` of the wheel's files, from their own folder."""
    code = "from c2b_ray.cli import command; command()"
    environment = {**os.environ, "PYTHONPATH": str(installed), "COLUMNS": "500"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=installed, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command",
    [
        "world train clip",
        "world clip-downstream --out D",
        "world latent generator",
        "world latent classifier --target x",
    ],
)
def test_commands_that_train_say_that_a_checkout_does(installed: Path, command: str) -> None:
    done = run(installed, *command.split())
    assert done.returncode == 2, done.stderr
    assert "run it in a checkout of c2b-ray's repository" in done.stderr


def test_a_model_that_is_left_out_says_where_its_weights_are(installed: Path) -> None:
    code = "from c2b_ray.models import catalog; catalog.encoder('world:clip-02')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=installed, env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "WeightsError: world:clip-02" in done.stderr
    assert "c2b-ray's repository, in c2b_ray/world/weights/clip-02" in done.stderr


def test_data_of_the_world_is_made_without_training(installed: Path) -> None:
    done = run(installed, "world", "clip-data", "--out", "people", "-n", "20")
    assert done.returncode == 0, done.stderr
    assert (installed / "people" / "table.parquet").exists()


@pytest.mark.parametrize(
    "pattern",
    [
        r"c2b_ray/py\.typed",
        r"c2b_ray/report/templates/page\.html\.j2",
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
