"""Kinds of runs: the tables of a run directory of each kind, and the functions that work on it.

`KINDS` names the module that defines each; it and its functions are imported on first use. To add a kind, write a
module with a `RunKind` and add a line here. Commands, and all code that treats runs alike, use the kind of a run and
know no kind themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.storage.manifest import Manifest

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "c2b": "c2b_ray.audits.c2b.kind:KIND",
        "failures": "c2b_ray.audits.failures.kind:KIND",
        "prompts": "c2b_ray.audits.prompts.kind:KIND",
        "latent": "c2b_ray.audits.latent.kind:KIND",
        "clip-bias": "c2b_ray.audits.clip_bias.kind:KIND",
        "evaluate": "c2b_ray.audits.evaluate.kind:KIND",
    }
)
"""The name of each kind in manifests → "module:attribute" of its `RunKind`."""


class KindedRun(Protocol):
    """The part of a run that its kind needs to know."""

    @property
    def path(self) -> str: ...

    @property
    def kind(self) -> RunKind: ...


@dataclass(frozen=True)
class RunKind:
    """A kind of run. References of the form "module:function" are imported when they are called.

    `name`: in manifests. `command`: the command that makes such a run, such as "c2b audit". `tables`: the schema of
    each table. `in_parts`: tables that are directories of Parquet parts. `needed`: tables that every finished run has.
    `run`: the class of its runs. `manifest`: the class of its manifests. `report`: writes report.html, (Run) → its
    path. `summary`: for terminals, (Run) → `report.summary.Summary`. `exports`: by format, (Run, classifier or
    None) → bytes. `gate`: (Run, gates, classifier or None, allow_unchecked) → checks. `compare`: (Run A, Run B,
    classifier of A, classifier of B) → a comparison. Empty where a kind has none.
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
        """Returns the run at `path`, of the kind's class. It need not exist yet."""
        return resolve_name(self.run)(path, self)

    def write_report(self, run: KindedRun) -> str:
        """Writes the run's report again; returns its path."""
        return str(resolve_name(self.report)(run))

    def summarise(self, run: KindedRun) -> Any:
        return resolve_name(self.summary)(run)

    def headline(self, run: KindedRun) -> dict[str, Any]:
        """Returns a finished run's `headline` as its manifest has it."""
        shown = self.summarise(run)
        doubt = "in doubt, as its report says: " if shown.first else ""
        return {"text": f"{doubt}{shown.headline}", "findings": dict(shown.findings)}

    def export(self, run: KindedRun, form: str, classifier: str | None) -> bytes:
        """Exports a run. Raises ConfigError if the kind has no such format."""
        if form not in self.exports:
            raise ConfigError(
                "--format", f"{form!r} is not a format of {self.name} runs; {nearest(form, self.exports)}"
            )
        data: bytes = resolve_name(self.exports[form])(run, classifier)
        return data

    def check(self, run: KindedRun, gates: Any, classifier: str | None, allow_unchecked: bool) -> Any:
        """Checks gates on a run. Raises ConfigError if the kind has none."""
        if not self.gate:
            raise ConfigError("RUN", f"{run.path} is a run of {self.command}, which has no gates")
        return resolve_name(self.gate)(run, gates, classifier, allow_unchecked)

    def comparison(self, a: KindedRun, b: KindedRun, classifier_a: str | None, classifier_b: str | None) -> Any:
        """Compares two runs. Raises ConfigError if such runs cannot be compared, or their kinds differ."""
        if not self.compare:
            raise ConfigError("A", f"{a.path} is a run of {self.command}, and such runs cannot be compared")
        if b.kind.name != self.name:
            raise ConfigError(
                "B", f"{b.path} is a run of {b.kind.command}, {a.path} one of {self.command}: name two of one kind"
            )
        return resolve_name(self.compare)(a, b, classifier_a, classifier_b)


def kind_named(name: str) -> RunKind:
    """Returns the kind of this name. Raises KeyError if this release does not know it."""
    kind: RunKind = resolve_name(KINDS[name])
    return kind
