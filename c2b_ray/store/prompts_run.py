"""A run of `c2b prompts`: its tables by name, each checked when it is read.

prompts.parquet        every prompt with its frequency under fresh seeds; methods.parquet: the result of each method
gains.parquet          each method against the language model's own prompts, over all values
associations.parquet   which words raise which value
modifiers.parquet      the effect of parts of a prompt
heads.parquet          accuracy of the heads by denoising step; heads/ contains the heads themselves
searches/ judged/ examples/   Parquet parts: results of searches, answers of the judge, pictures
written.parquet        prompts of the baselines
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from c2b_ray.store.kinds import kind_named
from c2b_ray.store.manifest import Manifest
from c2b_ray.store.run import Run, open_run

PROMPTS = "prompts"


class PromptsManifest(Manifest):
    """`notes`: remarks on the numbers for readers."""

    notes: list[str] | None = None


class PromptsRun(Run):
    """A run of `c2b prompts`."""

    SINCE: ClassVar = {"associations": ("look", "images_used")}

    @property
    def prompts(self) -> pa.Table:
        return self.read("prompts")

    @property
    def associations(self) -> pa.Table:
        return self.read("associations")

    @property
    def modifiers(self) -> pa.Table:
        return self.read("modifiers")

    @property
    def methods(self) -> pa.Table:
        return self.read("methods")

    @property
    def gains(self) -> pa.Table:
        return self.read("gains")

    @property
    def heads(self) -> pa.Table:
        return self.read("heads")


@contextmanager
def open_prompts_run(path: str | Path, run_id: str, config: Mapping[str, Any]) -> Iterator[PromptsRun]:
    """Does what `open_run` does, for a run of this kind."""
    with open_run(path, run_id, config, kind_named(PROMPTS)) as run:
        assert isinstance(run, PromptsRun)
        yield run
