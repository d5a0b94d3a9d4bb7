"""What a run directory needs to know of the audit that made it, and where the audits are.

Storage lies below the audits and imports none: an audit's declaration (`audits.audit.Audit`) is a `RunKind`, which is
found by name when a run is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, Protocol

import pyarrow as pa

from c2b_ray.storage.manifest import Manifest

_AUDITS = "c2b_ray.audits.audit"


class RunKind(Protocol):
    """A kind of run.

    `name`: in manifests. `command`: the command that makes such a run, such as "c2b audit". `tables`: the schema of
    each table. `in_parts`: tables that are directories of Parquet parts. `needed`: tables that every finished run has.
    `manifest`: the class of its manifests. `models`: the field of the config that names what a run is of.
    """

    @property
    def name(self) -> str: ...

    @property
    def command(self) -> str: ...

    @property
    def tables(self) -> Mapping[str, pa.Schema]: ...

    @property
    def in_parts(self) -> frozenset[str]: ...

    @property
    def needed(self) -> frozenset[str]: ...

    @property
    def manifest(self) -> type[Manifest]: ...

    @property
    def models(self) -> str: ...

    def new(self, path: str) -> Any:
        """Returns the run at `path`, of the kind's class. It need not exist yet."""
        ...

    def headline(self, run: Any) -> dict[str, Any]:
        """Returns a finished run's `headline` as its manifest has it."""
        ...


def kind_names() -> list[str]:
    """Returns the names of all kinds."""
    names: list[str] = resolve_name(f"{_AUDITS}:names")()
    return names


def kind_named(name: str) -> RunKind:
    """Returns the kind of this name. Raises ConfigError if there is none, or if its package cannot be loaded."""
    kind: RunKind = resolve_name(f"{_AUDITS}:audit_named")(name)
    return kind
