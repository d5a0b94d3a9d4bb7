"""The stages of `c2b prompts`: searches, judging, pictures. Each row is a unit of work, so that rows run side by side
and resume.

It knows which step runs over which rows; reading, writing and resuming are left to `stage`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from c2b_ray.audits.prompts.steps.judging import ImageQuestions, JudgeModels, judge, pictures
from c2b_ray.audits.prompts.steps.tasks import SearchModels, SearchPlan, search
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.stage import Rows, Runner, StageConfig, each_alone
from c2b_ray.roles import ImageGenerator
from c2b_ray.tables.prompts import EXAMPLES, JUDGED, SEARCHES


def _images(orders: pa.Table) -> list[int]:
    return [len(seeds) for seeds in orders["seeds"].to_pylist()]


# Neither searches nor images of a large generator are quick, and a kill loses what no file holds.
SEARCH = StageConfig(SEARCHES, stage="generate", rows_per_file=1, weigh=each_alone, most_weight=1)
JUDGE = StageConfig(JUDGED, stage="generate", rows_per_file=16, weigh=_images, most_weight=128)
PICTURES = StageConfig(EXAMPLES, stage="generate", rows_per_file=16)
_BLOCK = 8


@dataclass(frozen=True)
class PromptStages:
    """The stages of one run, all run by `runner`."""

    runner: Runner

    def search(
        self, orders: pa.Table, models: Callable[[], SearchModels], plan: SearchPlan, out: str, tell: OnProgress
    ) -> None:
        """Writes a row of `tables.prompts.SEARCHES` per order into parts under `out`."""
        config = replace(SEARCH, total=orders.num_rows)
        self.runner.run(
            Rows.of(orders, 1), partial(search, plan=plan), models, out, id_column="search_id", config=config,
            on_progress=tell,
        )  # fmt: skip

    def judge(
        self, orders: pa.Table, models: Callable[[], JudgeModels], about: ImageQuestions, out: str, tell: OnProgress
    ) -> None:
        """Writes a row of `tables.prompts.JUDGED` per order into parts under `out`."""
        config = replace(JUDGE, total=orders.num_rows)
        self.runner.run(
            Rows.of(orders, _BLOCK), partial(judge, about=about), models, out, id_column="judged_id", config=config,
            on_progress=tell,
        )  # fmt: skip

    def pictures(
        self, orders: pa.Table, generator: Callable[[], ImageGenerator], name: str, out: str, tell: OnProgress
    ) -> None:
        """Writes a row of `tables.prompts.EXAMPLES` per order into parts under `out`."""
        config = replace(PICTURES, total=orders.num_rows)
        self.runner.run(
            Rows.of(orders, _BLOCK), partial(pictures, name=name), generator, out, id_column="example_id",
            config=config, on_progress=tell,
        )  # fmt: skip
