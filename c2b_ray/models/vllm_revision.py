"""The directory, settings and revision of a `vllm:` captioner or language model, found without vLLM.

A machine that starts an audit may have neither a GPU nor vLLM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2b_ray.errors import SpecError
from c2b_ray.models import weights
from c2b_ray.models.captioned import wording
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Description
from c2b_ray.tables import content_id

_SETTINGS: dict[str, Callable[[str], Any]] = {
    "dtype": str,
    "max_model_len": int,
    "gpu_memory_utilization": float,
    "tensor_parallel_size": int,
}


@dataclass(frozen=True)
class CaptionerFiles:
    directory: Path
    settings: dict[str, Any]
    revision: str


def captioner_of(spec: Spec) -> CaptionerFiles:
    """Returns the files and settings of a captioner. Raises SpecError where there are no files or a setting is no
    number, and WeightsError without safetensors."""
    options = spec.options_among(("revision", *_SETTINGS))
    revision = options.pop("revision", None)
    try:
        settings = {name: _SETTINGS[name](value) for name, value in options.items()}
    except ValueError as error:
        raise SpecError(f"{spec.text}: {error}") from error
    directory = weights.directory(spec.name, spec.text, revision, weights.WITH_TOKENIZER)
    identity = content_id("vllm_captioner", weights.directory_revision(directory), options, wording())
    return CaptionerFiles(directory, settings, identity)


def describe_language_model(spec: Spec) -> Description | None:
    """Returns a description by the files of a directory, or of a repository that was downloaded; None without them."""
    revision = weights.language_model_revision(spec.name, spec.options.get("revision"))
    return None if revision is None else Description(revision)


def describe(spec: Spec) -> Description:
    return Description(captioner_of(spec).revision)
