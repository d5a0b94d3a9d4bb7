"""The environment of a job's process: the variables that its libraries need, and no credentials except its store's.

It lists what may pass, so a secret with a new name does not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from c2b_ray.filesystems import ENVIRONMENT, is_remote

EXACT = frozenset(
    {
        "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
        "LD_PRELOAD", "XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR",
        "MALLOC_ARENA_MAX", "CUBLAS_WORKSPACE_CONFIG", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
        "RAY_worker_niceness", "RAY_USAGE_STATS_ENABLED", "RAY_TMPDIR",
    }
)  # fmt: skip
BEGINNINGS = ("CUDA_", "NVIDIA_", "OPENBLAS_", "NVPL_")
CLUSTER = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
"""Variables that pass only if jobs use a shared cluster, which may need a token."""


def of_job(
    environment: Mapping[str, str], storage: str, cluster: str | None = None, keys: Collection[str] = ()
) -> dict[str, str]:
    """Returns the variables for a job's process.

    `storage`: where runs are. `cluster`: the address of the cluster whose apps jobs use. `keys`: further variables that
    the operator allows, such as those of listed services.
    """
    passes = {name for name in environment if name in EXACT or name.startswith(BEGINNINGS)}
    passes |= set(keys)
    if is_remote(storage):
        passes |= {name for name in environment if name in ENVIRONMENT}
    if cluster is not None:
        passes |= set(CLUSTER)
    chosen = {name: environment[name] for name in sorted(passes) if name in environment}
    if cluster is not None:
        # Somebody deployed the apps there: a job uses them, and neither starts nor ends any.
        chosen |= {"RAY_ADDRESS": cluster, "C2B_SERVE_APPS": "declared"}
    return chosen
