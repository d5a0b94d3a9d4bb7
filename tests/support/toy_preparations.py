"""Preparations of toy rows for runners, steps that take what they give, and some that end their process."""

from __future__ import annotations

import os
import signal

import pyarrow as pa

SECOND = pa.schema([("id", pa.string()), ("length", pa.int64())])


def measured(batch: pa.Table) -> pa.Table:
    """The toy preparation: adds what a model would be shown, and columns of a second table."""
    ids = batch["id"].to_pylist()
    shown = pa.array([name.encode() * 3 for name in ids], pa.binary(18))
    return batch.append_column("shown", shown).append_column("length", pa.array(map(len, ids), pa.int64()))


def shown(batch: pa.Table, role: str) -> pa.Table:
    """The toy step of prepared rows."""
    by = [data[:6].decode() + role for data in batch["shown"].to_pylist()]
    return pa.table({"id": batch["id"], "by": by, "error": pa.nulls(batch.num_rows, pa.string())})


def signed(batch: pa.Table) -> pa.Table:
    return batch.append_column("pid", pa.array([os.getpid()] * batch.num_rows))


def deadly(batch: pa.Table) -> pa.Table:
    if "error" not in batch.column_names:
        batch = batch.append_column("error", pa.nulls(batch.num_rows, pa.string()))
    for row in batch.to_pylist():
        if row["error"] is None and row["id"] in ("r00017", "r00018"):
            os._exit(3)
        if row["error"] is None and row["id"] == "r00150":
            os.kill(os.getpid(), signal.SIGKILL)
    return batch


def erring(batch: pa.Table, role: str) -> pa.Table:
    return pa.table({"id": batch["id"], "by": [role] * batch.num_rows, "error": batch["error"]})
