"""The options, directory and revision of a `vllm:` captioner or language model, found without vLLM.

A machine that starts an audit may have neither a GPU nor vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from c2b_ray.errors import SpecError
from c2b_ray.models import weights
from c2b_ray.models.captioned import wording
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Description
from c2b_ray.tables import content_id


class Options(BaseModel):
    """The options of a spec: vLLM's engine arguments of these names, with vLLM's defaults unless it says otherwise.

    `kv_cache_memory_bytes` bounds the cache on a CPU, `gpu_memory_utilization` weights and cache together on a GPU.
    """

    dtype: Literal["auto", "float32", "float16", "bfloat16"] | None = None
    revision: str | None = None
    max_model_len: int | None = Field(None, ge=2)
    max_num_seqs: int | None = Field(None, ge=1)
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    kv_cache_memory_bytes: int | None = Field(None, ge=1)
    tensor_parallel_size: int | None = Field(None, ge=1)
    enforce_eager: bool | None = None


@dataclass(frozen=True)
class CaptionerFiles:
    directory: Path
    options: Options
    revision: str


def options_of(spec: Spec) -> Options:
    """Returns the options of a spec. Raises SpecError for an unknown or wrong one."""
    try:
        return Options.model_validate(spec.options_among(Options.model_fields))
    except ValidationError as error:
        first = error.errors()[0]
        raise SpecError(f"{spec.text}: {first['loc'][0]}={first['input']!r}: {first['msg']}") from error


def captioner_of(spec: Spec) -> CaptionerFiles:
    """Returns the files and options of a captioner. Raises SpecError where there are no files or an option is wrong,
    and WeightsError without safetensors."""
    options = options_of(spec)
    directory = weights.directory(spec.name, spec.text, options.revision, weights.WITH_TOKENIZER)
    # How much memory vLLM takes and how many rows it computes at once change no answer.
    precision = options.model_dump(include={"dtype"}, exclude_none=True)
    identity = content_id("vllm_captioner", weights.directory_revision(directory), precision, wording())
    return CaptionerFiles(directory, options, identity)


def describe_language_model(spec: Spec) -> Description | None:
    """Returns a description by the files of a directory, or of a repository that was downloaded; None without them."""
    revision = weights.language_model_revision(spec.name, spec.options.get("revision"))
    return None if revision is None else Description(revision)


def describe(spec: Spec) -> Description:
    return Description(captioner_of(spec).revision)
