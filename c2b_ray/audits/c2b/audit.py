"""Classifier-to-Bias (CVPR 2025): which attributes of an image make the classifier better or worse at a class?

Below the walk: warnings of clusters that the config does not name, and of a calibration with few negatives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.budget import (
    Allocation,
    call_with_run,
    duplicates,
    false_accepts_of,
    first_grant,
    fresh_images,
    grant_so_far,
    score_and_grant,
    targets,
    write_scores,
)
from c2b_ray.audits.c2b.classification import audited_classifiers, classify, classifying, with_classes
from c2b_ray.audits.c2b.drawing import CellDrawing, Plan, SourcePlan, from_generator, from_index
from c2b_ray.audits.c2b.estimate import check, most_images
from c2b_ray.audits.c2b.first_look import (
    FirstLook,
    must_look,
    note_setup,
    refuse_hopeless,
    some_of_each_class,
    unanswered,
)
from c2b_ray.audits.c2b.followed_looks import follow_looks
from c2b_ray.audits.c2b.from_images import are_images, drafted, place_of, written
from c2b_ray.audits.c2b.hypotheses.labelled import caption_pairs
from c2b_ray.audits.c2b.label_errors import list_label_errors
from c2b_ray.audits.c2b.labelled import from_labels
from c2b_ray.audits.c2b.perturbation.effects import perturb
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.run import C2BRun, open_c2b_run
from c2b_ray.audits.c2b.sampling.selection import NEAREST
from c2b_ray.audits.c2b.scoring.clusters import FEWEST_IMAGES, FEWEST_VALUES, answered_alike, check_clusters_of_index
from c2b_ray.audits.c2b.scoring.metric import Function, own_metric
from c2b_ray.audits.c2b.verification.calibration import (
    Verifier,
    calibration_table,
    compare_negatives,
    negative_checker_of,
    verifier_of,
    warn_of_uncalibrated,
)
from c2b_ray.audits.c2b.verification.false_accepts import (
    CaptionReach,
    FalseAccepts,
    lacks_something_else,
    to_compare,
    too_few_negatives,
)
from c2b_ray.audits.kit.backend import AUTO, backend, check_via
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import HERE, check_language_model, check_specs, held_or_named, paths_read, said_of_tables
from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.replies import KeptReplies
from c2b_ray.audits.kit.session import Session, Steps, counts, finished
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.config.placement import PlacementConfig, read_placement
from c2b_ray.engine.images import FETCH, AuditedClassifier, of_revision
from c2b_ray.engine.stage import Runner
from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.names import normalise
from c2b_ray.roles import TextEncoder
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import ATTRIBUTE, images_of_cells, of_kind, pairs
from c2b_ray.steps.draw import Ints, codes, distinct_count, image_ids
from c2b_ray.steps.labels import MOST_NUMBERS, TARGET
from c2b_ray.steps.propose import propose
from c2b_ray.steps.retrieve import check_encoder
from c2b_ray.storage import files
from c2b_ray.storage.labelled import FOLDER, LabelledTable, table_opener
from c2b_ray.storage.manifest import FileOrFields
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
    answers, probabilities) -> float`, of one class against the rest, the larger the better
    (`ClassMetric.from_function`); it is called in this process.
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
    fields = config.model_dump(mode="json", exclude={"check"})  # changes no result: a stopped run may resume without it
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
    classifiers = audited_classifiers(config, run, models, steps)
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
        follow_looks(config, run, models, steps, drawing.source)
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
    further images: for the second of two stages, or to confirm findings."""
    steps = drawing.steps
    grant: Allocation | None = grant_so_far(run, first_grant(run.captions, config))
    look: FirstLook | None = None
    if grant is not None and must_look(config, run):
        questions = [classifier.question for classifier in classifiers]
        judge = partial(refuse_hopeless, config, run, questions, models.runner, steps)
        look = FirstLook(some_of_each_class(config, run), judge, run, questions)
        if not models.runner.loads_anew:  # models stay loaded, so a stage of its own costs nothing
            drawing.draw(targets(run.captions, grant, config), only=look.some)
            _classify(config, drawing, models, classifiers, steps)
            look.finish()
            look = None
    while grant is not None:
        drawing.draw(targets(run.captions, grant, config), look=look)
        grant = _answer(config, drawing, models, classifiers, steps, grant, look)
        look = None
    if cells := call_with_run(partial(fresh_images, config=config), run, config, models.runner):
        drawing.draw_again(cells, fresh=config.screening is None or not config.screening.tests_all)
        _answer(config, drawing, models, classifiers, steps)
    warn_of_clusters(config, run, models.runner, steps)
    warn_of_few_negatives(config, run, models.runner, steps)


def _plans(
    config: AuditConfig, run: C2BRun, models: Backend, classifiers: Sequence[AuditedClassifier], steps: Steps
) -> list[Plan]:
    if config.images.sources == ("labelled",):
        return [from_labels(config, run, models, classifiers, steps)]
    encoder = None
    if config.images.index is not None:  # checked before a language model is called
        index = models.describe("index", config.images.index)
        check_encoder(models.describe("encoder", index.encoder), index)
        encoder = models.text_encoder(index.encoder)
        if config.images.cluster is not None:
            check_clusters = partial(check_clusters_of_index, models.index(config.images.index), config.images.cluster)
            models.runner.call(check_clusters, FETCH)
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
    far; None without a budget, or where nothing is to be drawn. `look`: checks the set-up a last time."""
    run = drawing.run
    _classify(config, drawing, models, classifiers, steps)
    if look is not None:
        look.finish()
    with steps.step("score"):
        if grant is None:
            write_scores(run, config, models.runner)
        else:
            grant = score_and_grant(run, grant, config, models.runner)
        note_setup(config, run, [classifier.question for classifier in classifiers], models.runner)
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
    with steps.step("propose", images_per_row=0) as report_progress:
        language_model = models.language_model(config.language_model) if config.language_model else None
        kept_replies = None if language_model is None else KeptReplies(language_model, replies, report_progress)
        proposals, rejected = propose(
            config.task, config.classes, kept_replies, config.attributes, config.seed, encoder
        )
        run.write("rejected", rejected)
        if proposals.num_rows == 0:
            raise SourceError(
                f"{run.path}: no hypothesis is left to test; rejected.parquet holds what {config.language_model} "
                "answered. Name `attributes`, or another language_model"
            )
        run.write("proposals", proposals)
        revision = None if language_model is None else language_model.revision
        run.update({"models": {"language_model": {"spec": config.language_model, "revision": revision}}})
        chosen_pairs = pairs(proposals, config.intersections)
    with steps.step("caption", images_per_row=0) as report_progress:
        kept_replies = None if language_model is None else KeptReplies(language_model, replies, report_progress)
        captions, rejected_captions = caption(
            config.task, proposals, kept_replies, config.captions_per_cell, config.seed, config.templates
        )
        of_pairs, rejected_pairs = caption_pairs(chosen_pairs, captions, kept_replies, config.seed)
        run.write("rejected", pa.concat_tables([rejected, rejected_captions, rejected_pairs]))
        run.write("captions", pa.concat_tables([captions, of_pairs]))
        if files.entries(replies):
            files.remove_directory(replies)


# Warns, once the images of a labelled table are answered, if they come in clusters that the config does not name: it
# reads the run and the table, and `audits.c2b.scoring.clusters` decides.


def warn_of_clusters(config: AuditConfig, run: C2BRun, runner: Runner, steps: Steps) -> None:
    """Warns of columns, and of folders, by which images are answered alike; the run's manifest keeps the warnings."""
    if config.images.sources != ("labelled",) or config.images.cluster is not None:
        return
    messages = call_with_run(partial(_warnings, config=config), run, config, runner)
    for warning in messages:
        steps.warn(warning)
    if messages:
        run.update({"warnings": [*run.manifest.get("warnings", []), *messages]})


def _warnings(run: C2BRun, config: AuditConfig) -> list[str]:
    table = table_opener(config.images.model_dump())()
    captions = _annotated(
        run.captions, [attribute_record["attribute"] for attribute_record in run.manifest.get("derived", [])]
    )
    compared = {normalise(name): name for name in captions["attribute"].unique().to_pylist()}
    of_rows = {
        name: numbers
        for name, numbers in _numbers(table).items()
        # Nobody said whether a column of many values is compared for its own sake, or is one of scenes.
        if normalise(name) not in compared or (not config.attributes and int(numbers.max(initial=-1)) >= MOST_NUMBERS)
    }
    attribute_of = {name: compared[normalise(name)] for name in of_rows if normalise(name) in compared}
    if not of_rows:
        return []
    cells = images_of_cells(captions, run.draws)
    revision = run.manifest["models"]["table"]["revision"]
    image = cells.ids.numbers(image_ids(np.arange(len(table)), revision))  # of each row, -1 where it was not drawn
    columns = {name: np.full(len(cells.ids), -1, np.int64) for name in of_rows}
    for name, numbers in of_rows.items():
        columns[name][image[image >= 0]] = numbers[image >= 0]
    predictions = run.predictions
    answers = {name: answers_of(predictions, name).to(cells) for name in config.classifiers}
    pictures = duplicates(run).pictures(cells.ids)
    return [str(column) for column in answered_alike(answers, pictures, columns, attribute_of)]


def _annotated(captions: pa.Table, derived: Sequence[str]) -> pa.Table:
    """Returns the captions with all derived attributes as one, of one value: with ten measured properties hardly two
    images have the same values, and nothing could be compared."""
    of_derived = pc.is_in(captions["attribute"], pa.array(derived, pa.string()))
    for name in ("attribute", "bias_class"):
        column = pc.if_else(of_derived, "every image", captions[name])
        captions = captions.set_column(captions.column_names.index(name), name, column)
    return captions


def _numbers(table: LabelledTable) -> dict[str, Ints]:
    """Returns the number of each row's value, -1 for none, in every column that may tell clusters, folders included.
    Of columns that tell the same, the first."""
    names = [name for name in table.labels.column_names if name != TARGET]
    numbers: dict[str, Ints] = {}
    for name in dict.fromkeys([*names, FOLDER]):
        try:
            column = table.clusters(name)
        except ConfigError:  # its images have no paths
            continue
        values = column.unique().drop_null()
        if FEWEST_VALUES <= len(values) <= len(table) / FEWEST_IMAGES:
            of_column = codes(column, values.cast(pa.large_string()))
            if not any(_same(of_column, other) for other in numbers.values()):
                numbers[name] = of_column
    return numbers


def _same(first: Ints, second: Ints) -> bool:
    pairs = distinct_count((first + 1) * (int(second.max()) + 2) + second + 1)
    return pairs == distinct_count(first) == distinct_count(second)


# The calibration's images of other classes that look like an index's: verified once; asked for where there are few.


def look_at_negatives(
    config: AuditConfig, run: C2BRun, models: Backend, steps: Steps, verifier: Verifier, nearest: pa.Table
) -> None:
    """Writes what the verifier says of the calibration's images of other classes that are near to the captions.

    `nearest`: of `tables.DRAWS`, the pool of each caption. Does nothing without a calibration table, or where images
    are drawn without looking which of them the verifier accepts.
    """
    section = config.verification
    if section is None or section.calibration is None or config.images.selection == NEAREST or run.has("negatives"):
        return
    with steps.step("look at similar images of the calibration") as on_progress:
        open_table = partial(calibration_table, section.calibration)
        table, index = open_table(), models.describe("index", str(config.images.index))
        encoder = models.describe("encoder", index.encoder)
        questions, reach = verifier.questions, CaptionReach.of(of_kind(run.captions, ATTRIBUTE), nearest)
        made_by = content_id(index.revision, encoder.revision, questions.verifier, questions.revision, repr(questions))
        images = to_compare(table.labels, table.revision, made_by, reach, config.seed)
        encode = partial(of_revision, models.encoder(index.encoder), encoder.revision, index.encoder)
        checker = partial(negative_checker_of, verifier.captioner, encode, open_table, reach)
        out = run.location("negative_answers")
        run.write("negatives", compare_negatives(models.runner, images, checker, questions, out, on_progress))


def warn_of_few_negatives(config: AuditConfig, run: C2BRun, runner: Runner, steps: Steps) -> None:
    """Says by class which images the calibration lacks to tell how many false accepts the cells hold; the run's
    manifest keeps the warnings."""
    messages = call_with_run(partial(_warnings_of_few_negatives, config=config), run, config, runner)
    for warning in messages:
        steps.warn(warning)
    earlier = run.manifest.get("warnings", [])
    if new := [warning for warning in messages if warning not in earlier]:
        run.update({"warnings": [*earlier, *new]})


def _warnings_of_few_negatives(run: C2BRun, config: AuditConfig) -> list[str]:
    predicted: FalseAccepts | None = false_accepts_of(run)
    if predicted is None:
        return []
    groups = images_of_cells(run.captions, run.draws).groups
    of_groups = [(group.target_class, predicted.of(group)) for group in groups]
    return lacks_something_else(config.classes, of_groups) + too_few_negatives(config.classes, of_groups)
