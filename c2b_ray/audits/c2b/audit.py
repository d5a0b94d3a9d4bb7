"""Classifier-to-Bias (CVPR 2025): which attributes of an image make the classifier better or worse at a class?

    task → proposals → captions → images → (verification) → predictions → scores → report

It composes steps, models and a run directory, and knows neither formulas nor where a model runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from c2b_ray.audits.c2b.budget import (
    Allocation,
    call_with_run,
    first_grant,
    fresh_images,
    grant_so_far,
    score_and_grant,
    targets,
    write_scores,
)
from c2b_ray.audits.c2b.classification import classify, classifying, contestants, with_classes
from c2b_ray.audits.c2b.cluster_warnings import warn_of_clusters
from c2b_ray.audits.c2b.drawing import CellDrawing, Plan, SourcePlan, from_generator, from_index
from c2b_ray.audits.c2b.first_look import FirstLook, must_look, refuse_hopeless, some_of_each_class, unanswered
from c2b_ray.audits.c2b.from_images import are_images, drafted, place_of, written
from c2b_ray.audits.c2b.hypotheses.caption_pairs import caption_pairs
from c2b_ray.audits.c2b.label_errors import list_label_errors
from c2b_ray.audits.c2b.labelled import from_labels
from c2b_ray.audits.c2b.negatives import look_at_negatives, warn_of_few_negatives
from c2b_ray.audits.c2b.perturbing import perturb
from c2b_ray.audits.c2b.preflight import check
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.run import C2BRun, open_c2b_run
from c2b_ray.audits.c2b.scoring.clusters import check_clusters_of_index
from c2b_ray.audits.c2b.scoring.metric import Function, own_metric
from c2b_ray.audits.c2b.setup import note_setup
from c2b_ray.audits.c2b.size import most_images
from c2b_ray.audits.c2b.verifying import verifier_of, warn_of_uncalibrated
from c2b_ray.audits.kit.backend import AUTO, backend, check_via
from c2b_ray.audits.kit.events import Listener
from c2b_ray.audits.kit.in_memory import HERE, held_or_named
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.manifest import counts, finished
from c2b_ray.audits.kit.models import check_language_model
from c2b_ray.audits.kit.replies import KeptReplies
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.audits.kit.specs import check_specs, paths_read
from c2b_ray.audits.kit.tables_of_predictions import said_of_tables
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.engine.images import FETCH, AuditedClassifier
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.roles import TextEncoder
from c2b_ray.steps.caption import caption
from c2b_ray.steps.intersect import pairs
from c2b_ray.steps.propose import propose
from c2b_ray.steps.retrieve import check_encoder
from c2b_ray.storage import files
from c2b_ray.storage.documents import FileOrFields
from c2b_ray.tables import DRAWS, POOLED, SCORES, content_id

if TYPE_CHECKING:
    from c2b_ray.models.memory_classifier import InMemory, MemoryClassifier, Model

RUNS = "runs"


def audit(
    config: FileOrFields | AuditConfig,
    out: str | Path | None = None,
    via: str = AUTO,
    listener: Listener | None = None,
    placement: FileOrFields | PlacementConfig | None = None,
    *,
    classifier: str | Model | InMemory | Mapping[str, str | Model | InMemory] | None = None,
    labels: Sequence[str] | None = None,
    metric: Function | None = None,
) -> C2BRun:
    """Runs an audit, or what is left of it, and returns its run.

    `config`: an audit file's path, a mapping of its fields, or an `AuditConfig`; or a folder or table of labelled
    images, for which an audit file is written beside the run (`from_images`). `out`: the run directory, by default
    `runs/c2b-<run id>`. `via`: where the models run: `here` (in this process, without Ray), `actors` (Ray Data's
    actors, and this process) or `serve` (behind Ray Serve); `auto` is `here` where there are few images and no cluster
    can be reached, otherwise `actors`. A run may be resumed with another `via`. Raises InputError for errors that the
    user can correct; after an interruption the same call resumes the run.

    `placement`: how many processes run each stage, and what each takes, as a file's path or its fields; by default it
    follows from the cluster's resources. It does not change the run's results; with a placement, `auto` is `actors`.

    `classifier`: a model's spec, or several by name, instead of the config's; or models in memory, which answer in this
    process only: a torch module, a callable, an `InMemory`, or several by name. `labels`: the names of their outputs
    (see `InMemory`).

    `metric`: a function of one's own that cells are compared by, in place of the config's `metric`: `metric(truth,
    answers, probabilities) -> float`, of one class against the rest, the larger the better (`ClassMetric.own`); it is
    called in this process.
    """
    with own_metric(metric) as name:
        if name is not None:
            if via not in (AUTO, HERE):
                raise ConfigError("via", f"{via!r}: a metric of one's own is called in this process; leave via out")
            via = HERE
        return _audit(config, out, via, listener, placement, held_or_named(classifier, labels, via), name)


def _audit(
    config: FileOrFields | AuditConfig,
    out: str | Path | None,
    via: str,
    listener: Listener | None,
    placement: FileOrFields | PlacementConfig | None,
    classifiers: tuple[dict[str, MemoryClassifier], str | dict[str, str] | None],
    metric: str | None,
) -> C2BRun:
    """As `audit`. `classifiers`: as `held_or_named` returns them; `metric`: the name of a function that is held."""
    in_memory, specs = classifiers  # held until the audit ends
    via = HERE if in_memory else via
    if isinstance(config, str | Path) and are_images(config):
        config, specs = _file_of(config, specs, out, listener), None
    session = Session(via, None if placement is None else read_placement(placement), listener)
    config = read_audit(config, specs)
    if metric is not None:
        config = read_audit({**config.model_dump(), "metric": metric})
    config = with_classes(_checked(config, via))
    via = session.chosen(lambda: most_images(config))
    check(config, via)
    fields = config.model_dump(mode="json", exclude={"check"})  # it changes no result: a stopped run may go on without
    run_id = content_id("c2b", fields)
    steps = Steps(listener)
    warn_of_uncalibrated(config, steps)
    with open_c2b_run(out or f"{RUNS}/c2b-{run_id}", run_id, fields) as run, backend(via, session.placement) as models:
        _walk(config, run, models, steps)
        with steps.step("report"):
            run.update(finished(via, steps, counts(run)))
            call_with_run(write_report, run, config, models.runner)
    return run


def _file_of(
    images: str | Path, classifier: str | Mapping[str, str] | None, out: str | Path | None, listener: Listener | None
) -> str:
    """Writes the audit file of a folder or table of images and returns its path."""
    if classifier is None:
        raise ConfigError("classifier", f"{images} holds images, no classifier: pass classifier=, a spec or a model")
    draft, steps = drafted(images, classifier), Steps(listener)
    for text in draft.warnings:
        steps.warn(text)
    return written(draft, place_of(images, out, RUNS))


def _checked(config: AuditConfig, via: str) -> AuditConfig:
    """Checks specs and `via`, which needs no classes, and returns the config."""
    check_specs(config)
    check_via(via)
    return config


def _walk(config: AuditConfig, run: C2BRun, models: Backend, steps: Steps) -> None:
    """Walks the path from the task to the scores, and perturbs images where the config asks for it."""
    models.runner.check_paths(run.path, paths_read(config))
    classifiers = contestants(config, run, models, steps)
    plans = _plans(config, run, models, classifiers, steps)
    if run.count("captions"):
        verifier = verifier_of(config, run, models, steps)
        for plan in plans:
            if verifier is not None and isinstance(plan, SourcePlan) and plan.nearest is not None:
                look_at_negatives(config, run, models, steps, verifier, plan.nearest)
        drawing = CellDrawing(plans, run, verifier, steps)
        _compare_cells(config, run, models, classifiers, drawing)
        if config.label_errors is not None:
            list_label_errors(config, run, models, steps, drawing.source)
    else:  # labelled images without attributes, which are perturbed
        for name, schema in (("draws", DRAWS), ("scores", SCORES), ("pooled", POOLED)):
            run.write(name, schema.empty_table())
        if config.label_errors is not None:
            steps.warn("label_errors: no attribute is compared, so that no image was drawn and none is listed")
    if config.perturb is not None:
        perturb(config, run, models, classifiers, steps)
    if models.runner.placements:
        run.update({"placement": models.runner.placements, "stages": models.runner.stages})


def _compare_cells(
    config: AuditConfig, run: C2BRun, models: Backend, classifiers: Sequence[AuditedClassifier], drawing: CellDrawing
) -> None:
    """Draws images, has them answered and scores the answers, as often as a budget grants images, and once more on
    fresh images: for the second of two stages, or to confirm findings."""
    steps = drawing.steps
    grant: Allocation | None = grant_so_far(run, first_grant(run.captions, config))
    look: FirstLook | None = None
    if grant is not None and must_look(config, run):
        questions = [one.question for one in classifiers]
        judge = partial(refuse_hopeless, config, run, questions, models.runner, steps)
        look = FirstLook(some_of_each_class(config, run), judge, run, questions)
        if not models.runner.loads_anew:  # then a stage of its own costs nothing, and answers no image more
            drawing.draw(targets(run.captions, grant, config), only=look.some)
            _classify(config, drawing, models, classifiers, steps)
            look.finish()
            look = None
    while grant is not None:
        drawing.draw(targets(run.captions, grant, config), look=look)
        grant = _answer(config, drawing, models, classifiers, steps, grant, look)
        look = None
    if cells := call_with_run(partial(fresh_images, config=config), run, config, models.runner):
        drawing.draw_fresh(cells)
        _answer(config, drawing, models, classifiers, steps)
    warn_of_clusters(config, run, models.runner, steps)
    warn_of_few_negatives(config, run, models.runner, steps)


def _plans(
    config: AuditConfig, run: C2BRun, models: Backend, classifiers: Sequence[AuditedClassifier], steps: Steps
) -> list[Plan]:
    if config.images.sources == ("labelled",):
        return [from_labels(config, run, models, classifiers, steps)]
    encoder = None
    if config.images.index is not None:  # before a language model is called for nothing
        index = models.describe("index", config.images.index)
        check_encoder(models.describe("encoder", index.encoder), index)
        encoder = models.text_encoder(index.encoder)
        if config.images.cluster is not None:
            named = partial(check_clusters_of_index, models.index(config.images.index), config.images.cluster)
            models.runner.call(named, FETCH)
    _write_hypotheses(config, run, models, steps, encoder)
    plans = {"retrieve": from_index, "generate": from_generator}
    return [plans[source](config, run, models, steps) for source in config.images.sources]


def _answer(
    config: AuditConfig,
    drawing: CellDrawing,
    models: Backend,
    classifiers: Sequence[AuditedClassifier],
    steps: Steps,
    grant: Allocation | None = None,
    look: FirstLook | None = None,
) -> Allocation | None:
    """Classifies the drawn images and scores the answers. Returns what a budget grants after `grant`, the images so
    far; None without a budget, or where nothing is to be drawn. `look`: has its last chance before the scores."""
    run = drawing.run
    _classify(config, drawing, models, classifiers, steps)
    if look is not None:
        look.finish()
    with steps.step("score"):
        if grant is None:
            write_scores(run, config, models.runner)
        else:
            grant = score_and_grant(run, grant, config, models.runner)
        note_setup(config, run, [one.question for one in classifiers], models.runner)
    _refuse_unanswered(run, config, models.runner)
    return grant


def _classify(
    config: AuditConfig, drawing: CellDrawing, models: Backend, classifiers: Sequence[AuditedClassifier], steps: Steps
) -> None:
    with steps.step(classifying(config)) as on_progress:
        classify(classifiers, drawing.run, models, on_progress, drawing.source)


def _unanswered(run: C2BRun, classifiers: Sequence[str]) -> str | None:
    images, predictions = run.read("images", ["image_id", "error"]), run.predictions_of(["image_id", "error"])
    return unanswered(run.read("draws", ["image_id"]), images, predictions, classifiers)


def _refuse_unanswered(run: C2BRun, config: AuditConfig, runner: Runner) -> None:
    """Raises SourceError where hardly any image was answered. The run's tables are written before."""
    reason = call_with_run(partial(_unanswered, classifiers=list(config.classifiers)), run, config, runner)
    if reason is not None:
        keys = run.read("images", ["key"])["key"].unique().to_pylist()
        reason = "; ".join([reason, *said_of_tables(config.specs, keys)])
        run.update({"status": "failed", "failure": reason})
        raise SourceError(
            f"{run.path}: {reason}. Its tables are kept. Mend the cause, delete {run.location('images')} and "
            f"{run.location('predictions')}, where the failures are noted, and run the audit again"
        )


def _write_hypotheses(
    config: AuditConfig, run: C2BRun, models: Backend, steps: Steps, encoder: TextEncoder | None = None
) -> None:
    """Writes proposals and captions, once in a run's life: a second call of a model might answer differently.

    Until the captions are there, the language model's replies are kept, for a run that resumes.
    """
    if run.has("captions"):
        if config.language_model is not None:
            check_language_model(run, "language_model", config.language_model)
        return
    replies = run.location("replies")
    with steps.step("propose", images_per_row=0) as tell:
        language_model = models.language_model(config.language_model) if config.language_model else None
        kept = None if language_model is None else KeptReplies(language_model, replies, tell)
        proposals, rejected = propose(config.task, config.classes, kept, config.attributes, config.seed, encoder)
        run.write("rejected", rejected)
        if proposals.num_rows == 0:
            raise SourceError(
                f"{run.path}: no hypothesis is left to test; rejected.parquet holds what {config.language_model} "
                "answered. Name `attributes`, or another language_model"
            )
        run.write("proposals", proposals)
        revision = None if language_model is None else language_model.revision
        run.update({"models": {"language_model": {"spec": config.language_model, "revision": revision}}})
        chosen = pairs(proposals, config.intersections)
    with steps.step("caption", images_per_row=0) as tell:
        kept = None if language_model is None else KeptReplies(language_model, replies, tell)
        captions, more = caption(config.task, proposals, kept, config.captions_per_cell, config.seed, config.templates)
        of_pairs, most = caption_pairs(chosen, captions, kept, config.seed)
        run.write("rejected", pa.concat_tables([rejected, more, most]))
        run.write("captions", pa.concat_tables([captions, of_pairs]))
        if files.entries(replies):
            files.remove_directory(replies)
