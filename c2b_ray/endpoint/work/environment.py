"""The environment of a job's process: the variables that its libraries need, and no credentials except its store's.

It lists what may pass, so a secret with a new name does not.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from c2b_ray.endpoint.ledger import jobs
from c2b_ray.endpoint.ledger import jobs as resubmitted
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.job import Claim
from c2b_ray.storage import ENVIRONMENT, is_remote

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


# Lets a job start with the run of the same job that was cancelled before, or failed by a temporary problem.


STAYS = "its run is on an object store, where runs cannot be moved: the work is done again"


def inherit(db: Database, claim: Claim, run_path: str) -> Claim:
    """Moves the earlier run of the same job to `run_path`, if there is one and the job has no run yet.

    Returns the claim with the job as it is then. If the runner dies half way, the next one continues from there. Raises
    FencedError if the job is no longer held.
    """
    job = claim.job
    taken = job.run_path
    if taken is None and job.slices == 0 and job.attempt == 0:
        before = resubmitted.predecessor(db, job)
        if before is None:
            return claim
        if is_remote(run_path):
            note = {"message": f"starts from the beginning, not where {before[0]} ended", "reason": STAYS}
            jobs.report(db, job.id, claim.fence, resubmitted.NOTE, note)
            return claim
        job = resubmitted.take_over(db, job, before) or job
        taken = job.run_path
    if taken is not None and not is_remote(run_path):
        # Beside this run, in the present storage: the ledger may name an earlier one, which another endpoint may use.
        earlier = Path(run_path).with_name(Path(taken).name)
        if earlier.is_dir() and not os.path.exists(run_path):
            earlier.rename(run_path)
    return replace(claim, job=job)
