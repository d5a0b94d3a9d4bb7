"""What a user is told who asks for vLLM where it is not installed."""

from __future__ import annotations

import importlib.util

import pytest

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_vllm_that_is_not_installed_is_said_with_what_to_do() -> None:
    with pytest.raises(
        SpecError, match=r"vllm:org/name needs the package 'vllm': .*c2b-ray\[vllm\].*deployments/README"
    ):
        catalog.language_model("vllm:org/name")
