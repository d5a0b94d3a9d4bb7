"""The methods of an evaluation that are audits: each runs below the evaluation's directory, or is an existing run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.audit import audit
from c2b_ray.audits.c2b.run import CLASSIFIER, C2BRun, load_c2b_run
from c2b_ray.audits.evaluate.config import EvaluateConfig
from c2b_ray.audits.evaluate.steps.detected import audit_biases
from c2b_ray.audits.evaluate.truth import GroundTruth
from c2b_ray.audits.kit.session import Session
from c2b_ray.errors import ConfigError
from c2b_ray.names import normalise
from c2b_ray.storage.manifest import read_yaml
from c2b_ray.storage.run import finished
from c2b_ray.tables import content_id

YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Method:
    """`biases`: of `tables.evaluate.BIASES`, for the evaluation's classifiers and classes."""

    name: str
    run: C2BRun
    biases: pa.Table

    @property
    def language_model(self) -> str | None:
        spec = self.run.manifest.get("models", {}).get("language_model", {}).get("spec")
        return None if spec is None else str(spec)


def method(name: str, config: EvaluateConfig, truth: GroundTruth, out: str, session: Session) -> Method:
    """Returns the method of that name; its audit runs if it has not yet."""
    source = config.methods[name]
    if isinstance(source, str) and not source.lower().endswith(YAML):
        run = load_c2b_run(finished(source))
    else:
        fields = _fields(name, source)
        run = audit(
            {
                "task": config.task,
                "classes": list(truth.classes),
                "tau": config.tau,
                "alpha": config.alpha,
                "seed": config.seed,
                **fields,
                "classifier": config.classifier,
                "right": config.right,
                "label_map": _label_map(truth),
            },
            f"{out}/methods/{folder_name(name)}",
            session.via,
            session.listener,
            session.placement,
        )
    _check_run(name, config, truth, run)
    scores = _of_classes(run.scores, truth.classes)
    is_of_config = pc.is_in(scores["classifier"], pa.array(list(config.specs)))
    return Method(name, run, audit_biases(name, scores.filter(is_of_config)))


def _of_classes(scores: pa.Table, classes: Sequence[str]) -> pa.Table:
    """Returns the scores of these classes, with the names used here: an audit may have written Bus for bus."""
    names = {normalise(name): name for name in classes}
    class_names = pa.array([names.get(normalise(name)) for name in scores["target_class"].to_pylist()], pa.string())
    column = scores.schema.get_field_index("target_class")
    return scores.set_column(column, "target_class", class_names).filter(class_names.is_valid())


def folder_name(name: str) -> str:
    """Returns a directory's name that differs for each method, whatever the methods are called."""
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:40] or 'method'}-{content_id(name)[:6]}"


def _fields(name: str, source: str | dict[str, Any]) -> dict[str, Any]:
    """Returns an audit's fields without those that the evaluation sets. Paths in a file are relative to that file."""
    if isinstance(source, dict):
        return source
    from pathlib import Path

    from c2b_ray.audits.evaluate.config import located_audit

    data = read_yaml(source)
    if not isinstance(data, dict):
        raise ConfigError(f"methods.{name}", "expected a mapping of an audit's fields", location=source)
    return located_audit(
        {field: value for field, value in data.items() if field not in ("classifier", "right", "label_map")},
        Path(source).parent,
    )


def _label_map(truth: GroundTruth) -> Any:
    return truth.run.manifest.get("config", {}).get("label_map")


def _check_run(name: str, config: EvaluateConfig, truth: GroundTruth, run: C2BRun) -> None:
    """Raises ConfigError where a run has other classifiers, whatever they are called, or fewer classes: what it could
    not detect would count as missed."""
    classifiers_of_run = set(run.scores["classifier"].to_pylist())
    models = [audit_run.manifest.get("models", {}) for audit_run in (truth.run, run)]
    for classifier in config.specs:
        if classifier not in classifiers_of_run:
            raise ConfigError(
                f"methods.{name}",
                f"{run.path} has no scores of {classifier}; it has those of {', '.join(sorted(classifiers_of_run))}",
            )
        of_truth, of_run = (
            models_of_run.get(f"{CLASSIFIER}{classifier}", {}).get("revision") for models_of_run in models
        )
        if of_truth != of_run:
            raise ConfigError(
                f"methods.{name}",
                f"{run.path} calls another model {classifier}: its weights are not those that answer the ground truth",
            )
    audited = {normalise(target) for target in run.config.classes or run.scores["target_class"].to_pylist()}
    if missing := [target for target in truth.classes if normalise(target) not in audited]:
        raise ConfigError(
            f"methods.{name}", f"{run.path} did not audit {', '.join(missing[:5])}; leave that out of `classes`"
        )
