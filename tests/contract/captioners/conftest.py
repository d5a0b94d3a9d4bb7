"""A tiny vision-language model and pictures, for the suites of captioners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny_vlm
import torch

from c2b_ray.roles import Pixels


@contextmanager
def single_thread() -> Iterator[None]:
    """So small a model only waits for its other threads: minutes on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vlm")
    with single_thread():
        tiny_vlm.make(folder)
    return folder


@pytest.fixture(scope="module")
def images() -> list[Pixels]:
    return tiny_vlm.pictures(6, seed=2)
