"""Lets a job start with the run of the same job that was cancelled before, or failed by a temporary problem.

The ledger decides who owns a run (`ledger.resubmitted`). This module moves the folder, in one step, before the job's
process starts. An object store cannot move a folder in one step: there the job starts from the beginning, and an event
says so.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from c2b_ray.endpoint.ledger import jobs, resubmitted
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.job import Claim
from c2b_ray.filesystems import is_remote

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
