"""A run of `c2b latent`: its tables by name, each checked when it is read.

searches/                          Parquet parts: the answer of each search, with the images of its strips
directions.parquet                 every direction with its verdict; cosines if the truth is known
strips.parquet                     images along the directions, from the same latents
hyperplanes.parquet                of the attributes, with held-out accuracies; for omitted ones, the reason
problems.parquet                   every problem, searched or omitted
"""

from __future__ import annotations

from c2b_ray.audits.latent.kind import AUDIT
from c2b_ray.config.latent import LatentConfig
from c2b_ray.storage.run import Run, TableOf, opener_of


class LatentRun(Run):
    """A run of `c2b latent`."""

    config: LatentConfig

    directions = TableOf()
    strips = TableOf()
    hyperplanes = TableOf()
    problems = TableOf()


open_latent_run = opener_of(AUDIT, LatentRun)
"""As `storage.run.open_run`, for a run of this kind."""
