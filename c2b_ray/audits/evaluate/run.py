"""A run of `c2b evaluate`: its tables by name, each checked when it is read.

truth.parquet  detected.parquet    biases of the ground truth, and of every method
matches  outcomes                  which names match, and the outcome of each bias: hit, false hit or miss
agreement  differences             shares of these by method, and differences between methods
thresholds  vqa  recall  shown  ranking  proposers
truth_run/  methods/  looked/      audits of the ground truth and of the methods, and models' answers: all resume
"""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.audits.evaluate.config import EvaluateConfig
from c2b_ray.audits.evaluate.kind import AUDIT
from c2b_ray.storage.manifest import Manifest
from c2b_ray.storage.run import Run, opener_of


class EvaluateManifest(Manifest):
    """`thresholds`: by kind, the least cosine of names that match; null if there is none. `classes`: of the ground
    truth. `notes`: remarks on the results for readers."""

    thresholds: dict[str, float | None] | None = None
    classes: list[str] | None = None
    notes: list[str] | None = None


class EvaluateRun(Run):
    """A run of `c2b evaluate`. Tables are also attributes, such as `run.agreement`."""

    config: EvaluateConfig

    @property
    def tables(self) -> dict[str, pa.Table]:
        """The existing tables by name. `recall` exists only if retrieval was evaluated."""
        return {name: self.read(name) for name in self.kind.tables if self.has(name)}

    @property
    def thresholds(self) -> dict[str, float]:
        """By kind, the least cosine of names that match; NaN if there is none."""
        recorded = self.manifest.get("thresholds") or {}
        return {kind: float("nan") if value is None else float(value) for kind, value in recorded.items()}

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.manifest.get("classes") or ())

    def __getattr__(self, name: str) -> pa.Table:
        kind = self.__dict__.get("kind")
        if kind is None or name not in kind.tables:
            raise AttributeError(f"no table {name!r}; there are {', '.join(kind.tables if kind else ())}")
        return self.read(name)


open_evaluate_run = opener_of(AUDIT, EvaluateRun)
"""As `storage.run.open_run`, for a run of this kind."""
