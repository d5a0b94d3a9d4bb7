"""Where a job's run begins: empty, or with the run of the same job when it was cancelled.

The ledger says whose a run is (`ledger.resubmitted`); the folder is moved here, in one step, before the job's process
starts. An object store moves nothing in one step: there a job begins anew, and says so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from c2b_ray.endpoint.ledger import jobs, resubmitted
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.job import Claim
from c2b_ray.filesystems import is_remote

STAYS = "its run lies on an object store, where no run is moved: what it had done is done again"


def inherit(db: Database, claim: Claim, run_path: str) -> Claim:
    """Puts an earlier run of the same job at `run_path`, where there is one and the job has none of its own yet.

    The claim, with the job as it is then. A runner that dies on the way leaves what the next one goes on with.
    FencedError where the job is held no more.
    """
    job = claim.job
    taken = job.run_path
    if taken is None and job.slices == 0 and job.attempt == 0:
        before = resubmitted.predecessor(db, job)
        if before is None:
            return claim
        if is_remote(run_path):
            note = {"message": f"begins anew, and not where {before[0]} ended", "reason": STAYS}
            jobs.report(db, job.id, claim.fence, resubmitted.NOTE, note)
            return claim
        job = resubmitted.take_over(db, job, before) or job
        taken = job.run_path
    if taken is not None and taken != run_path and os.path.isdir(taken) and not os.path.exists(run_path):
        Path(run_path).parent.mkdir(parents=True, exist_ok=True)
        os.rename(taken, run_path)
    return replace(claim, job=job)
