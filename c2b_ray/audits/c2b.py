"""Classifier-to-Bias (CVPR 2025): which attributes of an image make the classifier better or worse at a class?

    task → proposals → captions → images → predictions → scores → report

It composes steps, models and a run directory, and knows neither formulas nor where a model runs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from c2b_ray.audits.backend import Backend, backend
from c2b_ray.audits.events import Listener, Steps
from c2b_ray.audits.manifest import counts, versions
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.errors import SourceError
from c2b_ray.pipelines import images as pipeline
from c2b_ray.report import write_report
from c2b_ray.roles import TextImageEncoder
from c2b_ray.schemas import content_id
from c2b_ray.steps.caption import caption
from c2b_ray.steps.caption_pairs import caption_pairs
from c2b_ray.steps.draw import ImageSource, labelled, labelled_pairs, retrieve, together
from c2b_ray.steps.intersect import pairs, score_pairs
from c2b_ray.steps.predict import question
from c2b_ray.steps.propose import propose
from c2b_ray.steps.score import score
from c2b_ray.store.labelled import LabelledTable
from c2b_ray.store.run import CLASSIFIER, Run, open_run

RUNS = "runs"


def audit(
    config: str | Path | dict[str, Any] | AuditConfig,
    out: str | Path | None = None,
    via: str = "actors",
    listener: Listener | None = None,
) -> Run:
    """Runs an audit, or what is left of it, and returns its run.

    `config`: an audit file's path, a mapping of its fields, or an `AuditConfig`. `out`: the run directory, by default
    `runs/c2b-<run id>`. `via`: where the models run, `actors` (Ray Data's own, and this process) or `serve` (behind
    Ray Serve). Raises InputError for what the user can mend; interrupted, it leaves a run that the same call resumes.
    """
    asked = read_audit(config)
    fields = asked.model_dump(mode="json")
    run_id = content_id("c2b", fields)
    steps = Steps(listener)
    with open_run(out or f"{RUNS}/c2b-{run_id}", run_id, fields) as run:
        with backend(via) as models:
            if asked.images.source == "labelled":
                wanted, source = _labelled_images(asked, run, steps)
            else:
                wanted, source = _retrieved_images(asked, run, models, steps)
            with steps.step("fetch images") as on_progress:
                pipeline.collect(wanted, source, run.location("images"), on_progress)
            for spec in asked.classifiers:
                _classify(spec, asked, run, models, steps)
        with steps.step("score"):
            run.write(
                "scores", score(run.captions, run.draws, run.predictions, asked.classifiers, asked.tau, asked.alpha)
            )
            if asked.intersections:
                tables = (run.proposals, run.captions, run.draws, run.predictions)
                run.write("intersections", score_pairs(tables, asked.classifiers, asked.tau, asked.alpha))
        with steps.step("report"):
            done = {"status": "finished", "finished": datetime.now(UTC).isoformat(timespec="seconds"), "via": via}
            run.update({**done, "seconds": steps.seconds, "counts": counts(run), "versions": versions()})
            write_report(run)
    return run


def _labelled_images(asked: AuditConfig, run: Run, steps: Steps) -> tuple[pa.Table, Callable[[], ImageSource]]:
    path = str(asked.images.table)
    with steps.step("read labels"):
        table = LabelledTable(path)
        most = asked.images_per_caption if "images_per_caption" in asked.model_fields_set else None
        limit = (most, asked.seed)
        proposals, captions, draws, wanted = labelled(
            table.labels, table.revision, asked.classes, asked.attributes, limit
        )
        chosen = pairs(proposals, asked.intersections)
        more_captions, more_draws, more = labelled_pairs(table.labels, table.revision, chosen, limit)
        wanted = together(wanted, more, table.revision)
        run.write("proposals", proposals)
        run.write("captions", pa.concat_tables([captions, more_captions]))
        run.write("draws", pa.concat_tables([draws, more_draws]))
        run.update({"models": {"table": {"spec": path, "revision": table.revision}}})
    return wanted, partial(LabelledTable, path)


def _retrieved_images(
    asked: AuditConfig, run: Run, models: Backend, steps: Steps
) -> tuple[pa.Table, Callable[[], ImageSource]]:
    path = str(asked.images.index)
    with steps.step("open the index"):
        index = models.index(path)()
        encoder = models.encoder(index.encoder)()
    _write_hypotheses(asked, run, models, steps, encoder)
    with steps.step("retrieve"):
        draws, wanted = retrieve(run.captions, encoder, index, asked.images_per_caption)
        run.write("draws", draws)
        run.update(
            {
                "models": {
                    "language_model": {"spec": asked.language_model},
                    "encoder": {"spec": index.encoder, "revision": encoder.revision},
                    "index": {"spec": path, "revision": index.revision},
                }
            }
        )
    return wanted, models.index(path)


def _write_hypotheses(
    asked: AuditConfig, run: Run, models: Backend, steps: Steps, encoder: TextImageEncoder | None = None
) -> None:
    """Proposals and captions, once for the run's life: a model asked again might answer differently."""
    if run.has("captions"):
        return
    with steps.step("propose"):
        language_model = models.language_model(asked.language_model) if asked.language_model else None
        proposals, rejected = propose(asked.task, asked.classes, language_model, asked.attributes, asked.seed, encoder)
        run.write("rejected", rejected)
        if proposals.num_rows == 0:
            raise SourceError(
                f"{run.path}: no hypothesis is left to test; rejected.parquet holds what {asked.language_model} "
                "answered. Name `attributes`, or another language_model"
            )
        run.write("proposals", proposals)
        chosen = pairs(proposals, asked.intersections)
    with steps.step("caption"):
        captions, more = caption(asked.task, proposals, language_model, asked.captions_per_cell, asked.seed)
        of_pairs, most = caption_pairs(chosen, captions, language_model, asked.seed)
        run.write("rejected", pa.concat_tables([rejected, more, most]))
        run.write("captions", pa.concat_tables([captions, of_pairs]))


def _classify(spec: str, asked: AuditConfig, run: Run, models: Backend, steps: Steps) -> None:
    with steps.step(f"classify: {spec}") as on_progress:
        factory = models.classifier(spec)
        label_map = asked.label_map if isinstance(asked.label_map, dict) else None
        asking = question(spec, factory(), asked.classes, label_map)
        run.update({"models": {f"{CLASSIFIER}{spec}": {"spec": spec, "revision": asking.revision}}})
        pipeline.classify(run.location("images"), factory, asking, run.location("predictions"), on_progress)
