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
from pydantic import BaseModel, ConfigDict

from c2b_ray.audits.prompts.kind import AUDIT
from c2b_ray.storage.manifest import Manifest
from c2b_ray.storage.run import Run, open_run


class LeastEffect(BaseModel):
    """The least effect of a word on a value that would have been found; None where none would."""

    model_config = ConfigDict(extra="allow", frozen=True)

    attribute: str
    value: str
    effect: float | None


class WordSearch(BaseModel):
    """How words of one generator were tested. `words`: tested; `decided`: pairs of a word and a value that the last
    look decided. `least`: effects that are found with probability `power`, at best. `untested`: word → why it was
    not."""

    model_config = ConfigDict(extra="allow", frozen=True)

    generator: str
    words: int
    decided: int
    power: float
    least: list[LeastEffect]
    untested: dict[str, str]


class PromptsManifest(Manifest):
    """`notes`: remarks on the numbers for readers. `words`: how words were tested, of each generator."""

    notes: list[str] | None = None
    words: list[WordSearch] | None = None


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
    with open_run(path, run_id, config, AUDIT) as run:
        assert isinstance(run, PromptsRun)
        yield run
