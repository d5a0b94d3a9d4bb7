"""The container images' files: hadolint finds nothing, and what they name is there. No image is built here."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
IMAGES = sorted((ROOT / "deployments").glob("*.Dockerfile"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BUILDERS = PROJECT["build-system"]["requires"]


def instructions(image: Path) -> list[tuple[str, str]]:
    lines = "\n".join(line for line in image.read_text().splitlines() if not line.startswith("#"))
    joined = lines.replace("\\\n", " ").splitlines()
    return [(name, " ".join(rest.split())) for name, _, rest in (line.partition(" ") for line in joined if line)]


def pins(lock: Path) -> dict[str, str]:
    """Versions by name, of lines such as `torch==2.14.0 ; marker \\`; the first where markers divide."""
    found: dict[str, str] = {}
    for name, version in re.findall(r"^([a-z0-9._-]+)(?:\[.*\])?==(\S+)", lock.read_text(), re.MULTILINE):
        found.setdefault(name, version)
    return found


def test_there_is_one_for_each_kind_of_node() -> None:
    assert [image.stem for image in IMAGES] == ["cpu", "gpu"]


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_hadolint_finds_nothing(image: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, "--no-color", image], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_what_is_copied_is_there_and_reaches_the_builder(image: Path) -> None:
    stages: set[str] = set()
    sent = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    for name, rest in instructions(image):
        if name == "FROM" and " AS " in rest:
            stages.add(rest.rpartition(" ")[2])
        if name != "COPY":
            continue
        *sources, _ = rest.split()
        if sources[0].startswith("--from="):
            assert sources[0].removeprefix("--from=") in stages
            continue
        for source in sources:
            assert list(ROOT.glob(source)), source
            assert source.split("/")[0] in sent, f"{source} is kept back by .dockerignore"


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_python_and_uv_are_the_projects_own_and_the_user_is_not_root(image: Path) -> None:
    named = instructions(image)
    stages = {rest.rpartition(" AS ")[2] for name, rest in named if name == "FROM" and " AS " in rest}
    bases = {rest.split()[0] for name, rest in named if name == "FROM"} - stages
    assert bases == {f"python:{PROJECT['project']['requires-python'].removeprefix('>=')}-slim-bookworm"}
    [uv] = [line.split(";")[0] for line in PROJECT["dependency-groups"]["dev"] if line.startswith("uv==")]
    assert f"pip install --no-cache-dir {uv}" in [rest for name, rest in named if name == "RUN"]
    [user] = [rest for name, rest in named if name == "USER"]
    assert int(user) > 0
    assert [name for name, _ in named].count("HEALTHCHECK") == 1


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_libraries_come_with_hashes_and_bytecode(image: Path) -> None:
    libraries, package = [rest for name, rest in instructions(image) if name == "RUN" and ".lock" in rest]
    assert "--require-hashes" in libraries
    assert "--build-constraint requirements.lock" in package
    assert all(canonicalize_name(Requirement(each).name) in pins(ROOT / "requirements.lock") for each in BUILDERS)
    assert any(name == "ENV" and "UV_COMPILE_BYTECODE=1" in rest for name, rest in instructions(image))


FOR_A_GPU = {"faiss-cpu": "faiss-gpu", "onnxruntime": "onnxruntime-gpu"}


@pytest.mark.parametrize(("lock", "extras"), [("requirements.lock", "all"), ("deployments/gpu.lock", "all,vllm")])
def test_a_lock_holds_the_project_and_its_extras_within_their_ranges(lock: str, extras: str) -> None:
    found = pins(ROOT / lock)
    for requirement in required(extras):
        name = canonicalize_name(requirement.name)
        name = FOR_A_GPU.get(name, name) if lock == "deployments/gpu.lock" else name
        assert found[name] in requirement.specifier, requirement


def test_the_cpu_image_holds_all_extras() -> None:
    [libraries] = [
        rest
        for name, rest in instructions(ROOT / "deployments" / "cpu.Dockerfile")
        if name == "RUN" and "pyproject" in rest and "--target" not in rest
    ]
    assert "--extra all" in libraries


def required(extras: str) -> Iterator[Requirement]:
    """What the package needs with the extras, those that extras name of the package itself included."""
    for line in PROJECT["project"]["dependencies"]:
        yield Requirement(line)
    for extra in extras.split(","):
        for requirement in map(Requirement, PROJECT["project"]["optional-dependencies"][extra]):
            if requirement.name == PROJECT["project"]["name"]:
                yield from required(",".join(requirement.extras))
            else:
                yield requirement


def test_the_gpu_lock_holds_no_build_for_cpus_and_the_libraries_of_cuda() -> None:
    """Two builds of one library overwrite each other's files: whichever was unpacked last would answer."""
    found = pins(ROOT / "deployments" / "gpu.lock")
    assert not FOR_A_GPU.keys() & found.keys()
    assert set(FOR_A_GPU.values()) <= found.keys()
    assert found["faiss-gpu"] == pins(ROOT / "requirements.lock")["faiss-cpu"]  # each reads the other's indexes
    # faiss-gpu is built for CUDA 12, onnxruntime-gpu and torch for CUDA 13: each needs its own cuBLAS.
    assert {
        "nvidia-cublas-cu12",
        "nvidia-curand-cu12",
        "nvidia-cublas",
        "nvidia-cudnn-cu13",
        "nvidia-cufft",
    } <= found.keys()
