"""Perturbations of an audit's labelled images: some images of each class are answered unperturbed and perturbed.

    rows of each class → images → pictures of each → answers → effects

It composes steps and the run; `audits.c2b.perturbation.images` has the pixels and `audits.c2b.perturbation.effects`
the statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.budget import call_with_run
from c2b_ray.audits.c2b.classification import classify
from c2b_ray.audits.c2b.first_look import refuse_hopeless
from c2b_ray.audits.c2b.perturbation.effects import COLUMNS as OF_ANSWERS
from c2b_ray.audits.c2b.perturbation.effects import effects
from c2b_ray.audits.c2b.perturbation.images import Perturbing, side_for
from c2b_ray.audits.c2b.perturbation.stage import classify_pictures, picture_ids
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.engine.images import AuditedClassifier, OutputDirectories, look_and_classify, selected
from c2b_ray.steps.draw import ImageIds, Rows, image_ids, numbered
from c2b_ray.steps.duplicates import COLUMNS, Distinct
from c2b_ray.steps.labels import TARGET, ComparedColumn
from c2b_ray.storage.labelled import LabelledTable, table_opener
from c2b_ray.storage.parts import Digests, absent, digests, opened
from c2b_ray.tables import PERTURBED_IMAGES, seed_of

IMAGES, ANSWERS, EFFECTS = "perturbed_images", "perturbed_predictions", "perturbations"


def perturb(
    config: AuditConfig, run: C2BRun, models: Backend, classifiers: Sequence[AuditedClassifier], steps: Steps
) -> None:
    """Writes the tables of perturbations into the run. Raises ConfigError, as the audit does, where the answers to
    images of which no attribute is known show that every classifier is set up wrongly."""
    assert config.perturb is not None
    load = table_opener(config.images.model_dump())
    _answer_unperturbed(config, run, models, classifiers, steps, load())
    if config.check and not run.count("captions"):
        refuse_hopeless(config, run, [classifier.question for classifier in classifiers], models.runner, steps)
    perturbing = Perturbing(
        tuple(config.perturb.levels.items()), side_for(classifier.shape for classifier in classifiers), config.seed
    )
    images = selected(run.location("images"), partial(_sampled, run))
    ids = partial(picture_ids, images, perturbing, [classifier.question for classifier in classifiers])
    if not run.has(ANSWERS) or any(absent(ids_of_part, _done(run)).any() for ids_of_part in ids()):
        run.begin_writing()
    with steps.step("perturb") as on_progress:
        out = run.location(ANSWERS)
        classify_pictures(models.runner, images, perturbing, classifiers, out, on_progress, load)
    run.update({"perturbed": {"side": perturbing.side}})
    scored = partial(_effects, config=config, perturbing=perturbing)
    run.write(EFFECTS, call_with_run(scored, run, config, models.runner))


def perturbed_rows(config: AuditConfig, table: LabelledTable) -> dict[str, Rows]:
    """Returns the rows of each class that are perturbed, in ascending order: chosen at random, whatever attributes they
    have."""
    assert config.perturb is not None
    targets = ComparedColumn.of(table.labels, TARGET)
    rows_of_class = {}
    for name in config.classes:
        rows = np.flatnonzero(targets.equal(name))
        order = np.random.default_rng(seed_of("perturb", name, config.seed)).permutation(rows)
        rows_of_class[name] = np.sort(order[: config.perturb.images]).astype(np.int32)
    return rows_of_class


def _answer_unperturbed(
    config: AuditConfig,
    run: C2BRun,
    models: Backend,
    classifiers: Sequence[AuditedClassifier],
    steps: Steps,
    table: LabelledTable,
) -> None:
    """Brings the chosen images into the run, and the answers to them as they are; notes which of them are copies."""
    rows_of_class, revision = perturbed_rows(config, table), table.revision
    rows = np.concatenate(list(rows_of_class.values()))
    ids = image_ids(rows, revision)
    if not run.has(IMAGES):
        run.write(IMAGES, _images(config, table, rows_of_class, ids))
    missing = rows[absent(ids, opened(run.location("images")).census("image_id").ids)]
    with steps.step(f"classify: {', '.join(config.specs)}") as on_progress:
        load = table_opener(config.images.model_dump())
        if len(missing):
            run.begin_writing()
            to = OutputDirectories(run.location("images"), run.location("predictions"), config.keep_images)
            look_and_classify(models.runner, (np.sort(missing), revision), load, classifiers, to, on_progress)
        classify(classifiers, run, models, on_progress, load)
    run.write(IMAGES, call_with_run(_with_repeats, run, config, models.runner))


def _images(config: AuditConfig, table: LabelledTable, rows_of_class: dict[str, Rows], ids: pa.Array) -> pa.Table:
    rows = np.concatenate(list(rows_of_class.values()))
    clusters = None if config.images.cluster is None else table.clusters(config.images.cluster).take(pa.array(rows))
    columns = {
        "image_id": ids,
        "target_class": np.repeat(list(rows_of_class), [len(of_class) for of_class in rows_of_class.values()]),
        "repeat": pa.nulls(len(rows), pa.bool_()),
        "cluster": pa.nulls(len(rows), pa.string()) if clusters is None else clusters,
    }
    return pa.table({name: columns[name] for name in PERTURBED_IMAGES.names})


def _with_repeats(run: C2BRun) -> pa.Table:
    """Returns the chosen images with which of them repeat an earlier one of their class."""
    images = run.read(IMAGES)
    ids, image = ImageIds.numbered(images["image_id"])
    _, of_class = numbered(images["target_class"])
    picture_parts = [
        part.filter(pc.is_in(part["image_id"], ids.ids.cast(pa.string()))) for part in run.each("images", COLUMNS)
    ]
    pictures = Distinct(pa.concat_tables(picture_parts), (ids, of_class)).pictures(ids)[image]
    keys = np.stack([pictures, of_class])
    _, first = np.unique(keys, axis=1, return_index=True)
    repeat = np.ones(images.num_rows, bool)
    repeat[first] = False
    index = images.schema.get_field_index("repeat")
    return images.set_column(index, images.schema.field("repeat"), pa.array(repeat))


def _sampled(run: C2BRun) -> Iterator[Digests]:
    yield digests(run.read(IMAGES, ["image_id"])["image_id"])


def _done(run: C2BRun) -> Digests:
    return opened(run.location(ANSWERS)).census("prediction_id").ids


def _effects(run: C2BRun, config: AuditConfig, perturbing: Perturbing) -> pa.Table:
    kinds = [kind for kind in perturbing.each() if kind[1]]
    answers = run.predictions_of([name for name in OF_ANSWERS if name != "classifier"], ANSWERS)
    thresholds = Thresholds(config.tau, config.alpha)
    return effects(run.read(IMAGES), answers, config.classifiers, kinds, thresholds, config.images.cluster is not None)
