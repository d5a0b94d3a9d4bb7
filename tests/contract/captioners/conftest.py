"""A tiny vision-language model and pictures, for the suites of captioners."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_vlm
from tiny_vlm import single_thread

from c2b_ray.roles import Pixels


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vlm")
    tiny_vlm.make(folder)
    return folder


@pytest.fixture(scope="module")
def images() -> list[Pixels]:
    return tiny_vlm.pictures(6, seed=2)
