"""What models find around them: PyTorch's build and its GPUs, and the model hub. `c2b doctor` asks.

It knows PyTorch, torchvision and the hub's client; it loads no model and fetches no file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module

import httpx

from c2b_ray.errors import InputError
from c2b_ray.extras import needed_by

_ANSWER_SECONDS = 3.0


@dataclass(frozen=True)
class Torch:
    """PyTorch here. `cuda`: the version that it was built for, None for a build for CPUs; `seen`: how many GPUs it can
    use; `problem`: why PyTorch or torchvision cannot be imported, "" where they can."""

    cuda: str | None = None
    seen: int = 0
    problem: str = ""


@dataclass(frozen=True)
class Hub:
    """The model hub as this process would use it. `reached`: whether it answered, None where it was not asked, as it is
    offline; `signed_in`: whether a token is there, which is not read."""

    url: str
    cache: str
    offline: bool
    signed_in: bool
    reached: bool | None


def torch_here() -> Torch:
    try:
        with needed_by("every classifier"):
            import torch

            import_module("torchvision.ops")  # whose compiled operators must fit this torch
        # What a broken library answers: a missing system library is an OSError.
    except (InputError, ImportError, OSError, RuntimeError) as error:
        return Torch(problem=str(error))
    return Torch(torch.version.cuda, torch.cuda.device_count() if torch.cuda.is_available() else 0)


def hub_here() -> Hub:
    from huggingface_hub import constants

    offline = bool(constants.HF_HUB_OFFLINE)
    return Hub(
        constants.ENDPOINT,
        constants.HF_HUB_CACHE,
        offline,
        bool(os.environ.get("HF_TOKEN")) or os.path.isfile(constants.HF_TOKEN_PATH),
        None if offline else _answers(constants.ENDPOINT),
    )


def _answers(url: str) -> bool:
    try:
        httpx.head(url, timeout=_ANSWER_SECONDS, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL):
        return False
    return True
