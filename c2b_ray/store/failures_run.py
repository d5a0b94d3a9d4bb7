"""A run of `c2b failures`: its tables by name, each checked as it is read.

candidates.parquet                 every caption that was drawn, with the one that it was made from
rounds/  descriptions/             Parquet parts: counts of the draws, and what the captioner said of failures
hypotheses.parquet                 failure rates of discovery, and of confirmation with its evidence
reliability.parquet                how often the generator shows each label, where a verifier was named
transfers.parquet                  the failures on other images and classifiers, where that was wanted
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from c2b_ray.errors import ConfigError
from c2b_ray.store.kinds import kind_named
from c2b_ray.store.manifest import Manifest
from c2b_ray.store.run import Run, load_run, open_run

FAILURES = "failures"


class LeastRate(BaseModel):
    """The least `rate` at which a failure is likely to be found whose condition a `share` of a label's images show;
    None where none is, however often it happens."""

    model_config = ConfigDict(extra="allow", frozen=True)

    share: float
    rate: float | None


class Expected(BaseModel):
    """What was expected before a run: images and, where models were tried, seconds of one process, at least and at
    most; and the least rates that its budget is likely to find (`steps.discovery.power`)."""

    model_config = ConfigDict(extra="allow", frozen=True)

    draws: list[int]
    seconds: list[float] | None = None
    least_rates: list[LeastRate] | None = None


class FailuresManifest(Manifest):
    """`spent`: draws by stage and part, beside the `budget` of the config; `estimate`: before the run;
    `dropped_sentences`: reason → how many that were said of failures stand in no caption."""

    spent: dict[str, int] | None = None
    estimate: Expected | None = None
    dropped_sentences: dict[str, int] | None = None


class FailuresRun(Run):
    """A run of `c2b failures`."""

    @property
    def candidates(self) -> pa.Table:
        return self.read("candidates")

    @property
    def rounds(self) -> pa.Table:
        return self.read("rounds")

    @property
    def hypotheses(self) -> pa.Table:
        return self.read("hypotheses")

    @property
    def reliability(self) -> pa.Table:
        return self.read("reliability")

    @property
    def transfers(self) -> pa.Table:
        return self.read("transfers")


def load_failures_run(path: str | Path | Run) -> FailuresRun:
    """As `load_run`. ConfigError where the run is of another kind."""
    run = path if isinstance(path, Run) else load_run(path)
    if not isinstance(run, FailuresRun):
        raise ConfigError("RUN", f"{run.path} is a run of {run.kind.command}; this needs one of c2b failures")
    return run


@contextmanager
def open_failures_run(path: str | Path, run_id: str, config: Mapping[str, Any]) -> Iterator[FailuresRun]:
    """As `open_run`."""
    with open_run(path, run_id, config, kind_named(FAILURES)) as run:
        assert isinstance(run, FailuresRun)
        yield run
