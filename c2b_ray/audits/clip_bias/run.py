"""A run of `c2b clip-bias`: its tables by name, each checked when it is read.

embeddings/                        Parquet parts: images and texts of every model
clip_bias.parquet                  bias of each model, dataset, metric, attribute and view
transfer.parquet                   rank correlations of pre-training with downstream bias
locality.parquet                   … of local with global bias
rates  clusters  examples  model_pairs  gaps  convergence    inputs and consequences of these
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from c2b_ray.audits.clip_bias.config import ClipBiasConfig
from c2b_ray.audits.clip_bias.kind import AUDIT
from c2b_ray.storage.manifest import Manifest
from c2b_ray.storage.run import Run, TableOf, load_run_of, opener_of


class ClipBiasManifest(Manifest):
    """`notes`: remarks on the results for readers. `window`: the models whose transfer was studied. `groups`: by
    dataset, the number of images in each matched group. `performance`: of each model."""

    notes: list[str] | None = None
    window: list[str] | None = None
    groups: dict[str, dict[str, int]] | None = None
    performance: dict[str, float] | None = None


class ClipBiasRun(Run):
    """A run of `c2b clip-bias`."""

    SINCE: ClassVar = {"clip_bias": ("favoured", "favoured_texts", "texts"), "clusters": ("content",)}
    config: ClipBiasConfig

    biases = TableOf("clip_bias")
    transfer = TableOf()
    locality = TableOf()
    rates = TableOf()
    model_pairs = TableOf()
    convergence = TableOf()


def load_clip_bias_run(path: str | Path | Run) -> ClipBiasRun:
    """Does what `load_run` does. Raises ConfigError for a run of another kind."""
    return load_run_of(path, AUDIT, ClipBiasRun)


open_clip_bias_run = opener_of(AUDIT, ClipBiasRun)
"""As `storage.run.open_run`, for a run of this kind."""
