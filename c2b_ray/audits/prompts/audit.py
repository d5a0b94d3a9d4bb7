"""BGPS (Exposing Hidden Biases in Text-to-Image Models, ICML 2026): which natural prompts expose a hidden bias.

    heads on activations → prompts of baselines and searches → judged under fresh seeds → words → parts of prompts

It composes steps, models and a run directory, and knows neither formulas nor where a model runs.
"""

from __future__ import annotations

from pathlib import Path

from c2b_ray.audits.kit.backend import AUTO, backend
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import paths_read
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Session, Steps, finished
from c2b_ray.audits.prompts.config import PromptsConfig, read_prompts_config
from c2b_ray.audits.prompts.estimate import checked, most_images
from c2b_ray.audits.prompts.heads import guides
from c2b_ray.audits.prompts.measurement import measure, modify, show_examples
from c2b_ray.audits.prompts.report import write_report
from c2b_ray.audits.prompts.run import PromptsRun, PromptsState, begin, open_prompts_run
from c2b_ray.audits.prompts.search import search_all, write_baselines
from c2b_ray.audits.prompts.words import associate
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.storage.manifest import FileOrFields
from c2b_ray.tables import content_id

RUNS = "runs"


def search_prompts(
    config: FileOrFields | PromptsConfig,
    out: str | Path | None = None,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: FileOrFields | PlacementConfig | None = None,
) -> PromptsRun:
    """Searches for prompts that expose a generator's hidden bias, or resumes such a run, and returns the run.

    `config`: a prompts file's path, a mapping of its fields, or a `PromptsConfig`. The other arguments are those of
    `c2b_ray.audit`: `out`: the run directory, by default `runs/prompts-<run id>`. `via`: where the models run: `here`,
    `actors`, `serve` or `auto`. `placement`: how many processes run each stage.

    Raises InputError for errors that the user can correct; after an interruption the same call resumes the run.
    """
    session = Session(via, None if placement is None else read_placement(placement), listener)
    return find(read_prompts_config(config), out, session)


def find(config: PromptsConfig, out: str | Path | None, session: Session) -> PromptsRun:
    """Does the work of `search_prompts`."""
    config = checked(config, session.via)
    via = session.chosen(lambda: most_images(config))
    fields = config.model_dump(mode="json")
    run_id = content_id("prompts", fields)
    steps = Steps(session.listener)
    with open_prompts_run(out or f"{RUNS}/prompts-{run_id}", run_id, fields) as run:
        with backend(via, session.placement) as models:
            work = walk(config, run, models, steps)
        with steps.step("report"):
            run.update(
                finished(via, steps, {name: run.count(name) for name in run.kind.tables if run.has(name)})
                | {"notes": work.notes}
            )
            write_report(run)
    return run


def walk(config: PromptsConfig, run: PromptsRun, models: Backend, steps: Steps) -> PromptsState:
    """Runs the whole audit, from the heads to the tables."""
    models.runner.check_paths(run.path, paths_read(config, in_driver=()))
    work = begin(config, run, models, steps)
    guided = guides(work)
    write_baselines(work)
    search_all(work, guided)
    measure(work)
    associate(work)
    modify(work)
    show_examples(work)
    return work
