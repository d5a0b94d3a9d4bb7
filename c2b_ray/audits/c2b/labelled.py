"""A labelled table as the source of an audit's images: its columns are compared, its rows are the images.

It composes steps and the run; `audits.c2b.hypotheses.labelled` represents rows until they are written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.classification import classifying
from c2b_ray.audits.c2b.deriving import (
    Attributes,
    Looked,
    attributes_of,
    columns_named,
    measure,
    proposals_of,
    read_values,
)
from c2b_ray.audits.c2b.drawing import CollectRows, First, Plan, SourcePlan, Targets, first_of, told_to
from c2b_ray.audits.c2b.finding import found_attributes
from c2b_ray.audits.c2b.hypotheses.derived import FOUND_ON_A_HALF, with_origins
from c2b_ray.audits.c2b.hypotheses.labelled import RowDraws, labelled_pair_rows, labelled_rows, lacking
from c2b_ray.audits.c2b.run import C2BRun, check_unchanged
from c2b_ray.audits.c2b.sampling.selection import Draws, Selection, cells_of, shares
from c2b_ray.audits.c2b.scoring.metric import compared_values, labelled_images
from c2b_ray.audits.c2b.thresholds import Limit
from c2b_ray.audits.c2b.verification.calibration import SeenImages
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import compared_with, is_table
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config import AuditConfig
from c2b_ray.config.audit import OF_CLASS
from c2b_ray.engine.images import AuditedClassifier, OnProgress, OutputDirectories, look_and_classify
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.steps.cells import pairs
from c2b_ray.steps.draw import RowNumbers, image_ids, wanted
from c2b_ray.steps.fetch import Load, reopen
from c2b_ray.steps.labels import (
    READ_IT,
    TABLE,
    TARGET,
    ComparedColumn,
    blanks,
    chosen,
    left_out,
    may_be_clusters,
    not_compared,
)
from c2b_ray.storage.labelled import LabelledTable, table_opener
from c2b_ray.storage.parts import give_back
from c2b_ray.tables import seed_of

WARNINGS_SHOWN = 20
"""The most warnings that are shown one by one; the manifest has all."""


@dataclass(frozen=True)
class TablePlan:
    """A `Plan` of all rows of a labelled table. `draws`: of the captions; `collect` fetches their images by row.

    Rows are numbers rather than text, and none is verified: a table may have millions. `further`: rows in no cell,
    whose answers are wanted too.
    """

    draws: RowDraws
    captions: pa.Table
    collect: CollectRows
    doing: str
    source: Load | None = None
    further: RowNumbers = field(default_factory=lambda: np.zeros(0, np.int32))

    def select(self, targets: Targets, seen: SeenImages, excluded: Collection[str] = ()) -> Selection:
        assert not excluded  # no fresh images confirm what a labelled table shows (`AuditConfig`)
        first_draws = self.draws.first(shares(cells_of(self.captions), targets))
        return Selection(first_draws, first_draws, first_draws.where(seen.absent))

    def gather(self, draws: Draws, run: C2BRun, steps: Steps, first: First | None = None) -> None:
        assert isinstance(draws, RowDraws)
        rows = np.union1d(draws.distinct(), self.further)
        if first is not None:
            assert isinstance(first.draws, RowDraws)
            before = first.draws.distinct()
            rows = np.concatenate([before, rows[~np.isin(rows, before)]])
        run.begin_writing()
        with steps.step(self.doing) as on_progress:
            self.collect(rows, run.location("images"), told_to(on_progress, first))


def from_labels(
    config: AuditConfig, run: C2BRun, models: Backend, classifiers: Sequence[AuditedClassifier], steps: Steps
) -> Plan:
    """Writes proposals and captions from the columns of a labelled table into the run; returns a plan with its rows as
    images.

    All images that it gathers are to be classified, so that it has the classifiers answer at once.
    """
    load = table_opener(config.images.model_dump())
    reopen(load)
    with steps.step("read labels"):
        table = load()
        attributes, revision = attributes_of(config, table), table.revision
        each = any(one.question.head == "sigmoid" for one in classifiers)
        later = bool(attributes.to_measure) or attributes.by_models
        if not later:
            captions, draws, further = _written(config, run, models, steps, (table, load), attributes, each)
    if attributes.to_measure:
        with steps.step("measure") as on_progress:
            attributes = measure(config, attributes, run, (revision, load), models.runner, on_progress)
    if attributes.by_models:
        looked = Looked(attributes.image_classes, revision, load)
        attributes = _by_models(config, run, models, classifiers, looked, (table, attributes), steps)
    if later:
        with steps.step("cut"):
            captions, draws, further = _written(config, run, models, steps, (table, load), attributes, each)

    del table, attributes
    give_back()

    def collect(rows: RowNumbers, out: str, on_progress: OnProgress) -> object:
        to = OutputDirectories(out, run.location("predictions"), config.keep_images)
        return look_and_classify(models.runner, (rows, revision), load, classifiers, to, on_progress)

    if config.budget is None:
        return TablePlan(draws, captions, collect, classifying(config), load, further)
    images = wanted(draws.distinct(), revision)
    select = first_of(_shuffled(draws.table(), config.seed), captions)
    return SourcePlan(
        select,
        images,
        lambda images, out, listener: collect(images["row"].to_numpy(), out, listener),
        classifying(config),
        load,
    )


def _by_models(
    config: AuditConfig,
    run: C2BRun,
    models: Backend,
    classifiers: Sequence[AuditedClassifier],
    looked: Looked,
    table_attributes: tuple[LabelledTable, Attributes],
    steps: Steps,
) -> Attributes:
    """Returns the attributes with those whose values a model reads off the images, and those that are found in captions
    or embeddings."""
    table, attributes = table_attributes
    if config.images.read is not None:
        derived = read_values(config, run, models, looked, table.labels, steps)
        attributes = attributes.and_derived(derived, {})
    if config.images.words is not None or config.images.slices is not None:
        clusters = None if config.images.cluster is None else table.clusters(config.images.cluster)
        found_derived, reasons = found_attributes(config, run, models, classifiers, looked, clusters, steps)
        attributes = attributes.and_derived(found_derived, reasons)
    return replace(attributes, by_models=False)


def _written(
    config: AuditConfig,
    run: C2BRun,
    models: Backend,
    steps: Steps,
    source: tuple[LabelledTable, Load],
    attributes: Attributes,
    each: bool,
) -> tuple[pa.Table, RowDraws, RowNumbers]:
    """Writes proposals and captions, and notes what is not used; returns the captions, the rows that they draw, and
    further rows to answer. `each`: whether the classifiers give each label on its own: all images with a compared value
    are then answered, and what they show is written, unless the audit takes a part of them."""
    (table, load), labels = source, attributes.labels
    limit, revision = Limit(config.images_per_caption, config.seed), table.revision
    must_compare = config.perturb is None
    if must_compare and config.images.properties is not False:
        _check_something_compares(attributes, labels)
    proposals, captions, draws = labelled_rows(labels, revision, config.classes, attributes.named, limit, must_compare)
    proposals = with_origins(proposals, attributes.derived)
    more_captions, pair_draws = labelled_pair_rows(labels, revision, pairs(proposals, config.intersections), limit)
    draws = RowDraws({**draws.rows, **pair_draws.rows}, revision)
    captions = pa.concat_tables([captions, more_captions])
    further: RowNumbers = np.zeros(0, np.int32)
    if each and config.images_per_caption is None and config.budget is None:
        shown, further = labelled_images(labels, config.classes, compared_values(proposals))
        run.write("labelled_images", shown.add_column(0, "image_id", image_ids(further, revision)))
    check_unchanged(run, partial(wanted, np.union1d(draws.distinct(), further), revision), load, models.runner)
    run.write("proposals", proposals)
    run.write("captions", captions)
    if config.images.cluster is not None:
        rows = draws.distinct()
        of_rows = table.clusters(config.images.cluster).take(pa.array(rows))
        run.write("clusters", pa.table({"image_id": image_ids(rows, draws.revision), "cluster": of_rows}))
    blank, warnings = _remarks(config, table, attributes, proposals, each)
    _warn(steps, warnings)
    notes: dict[str, object] = {"blank_rows": blank, "left_out": table.left_out.as_dict(), "warnings": warnings}
    if others := _of_other_classes(labels, config.classes):
        notes["other_rows"] = others
    if attributes.derived:
        notes["derived"] = [attribute.record() for attribute in attributes.derived]
    run.update({"models": {"table": {"spec": str(config.images.table), "revision": revision}}, **notes})
    return captions, draws, further


def _of_other_classes(labels: pa.Table, classes: Sequence[str]) -> int:
    """Counts the rows whose class is known and not audited."""
    targets = ComparedColumn.of(labels, TARGET)
    audited = np.logical_or.reduce([targets.equal(name) for name in classes])
    return int((~audited & ~targets.missing).sum()) if targets.label_sets is None else 0


def _check_something_compares(attributes: Attributes, labels: pa.Table) -> None:
    """Raises ConfigError where all that was cut, measured and read off the images differs too little to be compared,
    and no column can be: to advise measuring them would be wrong."""
    if attributes.reasons and not chosen(labels, attributes.named, needed=False):
        name, why = next(iter(attributes.reasons.items()))
        others = f" and {len(attributes.reasons) - 1:,} more like it" if len(attributes.reasons) > 1 else ""
        raise ConfigError(
            TABLE,
            f"no column beside image and target_class can be an attribute, and nothing that was measured can: "
            f"{name} ({why}){others}; add images of each class that differ in something",
        )


def _warn(steps: Steps, warnings: Sequence[str]) -> None:
    for warning in warnings[:WARNINGS_SHOWN]:
        steps.warn(warning)
    if len(warnings) > WARNINGS_SHOWN:
        steps.warn(f"and {len(warnings) - WARNINGS_SHOWN} more")


def remarks(config: AuditConfig) -> list[str]:
    """Returns what an audit of a labelled table will not use of it, and why."""
    table = table_opener(config.images.model_dump())()
    attributes = attributes_of(config, table)
    known = [catalog.describe("classifier", spec) for spec in config.specs.values()]
    each = any(one is not None and one.head == "sigmoid" for one in known)
    return _remarks(config, table, attributes, proposals_of(config, attributes), each)[1]


def _remarks(
    config: AuditConfig, table: LabelledTable, attributes: Attributes, proposals: pa.Table, each: bool
) -> tuple[dict[str, int], list[str]]:
    """Returns the rows without a value by column, and all remarks in words. `each`: as in `_written`."""
    by_half = {attribute.attribute for attribute in attributes.derived if attribute.origin in FOUND_ON_A_HALF}
    compared = [name for name in pc.unique(proposals["attribute"]).to_pylist() if name not in by_half]
    blank = blanks(attributes.labels, config.classes, compared)
    warnings = [*_warnings(config, table, attributes, proposals), *_not_among_others(config, proposals, each)]
    if table.has_several and (none := _without_class(attributes.labels)):
        rows = "1 row has" if none == 1 else f"{none:,} rows have"
        warnings.append(
            f"{rows} no class: {'it counts' if none == 1 else 'they count'} as images that show none of them"
        )
    sentences = [*table.left_out.sentences(), *_of_predictions(config, table, attributes), *warnings]
    return blank, [*sentences, *map(_of_blank, blank.items())]


def _warnings(config: AuditConfig, table: LabelledTable, attributes: Attributes, proposals: pa.Table) -> list[str]:
    """Returns what a labelled table seems to offer but is not compared."""
    labels = attributes.labels
    possible_clusters = may_be_clusters(labels) if config.images.cluster is None else {}
    clusters = [f"{why}: write `cluster: {name}` under `images`" for name, why in possible_clusters.items()]
    derived = [f"{name} is no attribute: {why}" for name, why in attributes.reasons.items()]
    if config.language_model is not None and config.images.read is None:
        derived.append(f"{config.language_model} is not asked for attributes: {READ_IT}")
    if config.attributes:
        chosen_columns = columns_named(config, table.labels) if attributes.by_models else config.attributes
        return [*clusters, *derived, *lacking(proposals, config.classes, chosen_columns)]
    reasons = {name: why for name, why in left_out(labels).items() if name not in attributes.reasons}
    to_cut = {name: f"; `cut: {{{name}: {by}}}` under `images` compares it" for name, by in attributes.not_cut.items()}
    not_cut = [
        f"column {name} is no attribute: {why}{to_cut.get(name, '')}"
        for name, why in (reasons | table.not_labels).items()
    ]
    derived_names = {attribute.attribute for attribute in attributes.derived}
    names = [
        name for name in labels.column_names if name != TARGET and name not in reasons and name not in derived_names
    ]
    return [*clusters, *derived, *not_cut, *not_compared(labels, config.classes, names)]


def _not_among_others(config: AuditConfig, proposals: pa.Table, each: bool) -> list[str]:
    """Returns whose images a metric of all classes does not look at: those of classes with one value of an attribute,
    which are in no cell of it."""
    if config.metric in OF_CLASS or each:
        return []
    compared: dict[str, set[str]] = {}
    for name, target in zip(*(proposals[column].to_pylist() for column in ("attribute", "target_class")), strict=True):
        compared.setdefault(name, set()).add(target)
    absent = {
        name: [of_class for of_class in config.classes if of_class not in targets] for name, targets in compared.items()
    }
    return [
        f"{config.metric} of {name} looks at no image of {', '.join(classes)}, which have fewer than two values of it: "
        "that some of them are taken for another class is not counted"
        for name, classes in absent.items()
        if classes
    ]


def _without_class(labels: pa.Table) -> int:
    """Returns how many rows of a table of several classes have none of any."""
    column = ComparedColumn.of(labels, TARGET)
    if column.label_sets is None:
        return 0
    none = np.array(
        [
            form is not None and not labels_held
            for form, labels_held in zip(column.forms, column.label_sets, strict=True)
        ]
    )
    return int(none[column.numbers].sum())


def _of_predictions(config: AuditConfig, table: LabelledTable, attributes: Attributes) -> list[str]:
    """Returns what is odd about tables of predictions, on the images of the audit's classes."""
    if not any(map(is_table, config.specs.values())) or table.has_several:
        return []
    purpose = "properties are measured on" if attributes.to_measure else "models look at"
    has_to_look = attributes.to_measure or attributes.by_models
    warnings_of_images = (
        [f"{purpose} the images, which must be there, though predictions come from a table"] if has_to_look else []
    )
    targets = ComparedColumn.of(table.labels, TARGET)
    rows = np.flatnonzero(np.logical_or.reduce([targets.equal(name) for name in config.classes]))
    keys, truth = table.keys.take(pa.array(rows)).to_pylist(), table.labels[TARGET].take(pa.array(rows)).to_pylist()
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    return [*warnings_of_images, *compared_with(config.specs, keys, truth, config.classes, label_map)]


def _of_blank(column: tuple[str, int]) -> str:
    name, count = column
    rows = "1 row has" if count == 1 else f"{count:,} rows have"
    cells = "no cell" if name == TARGET else f"no cell of {name}"
    return f"{rows} no {name}, and so {'is' if count == 1 else 'are'} in {cells}"


def _shuffled(draws: pa.Table, seed: int) -> pa.Table:
    """Ranks each caption's draws in random order: a table's first rows may differ from the others."""
    ranks = draws["rank"].to_numpy().copy()
    captions = draws["caption_id"].combine_chunks().dictionary_encode()
    owners = captions.indices.to_numpy()
    ends = np.cumsum(np.bincount(owners))
    rows_of = np.split(np.argsort(owners, kind="stable"), ends[:-1])
    for caption, rows in zip(captions.dictionary.to_pylist(), rows_of, strict=False):  # one empty group without draws
        ranks[rows] = np.random.default_rng(seed_of("order", caption, seed)).permutation(len(rows))
    shuffled = draws.set_column(draws.schema.get_field_index("rank"), draws.schema.field("rank"), pa.array(ranks))
    return shuffled.take(pc.sort_indices(shuffled, [("rank", "ascending")]))
