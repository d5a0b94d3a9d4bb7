"""Kinds of runs: which tables a run directory of each kind has, and what can be done with it.

`KINDS` lists them, each by the module that defines it; that module and what it names load on first use. A kind is added
by one module with a `RunKind` and a line here. Commands, and all other code that treats runs alike, ask the kind of a
run and know no kind themselves.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.store.manifest import Manifest

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "c2b": "c2b_ray.audits.c2b.kind:KIND",
        "failures": "c2b_ray.audits.failures.kind:KIND",
        "prompts": "c2b_ray.audits.prompts.kind:KIND",
        "latent": "c2b_ray.audits.latent.kind:KIND",
        "clip-bias": "c2b_ray.audits.clip_bias.kind:KIND",
        "evaluate": "c2b_ray.commands.evaluate.kind:KIND",
    }
)
"""The name of each kind, as manifests have it → "module:attribute" of its `RunKind`."""


class KindedRun(Protocol):
    """A run, as far as its kind needs to know it."""

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> RunKind: ...


@dataclass(frozen=True)
class RunKind:
    """A kind of run; what it names as "module:function" loads when it is called.

    `name`: in manifests. `command`: what makes such a run, such as "c2b audit". `tables`: the schema of each table;
    `in_parts`: those that are directories of Parquet parts; `needed`: those that every finished run has. `run`: the
    class of its runs, `manifest`: of its manifests. `report`: writes report.html, (Run) → its path. `summary`: what a
    terminal shows, (Run) → `report.kit.summary.Summary`. `exports`: by format, (Run, classifier or None) → bytes.
    `gate`: (Run, gates, classifier or None, allow_unchecked) → checks. `compare`: (Run A, Run B, classifier of A,
    classifier of B) → a comparison. Empty where a kind has none.
    """

    name: str
    command: str
    tables: Mapping[str, pa.Schema]
    run: str
    report: str
    summary: str
    in_parts: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    manifest: type[Manifest] = Manifest
    exports: Mapping[str, str] = field(default_factory=dict)
    gate: str = ""
    compare: str = ""

    def new(self, path: str) -> Any:
        """The run at `path`, of the kind's class; it need not be there yet."""
        return _loaded(self.run)(path, self)

    def write_report(self, run: KindedRun) -> str:
        """Writes the run's report anew; its path."""
        return str(_loaded(self.report)(run))

    def summarise(self, run: KindedRun) -> Any:
        return _loaded(self.summary)(run)

    def export(self, run: KindedRun, form: str, classifier: str | None) -> bytes:
        """ConfigError where the kind has no such format."""
        if form not in self.exports:
            raise ConfigError("--format", f"{form!r} is no format of {self.name} runs; {nearest(form, self.exports)}")
        data: bytes = _loaded(self.exports[form])(run, classifier)
        return data

    def check(self, run: KindedRun, gates: Any, classifier: str | None, allow_unchecked: bool) -> Any:
        """ConfigError where the kind has no gates."""
        if not self.gate:
            raise ConfigError("RUN", f"{run.path} is a run of {self.command}, which has no gates")
        return _loaded(self.gate)(run, gates, classifier, allow_unchecked)

    def comparison(self, a: KindedRun, b: KindedRun, classifier_a: str | None, classifier_b: str | None) -> Any:
        """ConfigError where runs of the kind cannot be compared, or the other run is of another kind."""
        if not self.compare:
            raise ConfigError("A", f"{a.path} is a run of {self.command}, and such runs cannot be compared")
        if b.kind.name != self.name:
            raise ConfigError(
                "B", f"{b.path} is a run of {b.kind.command}, {a.path} one of {self.command}: name two of one kind"
            )
        return _loaded(self.compare)(a, b, classifier_a, classifier_b)


def kind_named(name: str) -> RunKind:
    """KeyError where this release knows no such kind."""
    kind: RunKind = _loaded(KINDS[name])
    return kind


def _loaded(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    return getattr(importlib.import_module(module), attribute)
