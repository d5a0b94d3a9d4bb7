"""What a language model and a captioner both tell vLLM's engine, and what is said where it does not start.

It knows vLLM's engine arguments; it does not know prompts, images or replies.
"""

from __future__ import annotations

import os
from typing import Any

from c2b_ray.errors import WeightsError
from c2b_ray.models.vllm_plugin import OWNER
from c2b_ray.models.vllm_revision import Options


def engine_arguments(options: Options) -> dict[str, Any]:
    """Returns the engine arguments of a spec, its revision included; an engine started afterwards ends with this
    process."""
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ[OWNER] = str(os.getpid())
    return {
        "trust_remote_code": False,
        "load_format": "safetensors",
        # On one node with the actor's own GPUs, even where vLLM finds Ray running.
        **({"distributed_executor_backend": "mp"} if (options.tensor_parallel_size or 1) > 1 else {}),
        **options.model_dump(exclude_none=True),
    }


def not_started(name: str, error: Exception) -> WeightsError:
    return WeightsError(
        f"{name}: vLLM did not start with it: {str(error).strip()[:2000]}. Its own log, above or in the replica's log "
        "file, says more; with too little memory lower gpu_memory_utilization (on a CPU set kv_cache_memory_bytes), "
        "max_model_len or max_num_seqs"
    )
