"""Trackers, and what they get of a run: numbers, settings, one table, files, and the checks of gates.

All of it may leave the machine, so paths and credentials are removed, as from every export. It knows runs of any kind
by their summary and exports. `TRACKERS` names the trackers, which are imported when a run is logged to them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.audits.audit import audit_of
from c2b_ray.audits.gate import Check, failed, junit
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.extras import needed_by
from c2b_ray.report.redact import clean, clean_setting, cleaned, names_of
from c2b_ray.storage import files
from c2b_ray.storage.run import Run, finished, load_run
from c2b_ray.text import without_credentials

TABLE = "results"
"""What the table is called in a tracker: the rows of the run's Parquet export."""
EXPORTS = ("csv", "json", "parquet")
"""The exports that are logged; an audit of another package may have others alone."""


@dataclass(frozen=True)
class Record:
    """`run_id`, `kind`: of the run. `settings`: its config, each field as text. `metrics`: numbers by name, finite.
    `tags`: short texts. `table`: the rows of its Parquet export, None where its audit has none. `files`: name →
    content: report.html, the exports, and the checks of gates. `passed`: whether all gates hold; None where none was
    checked. `began`, `ended`: Unix time in seconds."""

    run_id: str
    kind: str
    settings: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    table: pa.Table | None
    files: Mapping[str, bytes]
    passed: bool | None
    began: float
    ended: float

    @property
    def name(self) -> str:
        return f"{self.kind} {self.run_id[:8]}"


def record(run: Run, checks: Sequence[Check] = ()) -> Record:
    """Returns the record of a finished run. Raises RunError for one that is not finished."""
    manifest = finished(run).manifest
    audit = audit_of(run)
    summary = audit.summarise(run)
    exports = {form: audit.export(run, form, None) for form in EXPORTS if form in audit.export_names}
    documents = {f"{TABLE}.{form}": data for form, data in exports.items()}
    if files.exists(run.report):
        documents["report.html"] = files.read_bytes(run.report)
    passed = None
    if checks:
        passed = not failed(checks)
        shown = [
            check.to_json() | {"classifier": clean_setting(check.classifier), "message": clean(check.message)}
            for check in checks
        ]
        documents["gates.json"] = json.dumps(shown, ensure_ascii=False, indent=2).encode()
        documents["gates.xml"] = junit("c2b gate", checks, {"run": manifest["run_id"]})
    config = cleaned(manifest.get("config", {}))
    return Record(
        run_id=str(manifest["run_id"]),
        kind=run.kind.name,
        settings={name: _text(value) for name, value in config.items() if value is not None},
        metrics=dict(_metrics(manifest, summary.to_json, summary.findings, checks)),
        tags=_tags(manifest, run.kind.name, summary.headline, passed),
        table=pq.read_table(BytesIO(exports["parquet"])) if "parquet" in exports else None,
        files=documents,
        passed=passed,
        began=_seconds(manifest.get("created")),
        ended=_seconds(manifest.get("finished")),
    )


def _metrics(
    manifest: Mapping[str, Any], shown_summary: Mapping[str, Any], findings: Mapping[str, int], checks: Sequence[Check]
) -> Iterator[tuple[str, float]]:
    """Yields `findings`, and these by classifier; numbers of the summary, such as `verdicts/against`; accuracy; counts
    and seconds of the run; and how many checks of gates failed, passed and were skipped."""
    names = names_of([*findings, *(row["classifier"] for row in shown_summary.get("accuracy") or ())])
    if findings:
        yield "findings", float(sum(findings.values()))
        for classifier, count in findings.items():
            yield f"findings/{names[classifier]}", float(count)
    for row in shown_summary.get("accuracy") or ():
        if row["images"]:
            yield f"accuracy/{names[row['classifier']]}", row["right"] / row["images"]
    groups = {**shown_summary, "counts": manifest.get("counts") or {}, "seconds": manifest.get("seconds") or {}}
    for name, value in groups.items():
        if _is_number(value):
            yield name, float(value)
        elif isinstance(value, Mapping):
            yield from (
                (f"{name}/{clean(str(key))}", float(metric_value))
                for key, metric_value in value.items()
                if _is_number(metric_value)
            )
    outcomes = Counter(check.outcome for check in checks)
    if checks:
        yield from ((f"gates/{outcome}", float(outcomes[outcome])) for outcome in ("failed", "passed", "skipped"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _tags(manifest: Mapping[str, Any], kind: str, headline: str, passed: bool | None) -> dict[str, str]:
    tags = {
        "c2b.run_id": str(manifest["run_id"]),
        "c2b.kind": kind,
        "c2b.headline": clean(headline),
        "c2b.version": str((manifest.get("versions") or {}).get("c2b_ray", "")),
    }
    if passed is not None:
        tags["c2b.gates"] = "passed" if passed else "failed"
    return {name: value for name, value in tags.items() if value}


def _text(value: Any) -> str:
    return clean_setting(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _seconds(moment: Any) -> float:
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:  # a run of an older release may not say when it ended
        return 0.0


# The trackers that runs are logged to, by the text of `--log`: `mlflow:URI|EXPERIMENT` or `wandb:ENTITY/PROJECT`.


OPTION = "--log"


class Tracker(Protocol):
    """A tracker that runs are logged to."""

    def log(self, record: Record) -> str:
        """Logs a run, or again what was logged of it before; returns where it is to be seen. Raises ServiceError where
        the tracker refuses it or does not answer."""
        ...


TRACKERS: Mapping[str, str] = MappingProxyType(
    {"mlflow": "c2b_ray.audits.tracking.mlflow:connect", "wandb": "c2b_ray.audits.tracking.wandb:connect"}
)
"""A scheme → its function, (the text behind the colon) → `Tracker`."""


def tracker(to: str) -> Tracker:
    """Returns the tracker that a text of `--log` names, connected as far as it can be.

    Raises ConfigError for a text of another form, InputError for a missing package, ServiceError where the tracker does
    not answer.
    """
    scheme, colon, name = to.partition(":")
    if scheme not in TRACKERS or not colon:
        hint = "; write mlflow:URI|EXPERIMENT or wandb:PROJECT"
        raise ConfigError(OPTION, f"{without_credentials(to)!r} is no tracker; {nearest(scheme, TRACKERS)}{hint}")
    with needed_by(f"{OPTION} {scheme}"):
        connect: Callable[[str], Tracker] = resolve_name(TRACKERS[scheme])
        return connect(name)


def log(run: str | Path | Run, to: str | Tracker, checks: Sequence[Check] = ()) -> str:
    """Logs a finished run: its settings, numbers, table, report, and the checks of gates; returns where it is to be
    seen.

    `to`: as for `tracker`. A run that was logged there before is brought up to date. Raises RunError for a run that is
    not finished, and the errors of `tracker` and `Tracker.log`.
    """
    loaded = run if isinstance(run, Run) else load_run(run)
    connected = tracker(to) if isinstance(to, str) else to
    return connected.log(record(loaded, checks))
