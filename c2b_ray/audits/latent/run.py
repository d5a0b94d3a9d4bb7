"""A run of `c2b latent`: its tables by name, each checked when it is read.

searches/                          Parquet parts: the answer of each search, with the images of its strips
directions.parquet                 every direction with its verdict; cosines if the truth is known
strips.parquet                     images along the directions, from the same latents
hyperplanes.parquet                of the attributes, with held-out accuracies; for omitted ones, the reason
problems.parquet                   every problem, searched or omitted
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from c2b_ray.audits.latent.kind import AUDIT
from c2b_ray.config.latent import LatentConfig
from c2b_ray.storage.run import Run, open_run


class LatentRun(Run):
    """A run of `c2b latent`."""

    config: LatentConfig

    @property
    def directions(self) -> pa.Table:
        return self.read("directions")

    @property
    def strips(self) -> pa.Table:
        return self.read("strips")

    @property
    def hyperplanes(self) -> pa.Table:
        return self.read("hyperplanes")

    @property
    def problems(self) -> pa.Table:
        return self.read("problems")


@contextmanager
def open_latent_run(path: str | Path, run_id: str, config: Mapping[str, Any]) -> Iterator[LatentRun]:
    """Does what `open_run` does, for a run of this kind."""
    with open_run(path, run_id, config, AUDIT) as run:
        assert isinstance(run, LatentRun)
        yield run
