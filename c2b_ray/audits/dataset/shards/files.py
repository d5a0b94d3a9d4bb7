"""Finds files of a dataset that have changed since they were written: cut short, or with other bytes.

For a finished dataset, the manifest lists the digest of each file. For an unfinished one, files that describe others
are read whole; of files with images only the sizes are compared, because reading all of them after each interruption
would take as long as drawing them. This module knows names, and leaves the reading to workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from c2b_ray.audits.dataset.shard_files import REPEATS, ShardFiles
from c2b_ray.audits.dataset.shards.passes import LocalWorkers, state_of
from c2b_ray.audits.dataset.shards.workers import Task
from c2b_ray.audits.dataset.steps.plan import Plan


def damaged(
    crews: LocalWorkers, files: ShardFiles, plan: Plan, listed: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    """Returns the names of damaged files. `listed`: the shards of the manifest, by number; None where there is no
    manifest."""
    names: list[str] = []

    def on_done(_: Task, of_task: list[str]) -> None:
        names.extend(of_task)

    tasks = _unfinished(files, plan) if listed is None else _finished(plan, listed)
    crews.run(tasks, on_done, lambda sums: None)
    return sorted(names)


def _finished(plan: Plan, listed: Sequence[Mapping[str, Any]]) -> Iterator[Task]:
    for group in range(plan.groups):
        yield Task("check", group, [listed[number] for number in plan.shards_of_group(group)])


def _unfinished(files: ShardFiles, plan: Plan) -> Iterator[Task]:
    state = state_of(files, plan)
    for group in range(plan.groups):
        shards = plan.shards_of_group(group)
        of_group = slice(shards.start, shards.stop)
        shards_drawn, finished = np.flatnonzero(state.drawn[of_group]), np.flatnonzero(state.finished[of_group])
        if len(shards_drawn) or len(finished):
            yield Task("sound", group, ((shards_drawn + shards.start).tolist(), (finished + shards.start).tolist()))
    for number, name in enumerate(files.names(REPEATS)):
        yield Task("sound_repeats", number, name)
