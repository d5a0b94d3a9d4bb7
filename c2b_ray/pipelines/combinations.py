"""The stage that clusters failures and combines their sentences: captioner and encoder stay where the images are.

It is placed like the stage that asks a verifier; reading, writing and resuming are `stage`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa

from c2b_ray.pipelines.images import VERIFY, OnProgress
from c2b_ray.pipelines.stage import Rows, Runner
from c2b_ray.roles import Captioner, CaptionScorer, TextImageEncoder
from c2b_ray.schemas.failures import COMBINATIONS
from c2b_ray.steps.discovery.combined import Scoring, combine_groups
from c2b_ray.steps.discovery.scoring import Similarity

COMBINE = replace(VERIFY, schema=COMBINATIONS, weigh=None, rows_per_file=64)


def combine_all(
    runner: Runner,
    groups: pa.Table,
    captioner: Callable[[], Captioner],
    encoder: Callable[[], TextImageEncoder] | None,
    out: str,
    on_progress: OnProgress,
) -> None:
    """Writes a row of `schemas.COMBINATIONS` per group (`steps.discovery.combined`) into parts under `out`."""
    runner.run(
        Rows.of(groups, 1),
        combine_groups,
        partial(_loaded, captioner, encoder),
        out,
        id_column="combination_id",
        config=replace(COMBINE, total=groups.num_rows),
        on_progress=on_progress,
    )


def _loaded(captioner: Callable[[], Captioner], encoder: Callable[[], TextImageEncoder] | None) -> Scoring:
    said, seen = captioner(), encoder() if encoder is not None else None
    if isinstance(said, CaptionScorer):
        return Scoring(said, seen)
    return Scoring(None if seen is None else Similarity(seen), seen)
