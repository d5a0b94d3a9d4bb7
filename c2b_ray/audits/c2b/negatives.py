"""The calibration's images of other classes that look like an index's: verified once; asked for where there are few."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from c2b_ray.audits.c2b.budget import call_with_run, false_accepts_of
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.sampling.selection import NEAREST
from c2b_ray.audits.c2b.verification.calibration_stage import compare_negatives, negative_checker_of
from c2b_ray.audits.c2b.verification.false_accepts import FalseAccepts, too_few_negatives
from c2b_ray.audits.c2b.verification.negatives import CaptionReach, to_compare
from c2b_ray.audits.c2b.verifying import Verifier, calibration_table
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import of_revision
from c2b_ray.engine.stage import Runner
from c2b_ray.steps.cells import images_of_cells
from c2b_ray.steps.intersect import ATTRIBUTE, of_kind
from c2b_ray.tables import content_id


def look_at_negatives(
    config: AuditConfig, run: C2BRun, models: Backend, steps: Steps, verifier: Verifier, nearest: pa.Table
) -> None:
    """Writes what the verifier says of the calibration's images of other classes that are near to the captions.

    `nearest`: of `schemas.DRAWS`, the pool of each caption. Does nothing without a calibration table, or where images
    are drawn without looking which of them the verifier accepts.
    """
    about = config.verification
    if about is None or about.calibration is None or config.images.selection == NEAREST or run.has("negatives"):
        return
    with steps.step("look at similar images of the calibration") as on_progress:
        opened = partial(calibration_table, about.calibration)
        table, index = opened(), models.describe("index", str(config.images.index))
        encoder = models.describe("encoder", index.encoder)
        asked, reach = verifier.questions, CaptionReach.of(of_kind(run.captions, ATTRIBUTE), nearest)
        made_by = content_id(index.revision, encoder.revision, asked.verifier, asked.revision, repr(asked))
        images = to_compare(table.labels, table.revision, made_by, reach, config.seed)
        encode = partial(of_revision, models.encoder(index.encoder), encoder.revision, index.encoder)
        checker = partial(negative_checker_of, verifier.captioner, encode, opened, reach)
        out = run.location("negative_answers")
        run.write("negatives", compare_negatives(models.runner, images, checker, asked, out, on_progress))


def warn_of_few_negatives(config: AuditConfig, run: C2BRun, runner: Runner, steps: Steps) -> None:
    """Says by class which images the calibration lacks to tell how many false accepts the cells hold; the run's
    manifest keeps the warnings."""
    said = call_with_run(partial(_warnings, config=config), run, config, runner)
    for warning in said:
        steps.warn(warning)
    known = run.manifest.get("warnings", [])
    if new := [warning for warning in said if warning not in known]:
        run.update({"warnings": [*known, *new]})


def _warnings(run: C2BRun, config: AuditConfig) -> list[str]:
    predicted: FalseAccepts | None = false_accepts_of(run)
    if predicted is None:
        return []
    groups = images_of_cells(run.captions, run.draws).groups
    return too_few_negatives(config.classes, [(group.target_class, predicted.of(group)) for group in groups])
