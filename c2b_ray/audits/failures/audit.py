"""Wiles et al. (2022): which captions make an image classifier fail, and how often.

    baselines → failures → descriptions → captions │ tested against the baselines │ measured

Left of the line, captions are chosen on one set of seeds; right of it, they are tested and then measured on other
seeds. This module composes steps, models and a run directory; it knows no formulas and not where models run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from c2b_ray.audits.failures.config import FailuresConfig, read_failures_config
from c2b_ray.audits.failures.confirmation import TEST_SHARE, Confirmation, discovered, generalise
from c2b_ray.audits.failures.estimate import expected
from c2b_ray.audits.failures.labelled import find_labelled
from c2b_ray.audits.failures.preflight import checked
from c2b_ray.audits.failures.reliability import measure_trust, reach_of
from c2b_ray.audits.failures.report.page import write_report
from c2b_ray.audits.failures.run import FailuresRun, open_failures_run
from c2b_ray.audits.failures.search import discover
from c2b_ray.audits.failures.setup import note_setup, of_baselines
from c2b_ray.audits.failures.state import start, write_candidates, write_hypotheses
from c2b_ray.audits.kit.backend import AUTO, backend
from c2b_ray.audits.kit.costs import Cost
from c2b_ray.audits.kit.in_memory import HERE, held_in_memory, specs_of
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.manifest import finished
from c2b_ray.audits.kit.session import Listener, Session, Steps
from c2b_ray.audits.kit.specs import paths_read
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.storage.documents import FileOrFields
from c2b_ray.tables import content_id

if TYPE_CHECKING:
    from c2b_ray.models.memory_classifier import InMemory, Model

RUNS = "runs"


def find_failures(
    config: FileOrFields | FailuresConfig,
    out: str | Path | None = None,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: FileOrFields | PlacementConfig | None = None,
    *,
    classifier: Model | InMemory | Mapping[str, Model | InMemory] | None = None,
    labels: Sequence[str] | None = None,
    costs: Sequence[Cost] = (),
) -> FailuresRun:
    """Finds the captions that make a classifier fail, or resumes such a run, and returns it.

    `config`: the path of a failures file, a mapping of its fields, or a `FailuresConfig`. The other arguments are those
    of `c2b_ray.audit`: `out`: the run directory, by default `runs/failures-<run id>`. `via`: where the models run:
    `here`, `actors`, `serve` or `auto`. `placement`: how many processes run each stage. `classifier`, `labels`: models
    in memory. `costs`: the estimate made before the run; the manifest keeps it.

    Raises InputError for what the user can correct. After an interruption the same call resumes the run.
    """
    in_memory = held_in_memory(classifier, labels, via)  # held until the run ends
    session = Session(HERE if in_memory else via, None if placement is None else read_placement(placement), listener)
    return find(read_failures_config(config, specs_of(in_memory)), out, session, costs)


def find(config: FailuresConfig, out: str | Path | None, session: Session, costs: Sequence[Cost] = ()) -> FailuresRun:
    """Does the work of `find_failures`. `costs`: the estimate made before the run; the manifest keeps it."""
    config = checked(config, session.via)
    via = session.chosen(lambda: config.budget.draws)
    fields = config.model_dump(mode="json")
    run_id = content_id("failures", fields)
    steps = Steps(session.listener)
    with open_failures_run(out or f"{RUNS}/failures-{run_id}", run_id, fields) as run:
        if costs or "estimate" not in run.manifest:
            run.update({"estimate": expected(config, costs).model_dump(exclude_none=True)})
        with backend(via, session.placement) as models:
            walk(config, run, models, steps)
        with steps.step("report"):
            run.update(finished(via, steps, _counts(run)))
            write_report(run)
    return run


def walk(config: FailuresConfig, run: FailuresRun, models: Backend, steps: Steps) -> None:
    """Runs the whole protocol, from the baselines to the table of hypotheses."""
    models.runner.check_paths(run.path, paths_read(config))
    if config.images.labelled is not None:
        find_labelled(config, run, models, steps)
        return
    work = start(config, run, models, steps, config.seed)
    draws = config.budget.draws
    hypotheses = discover(work, int(draws * config.budget.discovery))
    note_setup(config, run, work.drawing.stage.contenders, of_baselines(work), steps)
    work.doubts.update(measure_trust(work))
    write_candidates(work)
    confirmation = Confirmation(work, hypotheses)
    left = draws - sum(work.drawing.spent.values())
    confirmation.test(int(left * TEST_SHARE))
    confirmation.test(int(confirmation.spare(draws - sum(work.drawing.spent.values())) * TEST_SHARE))
    confirmation.measure(draws - sum(work.drawing.spent.values()))
    generalise(work, confirmation.findings)
    write_hypotheses(run, pa.concat_tables([confirmation.table(), discovered(work, hypotheses)]))
    spent = {f"{stage} {part}": count for (stage, part), count in sorted(work.drawing.spent.items())}
    dropped = {} if work.describing is None else work.describing.dropped
    placements = models.runner.placements
    run.update(
        {
            "spent": spent,
            "dropped_sentences": dropped,
            "caption_search": reach_of(work, confirmation).model_dump(),
            **({"placement": placements, "stages": models.runner.stages} if placements else {}),
        }
    )


def _counts(run: FailuresRun) -> dict[str, int]:
    return {name: run.read(name).num_rows for name in ("candidates", "hypotheses")}
