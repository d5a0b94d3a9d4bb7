"""Synthetic runs to report on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from run_recipes import Recipe, showcase
from synthetic_run import make_run

from c2b_ray.storage.run import Run


@pytest.fixture(scope="session")
def showcase_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("showcase") / "run", showcase())


@pytest.fixture
def build_run(tmp_path: Path) -> Callable[..., Run]:
    """Makes a run from a recipe's fields."""
    return lambda **fields: make_run(tmp_path / "run", Recipe(**fields))
