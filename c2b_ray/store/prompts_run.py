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
from typing import Any

import pyarrow as pa

from c2b_ray.store.kinds import kind_named
from c2b_ray.store.manifest import Manifest
from c2b_ray.store.run import Run, open_run

PROMPTS = "prompts"
_SINCE = {"associations": ("look", "images_used")}
"""Columns that runs of older releases lack; they are read as null."""


class PromptsManifest(Manifest):
    """`notes`: remarks on the numbers for readers."""

    notes: list[str] | None = None


class PromptsRun(Run):
    """A run of `c2b prompts`."""

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

    def complete(self, name: str, table: pa.Table, columns: list[str] | None) -> pa.Table:
        for column in _SINCE.get(name, ()):
            if column not in table.column_names and column in (columns or _SINCE[name]):
                field = self.kind.tables[name].field(column)
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        return super().complete(name, table, columns)


@contextmanager
def open_prompts_run(path: str | Path, run_id: str, config: Mapping[str, Any]) -> Iterator[PromptsRun]:
    """Does what `open_run` does, for a run of this kind."""
    with open_run(path, run_id, config, kind_named(PROMPTS)) as run:
        assert isinstance(run, PromptsRun)
        yield run
