"""Tests that need an NVIDIA GPU: `pytest tests/gpu`, which skips them all where torch sees none.

There must be no __init__.py here or in tests/.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    why = None if torch.cuda.is_available() else f"no GPU: torch {torch.__version__} sees none on this machine"
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if why:
                item.add_marker(pytest.mark.skip(reason=why))
