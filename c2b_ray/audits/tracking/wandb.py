"""Weights & Biases: a run of a project.

`wandb:PROJECT` or `wandb:ENTITY/PROJECT`. WANDB_MODE=offline writes into ./wandb, for `wandb sync` to send later.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import wandb
from wandb.errors import Error as WandbError

from c2b_ray.audits.tracking.record import TABLE, Record
from c2b_ray.errors import ConfigError, ServiceError
from c2b_ray.text import without_credentials

MOST_ROWS = 10_000
"""Rows of the table that the page of a run shows; the files hold all."""


def connect(name: str) -> WandbTracker:
    """Returns the tracker. Raises ConfigError for a name without a project."""
    entity, _, project = name.rpartition("/")
    if not project:
        raise ConfigError("--log", f"wandb:{name} names no project; write wandb:PROJECT or wandb:ENTITY/PROJECT")
    return WandbTracker(project, entity or None)


@dataclass(frozen=True)
class WandbTracker:
    """A project. `entity`: the user or team; None: the user's default one."""

    project: str
    entity: str | None

    def log(self, record: Record) -> str:
        try:
            run = wandb.init(
                project=self.project, entity=self.entity, id=record.run_id, resume="allow", name=record.name,
                job_type=f"c2b {record.kind}", config=dict(record.settings),
                settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
            )  # fmt: skip
            run.tags = tuple(f"{name}: {value}"[:64] for name, value in record.tags.items() if name != "c2b.headline")
            run.notes = record.tags.get("c2b.headline", "")
            run.summary.update({**record.metrics, **record.tags})
            content: dict[str, object] = {} if record.table is None else {TABLE: _table(record.table)}
            if page := record.files.get("report.html"):
                content["report"] = wandb.Html(page.decode(), inject=False)
            run.log(content)
            with tempfile.TemporaryDirectory(prefix="c2b-wandb-") as folder:
                artifact = wandb.Artifact(f"c2b-{record.run_id}", "audit", metadata=dict(record.tags))
                for name, data in record.files.items():
                    (Path(folder) / name).write_bytes(data)
                    artifact.add_file(str(Path(folder) / name))
                run.log_artifact(artifact)
                folder_of_run = run.dir.removesuffix("/files")
                url = f"offline; send it with wandb sync {folder_of_run}" if run.offline else run.url
                run.finish(exit_code=0)
        except WandbError as error:
            raise ServiceError(f"W&B: {without_credentials(' '.join(str(error).split()))[:500]}") from error
        return f"W&B run {record.run_id} of {self.project}: {url}"


def _table(table: pa.Table) -> wandb.Table:
    rows = table.slice(0, MOST_ROWS)
    columns = rows.column_names
    return wandb.Table(columns=columns, data=[[_plain(row[name]) for name in columns] for row in rows.to_pylist()])


def _plain(value: object) -> object:
    """Returns lists as text: a column of W&B's tables has one type."""
    return "; ".join(map(str, value)) if isinstance(value, list) else value
