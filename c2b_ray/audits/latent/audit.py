"""Li & Xu (2021): which unknown direction of a generator's latent space moves the classifier's answer?

    labels → hyperplanes → problems → searches │ judged on held-out latents → directions, strips

Searches choose directions on some latents; whether a direction is a bias is decided on others. This module composes
steps, models and a run directory, and knows neither formulas nor where a search runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.kit.backend import AUTO, backend
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import HERE, held_in_memory, model_row, paths_read, specs_of, warn_of_assumptions
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Session, Steps, finished
from c2b_ray.audits.latent.inputs import attribute_hyperplanes, learn_from_references
from c2b_ray.audits.latent.problems import (
    LatentProblem,
    OmittedProblem,
    check,
    names_of,
    order_of,
    reservation,
    row_of,
    search_id,
)
from c2b_ray.audits.latent.report import write_report
from c2b_ray.audits.latent.run import LatentRun, open_latent_run
from c2b_ray.audits.latent.search import IMAGES, SEARCH, SearchTask, Specs, described, search_all
from c2b_ray.audits.latent.verdicts import with_q_values
from c2b_ray.config.latent import EvidenceConfig, LatentConfig, read_latent_config
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.models import catalog, devices
from c2b_ray.models.heads import chosen_label
from c2b_ray.roles import Description
from c2b_ray.storage.manifest import FileOrFields
from c2b_ray.tables import content_id
from c2b_ray.tables.latent import DIRECTIONS, PROBLEMS, STRIPS, ProblemRow

if TYPE_CHECKING:
    from c2b_ray.models.memory_classifier import InMemory, Model

RUNS = "runs"
FEW = 8
"""The most searches that `auto` runs in this process."""


def latent_directions(
    config: FileOrFields | LatentConfig,
    out: str | Path | None = None,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: FileOrFields | PlacementConfig | None = None,
    *,
    classifier: Model | InMemory | Mapping[str, Model | InMemory] | None = None,
    labels: Sequence[str] | None = None,
) -> LatentRun:
    """Searches a generator's latent space for directions that bias a classifier, or resumes such a run; returns the
    run.

    `config`: a file's path, a mapping of its fields, or a `LatentConfig`. `out`: the run directory, by default
    `runs/latent-<run id>`. `via`: `here`, `actors` or `auto`. `classifier`, `labels`: torch modules in memory.

    Raises InputError for errors that the user can correct; after an interruption the same call resumes the run.
    """
    in_memory = held_in_memory(classifier, labels, via)  # held until the run ends
    session = Session(HERE if in_memory else via, None if placement is None else read_placement(placement), listener)
    return find_directions(read_latent_config(config, specs_of(in_memory)), out, session)


def find_directions(config: LatentConfig, out: str | Path | None, session: Session) -> LatentRun:
    """Does the work of `latent_directions`."""
    check(config, session.via)
    searches = len(config.each()) * len(config.methods)
    via = session.chosen(lambda: 0 if searches <= FEW else None)
    fields = config.model_dump(mode="json")
    run_id = content_id("latent", fields)
    steps = Steps(session.listener)
    with backend(via, session.placement) as models:
        plan = _planned(config, models, steps)  # first, so that what cannot be searched leaves no directory
        with open_latent_run(out or f"{RUNS}/latent-{run_id}", run_id, fields) as run:
            walk(plan, run, models, steps)
            with steps.step("report"):
                run.update(finished(via, steps, _counts(run)))
                write_report(run)
    return run


@dataclass(frozen=True)
class Plan:
    """The orders by the ids of their searches, the specs of each problem, and the rows of the tables that
    record them."""

    config: LatentConfig
    orders: dict[str, SearchTask]
    rows: list[dict[str, str]]
    specs: dict[str, Specs]
    problems: list[ProblemRow]
    hyperplanes: pa.Table
    models: dict[str, Any]
    classifiers: dict[str, Description]


def walk(plan: Plan, run: LatentRun, models: Backend, steps: Steps) -> None:
    """Runs the searches of the plan and writes the table of directions."""
    models.runner.check_paths(run.path, paths_read(plan.config))
    run.write("hyperplanes", plan.hyperplanes)
    run.write("problems", pa.Table.from_pylist(plan.problems, PROBLEMS))
    run.update({"models": plan.models})
    for name, description in plan.classifiers.items():
        warn_of_assumptions(steps, name, description)
    if plan.rows:
        run.begin_writing()
        work = (plan.config, plan.orders, plan.specs)
        count_images = partial(_images_used, run)
        with (
            steps.step("search") as on_progress,
            steps.images("search", count_images, IMAGES.total) as report_images,
            IMAGES.calling(report_images),
        ):
            search_all(models.runner, plan.rows, work, run.location("searches"), on_progress)
    _write_directions(run, [row["search_id"] for row in plan.rows], plan.config.evidence)
    if placements := models.runner.placements:
        run.update({"placement": placements, "stages": models.runner.stages})


def _planned(config: LatentConfig, models: Backend, steps: Steps) -> Plan:
    """Returns every problem with the data that its search and verdict need. Raises ConfigError and SpecError for
    problems that cannot be searched."""
    with steps.step("hyperplanes"):
        generators = {
            name: catalog.describe("latent_generator", spec) or models.runner.call(partial(described, spec), SEARCH)
            for name, spec in config.generators.items()
        }
        with devices.exactly():  # as their gradients are computed
            classifiers = {name: models.describe("classifier", spec) for name, spec in config.classifiers.items()}
        latent_problems = _stated(config, classifiers, generators)
        hyperplanes = attribute_hyperplanes(config, generators)
        for latent_problem in latent_problems:
            if latent_problem.problem.target is not None:
                learn_from_references(hyperplanes, latent_problem.problem, latent_problem.specs, models)
    plan = Plan(config, {}, [], {}, [], hyperplanes.table(), _models(config, classifiers, generators), classifiers)
    for latent_problem in latent_problems:
        order = order_of(latent_problem, hyperplanes)
        if isinstance(order, OmittedProblem):
            plan.problems.append(row_of(latent_problem, [], order.reason, searched=False))
            continue
        plan.problems.append(row_of(latent_problem, sorted(order.known), reservation(latent_problem, hyperplanes)))
        plan.specs[latent_problem.name] = latent_problem.specs
        for method in config.methods:
            name = search_id(order, latent_problem, method, config)
            plan.orders[name] = order
            plan.rows.append({"search_id": name, "problem": latent_problem.name, "method": method})
    return plan


def _stated(
    config: LatentConfig, classifiers: Mapping[str, Description], generators: Mapping[str, Description]
) -> list[LatentProblem]:
    """Returns every problem with its models' revisions. Raises ConfigError and SpecError before anything is
    searched."""
    result = []
    problems = config.each()
    for name, problem in zip(names_of(problems), problems, strict=True):
        description = classifiers[str(problem.classifier)]
        used = {
            config.classifiers[name_of_classifier]: classifiers[name_of_classifier].revision
            for name_of_classifier in [str(problem.classifier), *problem.references]
        }
        used[config.generators[str(problem.generator)]] = generators[str(problem.generator)].revision
        specs = Specs(
            config.generators[str(problem.generator)],
            config.classifiers[str(problem.classifier)],
            problem.label,
            tuple(config.classifiers[name_of_classifier] for name_of_classifier in problem.references),
            used,
        )
        result.append(LatentProblem(name, problem, specs, chosen_label(description.labels, problem.label)))
    return result


def _images_used(run: LatentRun) -> int:
    """Returns the number of images that finished searches have used."""
    directions = run.read("searches", ["directions"])["directions"].combine_chunks()
    return int(pc.sum(pc.struct_field(pc.list_flatten(directions), "images_used")).as_py() or 0)


def _write_directions(run: LatentRun, ids: Sequence[str], evidence: EvidenceConfig) -> None:
    position_of = {name: number for number, name in enumerate(ids)}
    rows = [row for row in run.read("searches").to_pylist() if row["search_id"] in position_of]
    rows.sort(key=lambda row: position_of[row["search_id"]])
    directions = with_q_values([row_found for row in rows for row_found in row["directions"]], evidence)
    run.write("directions", pa.Table.from_pylist(directions, DIRECTIONS))
    run.write("strips", pa.Table.from_pylist([row_found for row in rows for row_found in row["strips"]], STRIPS))


def _models(
    config: LatentConfig, classifiers: Mapping[str, Description], generators: Mapping[str, Description]
) -> dict[str, Any]:
    return {
        "classifier": [model_row(spec, classifiers[name]) for name, spec in config.classifiers.items()],
        "generator": [model_row(spec, generators[name]) for name, spec in config.generators.items()],
    }


def _counts(run: LatentRun) -> dict[str, int]:
    directions, problems = run.directions["verdict"].to_pylist(), run.problems["status"].to_pylist()
    planes = run.hyperplanes["excluded"]
    return {
        "problems": len(problems),
        "excluded_problems": problems.count("excluded"),
        "hyperplanes": len(planes),
        "excluded_hyperplanes": len(planes) - planes.null_count,
        "directions": len(directions),
        "found": directions.count("found"),
    }
