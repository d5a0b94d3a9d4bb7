"""The embeddings that the suites of indexes search."""

from __future__ import annotations

import pytest
from index_parts import unit

from c2b_ray.roles import Floats


@pytest.fixture(scope="module")
def vectors() -> Floats:
    return unit(1000)
