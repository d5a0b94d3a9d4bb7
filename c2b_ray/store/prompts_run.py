"""A run of `c2b prompts`: its tables by name, each checked as it is read.

prompts.parquet        every prompt with its frequency under fresh seeds, and methods.parquet, what each method came to
gains.parquet          each method against the language model's own prompts, over all values
associations.parquet   which words raise which value
modifiers.parquet      what parts of a prompt add
heads.parquet          accuracy of the heads by denoising step; heads/ holds the heads themselves
searches/ judged/ examples/   Parquet parts: what each search gave, answers of the judge, pictures
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
"""Columns that runs of older releases lack: null there."""


class PromptsManifest(Manifest):
    """`notes`: what a reader of the numbers should know."""

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
    """As `open_run`."""
    with open_run(path, run_id, config, kind_named(PROMPTS)) as run:
        assert isinstance(run, PromptsRun)
        yield run
