"""Decides how many images each caption gets: a fixed number, or more wherever a verdict is open, while the budget
lasts.

It reads the run's tables, decides what is drawn next, and computes the scores; `audits.c2b.sampling.settled` provides
the evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.kind import AUDIT
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.sampling.selection import captions_of, cells_of, cells_to_draw, in_two_stages, selected
from c2b_ray.audits.c2b.sampling.settled import Goal, LookEvidence, evidence_of, open_groups, settled
from c2b_ray.audits.c2b.scoring.clusters import Clusters
from c2b_ray.audits.c2b.scoring.estimates import ReadValues
from c2b_ray.audits.c2b.scoring.findings import agreement, confirmed, explained, grouped, several_found, to_confirm
from c2b_ray.audits.c2b.scoring.metric import LabelSets, Measure
from c2b_ray.audits.c2b.scoring.pairs import PairImages, score_pairs
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.false_accepts import FalseAccepts
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.config import AuditConfig
from c2b_ray.engine.stage import Runner, StageConfig
from c2b_ray.errors import ConfigError
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import (
    ATTRIBUTE,
    INTERSECTION,
    CellKey,
    GroupName,
    classes_of_labelled,
    counts_by_source,
    images_of_cells,
    of_kind,
)
from c2b_ray.steps.draw import GENERATE, RETRIEVE
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.storage import Stores, is_remote
from c2b_ray.tables import SCORES

_LOOKED = ["image_id", "caption_id"]

Allocation = Mapping[str, int]
"""Caption id → images per planned caption of its cell; the cell divides their sum among its captions."""

T = TypeVar("T")
ALL = 2**31 - 1
COUNTED_HERE = 20_000
"""The most predictions that this process scores and reports itself; for more, a task costs less than the memory."""
COUNT = StageConfig(SCORES)
FIRST_SHARE, FIRST_OF_CELL = 5, 10
"""The first look takes at most a fifth of the budget, but ten images of each cell if it can: fewer say next to
nothing."""
GROWTH = 2
"""The most by which a caption's images grow from look to look, while a cell of its attribute is open."""
LEAST_GROWTH = 1.25
"""The least: a look for every image or two would take longer than the images."""
SHARE_OF_REST, SHARE_OF_ALL = 4, 20
"""A look spends at most a fourth of what is left, or a twentieth of the budget where that is more: later looks know
better which groups are near a decision."""


def first_grant(captions: pa.Table, config: AuditConfig) -> Allocation:
    """Returns the first grant: all images that a cell may get, or with a budget as many as the first look takes.

    Cells of intersections get all of theirs at once. Raises ConfigError where the budget is too small for a first look.
    """
    most = _most(config)
    singles, pairs = (len(cells_of(of_kind(captions, kind))) * config.slots for kind in (ATTRIBUTE, INTERSECTION))
    sources = len(config.images.sources)
    first = most
    if config.budget is not None:
        available = (config.budget.images // sources - most * pairs) // max(1, singles)
        first = min(
            max(available // FIRST_SHARE, ceil(FIRST_OF_CELL / config.slots)), config.budget.first, most, available
        )
        if first < 1:
            images_needed = (singles + most * pairs) * sources
            raise ConfigError(
                "budget.images",
                f"{config.budget.images:,} are too few for a first look: one image for each of {singles} captions and "
                f"{most} for each of {pairs} of intersections, from {sources} source(s), are {images_needed} in all",
            )
    rows = zip(captions["caption_id"].to_pylist(), captions["kind"].to_pylist(), strict=True)
    return {caption: most if kind == INTERSECTION else first for caption, kind in rows}


def targets(captions: pa.Table, grant: Allocation, config: AuditConfig) -> dict[CellKey, int]:
    """Returns the number of distinct images of each cell from each source: the sum over its planned captions, including
    those left out because they repeated another."""
    return {key: grant[of_group[0]] * config.slots for key, of_group in cells_of(captions).items()}


def grant_so_far(run: C2BRun, first: Allocation) -> Allocation:
    """Returns the grant of an interrupted or finished run, from which it continues."""
    granted = run.manifest.get("budget", {}).get("granted", {})
    return {caption: granted.get(caption, images) for caption, images in first.items()}


def next_grant(run: C2BRun, grant: Allocation, config: AuditConfig) -> Allocation | None:
    """Returns the grant of the next look; None where all verdicts are settled, the budget is spent or no image is left.

    Open groups get as many images as are likely to settle one more of their cells, at most twice as many as they have:
    first those that need the fewest in all. A look spends a share of what is left. A group gets no more where a bias
    class has no image left: evidence is gathered in rounds of one image per bias class, so that cells of a group go on
    or end together. Each look is noted in the run's manifest.
    """
    if config.budget is None:
        return None
    captions, spent = run.captions, run.count("draws")
    left_open = open_groups(run.read("scores"))
    most, remaining = _most(config), config.budget.images - spent
    new, groups = dict(grant), _groups(captions)
    counts_drawn = counts_by_source(run.captions, run.draws)
    # Cells that drew fewer images than they were granted from each of their sources.
    exhausted = {
        key
        for key, images in targets(captions, grant, config).items()
        if max(counts_drawn.get(key, {}).values(), default=0) < images
    }
    look = {"images": spent, "open": len(left_open), "groups": len(groups)}
    per_grant = config.slots * len(config.images.sources)
    share = max(remaining // SHARE_OF_REST, config.budget.images // SHARE_OF_ALL)

    def cost(group: GroupName) -> float:
        return left_open[group] * len(groups[group].cells)

    for group in sorted(left_open, key=lambda group: (cost(group), grant[groups[group].captions[0]], group)):
        of_group = groups[group]
        granted = grant[of_group.captions[0]]
        if of_group.cells & exhausted or granted >= most:
            continue
        images_per_step = len(of_group.cells) * per_grant
        to_settle = max(left_open[group] / per_grant, (LEAST_GROWTH - 1) * granted)
        additional = min(ceil(min(to_settle, (GROWTH - 1) * granted)), most - granted, remaining // images_per_step)
        if new != grant:  # the first group gets some in any case
            additional = min(additional, share // images_per_step)
        if additional > 0:
            remaining, share = remaining - additional * images_per_step, share - additional * images_per_step
            new |= dict.fromkeys(of_group.captions, granted + additional)
    _note(run, look, new, config)
    return new if new != grant else None


@dataclass
class _Group:
    captions: list[str] = field(default_factory=list)
    cells: set[CellKey] = field(default_factory=set)


def _groups(captions: pa.Table) -> dict[GroupName, _Group]:
    """Returns captions and cells of every (target class, attribute), without intersections."""
    by_group: dict[GroupName, _Group] = defaultdict(_Group)
    for row in of_kind(captions, ATTRIBUTE).to_pylist():
        of_group = by_group[GroupName(row["target_class"], row["attribute"])]
        of_group.captions.append(row["caption_id"])
        of_group.cells.add((row["proposal_id"], row["bias_class"]))
    return by_group


def looks(run: C2BRun, config: AuditConfig) -> list[tuple[str, LookEvidence]]:
    """Returns each classifier's evidence so far, which stays valid however often it is looked at."""
    captions, draws, predictions, distinct = run.captions, run.draws, run.predictions, duplicates(run)
    verified, thresholds = verification(run, distinct), Thresholds(config.tau, config.alpha)
    return evidence_of(captions, draws, predictions, list(config.classifiers), thresholds, verified, distinct)


def duplicates(run: C2BRun) -> Distinct:
    """Returns which of the run's images are the same picture."""
    return Distinct(run.read("images", DISTINCT_COLUMNS), classes_of_labelled(run.captions, run.draws))


def label_sets(run: C2BRun, classes: Sequence[str], distinct: Distinct | None) -> LabelSets | None:
    """Returns what every labelled image shows; None unless the classifiers give each label on its own."""
    return LabelSets.of(run.read("labelled_images"), classes, distinct) if run.has("labelled_images") else None


def verification(run: C2BRun, distinct: Distinct | None) -> VerifiedImages | None:
    """Returns the verifier's answers about the run's images; None where nothing was verified.

    Images that were verified only for the confirmation are left out.
    """
    if not run.has("verifications"):
        return None
    rows = run.verifications
    if run.has("confirmation"):
        columns = (run.captions[name].to_pylist() for name in ("caption_id", "target_class"))
        target = dict(zip(*columns, strict=True))
        pairs_looked_at = pa.concat_tables([run.draws.select(_LOOKED), run.read("pool", _LOOKED)])
        by_group = {
            (image, target[caption]) for image, caption in zip(*pairs_looked_at.to_pydict().values(), strict=True)
        }
        pairs = rows.select(["image_id", "target_class"]).to_pydict().values()
        rows = rows.filter(pa.array([pair in by_group for pair in zip(*pairs, strict=True)], pa.bool_()))
    return VerifiedImages(rows, run.calibration, distinct)


def clusters(run: C2BRun) -> Clusters | None:
    """Returns the clusters of the run's images; None where they are taken as independent."""
    # The table first: the config of an earlier release's run may lack sections that this release reads.
    cluster = run.config.images.cluster if run.has("clusters") else None
    return None if cluster is None else Clusters(run.read("clusters"), cluster)


def read_of(run: C2BRun) -> ReadValues | None:
    """Returns the attributes whose values a model read off the run's images; None where it read none."""
    return ReadValues(run.read("questions"), run.calibration) if run.has("questions") else None


def _from_pool(verified: VerifiedImages, run: C2BRun, draws: pa.Table, looked_at: pa.Table | None) -> VerifiedImages:
    """Adds the images that were looked at in the sources of `draws`, where the run has recorded them."""
    if looked_at is None:
        return verified
    looked_at = looked_at.filter(pc.is_in(looked_at["source"], draws["source"].unique()))
    return verified.drawn_from(images_of_cells(run.captions, looked_at))


def _pool(run: C2BRun, name: str = "pool") -> pa.Table | None:
    return run.read(name) if run.has(name) else None


def _of_both_stages(first: pa.Table, further: pa.Table, captions: pa.Table) -> pa.Table:
    """Returns the rows of the first stage, and in place of those of `captions`, which drew further images, the rows of
    both stages."""
    drew = pc.is_in(first["caption_id"], captions["caption_id"].combine_chunks())
    return pa.concat_tables([first.filter(pc.invert(drew)), further])


def false_accepts_of(run: C2BRun) -> FalseAccepts | None:
    """Returns what the calibration predicts of the images that the run drew and accepted."""
    verified = verification(run, None)
    return None if verified is None else _false_accepts(verified, run, run.draws, _pool(run))


def _false_accepts(
    verified: VerifiedImages, run: C2BRun, draws: pa.Table, looked_at: pa.Table | None
) -> FalseAccepts | None:
    """Returns what the calibration predicts of the images that were accepted; None where some were not retrieved, or
    the run has not looked at such images of the calibration."""
    if not run.has("negatives") or looked_at is None or draws["source"].unique().to_pylist() != [RETRIEVE]:
        return None
    return FalseAccepts(
        verified, run.captions, looked_at.filter(pc.equal(looked_at["source"], RETRIEVE)), run.read("negatives")
    )


def score_and_grant(
    run: C2BRun, grant: Allocation, config: AuditConfig, runner: Runner | None = None
) -> Allocation | None:
    """Writes the scores of the images so far and returns the next grant (`next_grant`).

    A look after which more images may follow is scored roughly: of the expensive tests only those are made that would
    change where images go. Once no image is to be granted, everything is scored, and asked once more.
    """
    if config.budget is not None and run.count("draws") < config.budget.images:
        write_scores(run, config, runner, rough=True)
        next_allocation = next_grant(run, grant, config)
        if next_allocation is not None:
            return next_allocation
    write_scores(run, config, runner)
    return next_grant(run, grant, config)


def write_scores(run: C2BRun, config: AuditConfig, runner: Runner | None = None, rough: bool = False) -> None:
    """Writes the scores of the images so far and, where they come from two sources, whether the sources agree.

    For many images they are computed where `runner` runs, so that this process need not hold the predictions. `rough`:
    see `audits.c2b.scoring.score.scored`.
    """
    for name, table in call_with_run(partial(_scores_of, config=config, rough=rough), run, config, runner).items():
        run.write(name, table)


def call_with_run(function: Callable[[C2BRun], T], run: C2BRun, config: AuditConfig, runner: Runner | None) -> T:
    """Calls a function with a run and returns its result: in this process for few rows, otherwise where
    `runner` runs."""
    if runner is None or run.count("draws") * len(config.classifiers) <= COUNTED_HERE:
        return function(run)
    path = run.path if is_remote(run.path) else str(Path(run.path).absolute())  # workers have other directories
    return runner.call(partial(_called_there, function, path, Stores()), COUNT)


def _called_there(function: Callable[[C2BRun], T], path: str, stores: Stores) -> T:
    """`stores`: lets this process reach the run's store as the driver does."""
    return function(C2BRun(path, AUDIT))


def _scores_of(run: C2BRun, config: AuditConfig, rough: bool = False) -> dict[str, pa.Table]:
    """Returns the tables that follow from the run's predictions, by name."""
    captions, draws, predictions, distinct = run.captions, run.draws, run.predictions, duplicates(run)
    verified = verification(run, distinct)
    thresholds = Thresholds(config.tau, config.alpha)
    measure = Measure.of(config.metric, config.classes, config.seed, label_sets(run, config.classes, distinct))

    def scores(
        images: pa.Table,
        looked: pa.Table | None,
        verified_images: VerifiedImages | None = verified,
        captions: pa.Table = captions,
    ) -> tuple[pa.Table, pa.Table]:
        with_pool = verified_images and _from_pool(verified_images, run, images, looked)
        predicted = None if verified_images is None else _false_accepts(verified_images, run, images, looked)
        return scored(
            captions,
            images,
            predictions,
            config.classifiers,
            thresholds,
            with_pool,
            distinct,
            clusters(run),
            rough,
            predicted,
            measure,
            read_of(run),
        )

    pool = _pool(run)
    all_scores, pooled = scores(draws, pool)
    if config.budget is not None:
        cell_images = images_of_cells(captions, draws)
        cells = cell_images.without_copies(distinct.pictures(cell_images.ids))
        all_scores = grouped(settled(all_scores, looks(run, config), thresholds, _goal(run, config)), cells, config.tau)
    derived = {str(derived_attribute["attribute"]) for derived_attribute in run.manifest.get("derived", [])}
    # What right answers alone can tell, of images whose other attributes are known.
    if config.metric in ("accuracy", "recall") and config.images.sources == ("labelled",) and several_found(all_scores):
        cell_images = images_of_cells(captions, draws)
        cells = cell_images.without_copies(distinct.pictures(cell_images.ids))
        answers = {name: answers_of(predictions, name).to(cells) for name in config.classifiers}
        all_scores = explained(all_scores, answers, derived, config.tau, config.alpha)
    all_scores = _with_wanted(all_scores, _wanted(config))
    tables = {"scores": all_scores, "pooled": pooled}
    design, fresh_scores = config.screening, SCORES.empty_table()
    groups = _selected(all_scores, config)
    if run.has("confirmation"):
        fresh_verified = verified and VerifiedImages(run.verifications, run.calibration, distinct)
        of_fresh = captions if design is None else captions_of(captions, groups)
        images, looked = run.read("confirmation"), _pool(run, "confirmation_pool")
        if design is not None and design.tests_all:
            # All cells, so that they are one family of tests: those that were not selected are no findings in it.
            images = _of_both_stages(draws, images, of_fresh)
            looked = None if pool is None or looked is None else _of_both_stages(pool, looked, of_fresh)
            fresh_scores = scores(images, looked, fresh_verified)[0]
        else:
            fresh_scores = scores(images, looked, fresh_verified, of_fresh)[0]
        if design is None:
            tables["scores"] = confirmed(all_scores, fresh_scores)
    if design is not None:
        tables["screening"] = all_scores
        if fresh_scores.num_rows or not groups:
            per_cell = _of_second_stage(config)
            fresh_scores = _with_wanted(fresh_scores, per_cell * len(config.images.sources))
            tables["scores"] = in_two_stages(all_scores, fresh_scores, groups, design.least, per_cell, thresholds)
    if config.intersections:
        images = PairImages(draws, distinct, verified, pool)
        tables["intersections"] = score_pairs(
            run.proposals, captions, predictions, images, config.classifiers, thresholds
        )
    if len(config.images.sources) > 1:
        by_source = (draws.filter(pc.equal(draws["source"], name)) for name in (RETRIEVE, GENERATE))
        retrieved, generated = (scores(of_source, pool)[0] for of_source in by_source)
        tables["agreement"] = agreement(retrieved, generated, config.tau, config.alpha)
    return tables


def _goal(run: C2BRun, config: AuditConfig) -> Goal:
    """Returns what is left of the budget, and for what."""
    assert config.budget is not None
    remaining, most = (
        config.budget.images - run.count("draws"),
        _most(config) * config.slots * len(config.images.sources),
    )
    return Goal(lambda cells, images: min(remaining // cells, most - images), config.budget.none)


def _selected(scores: pa.Table, config: AuditConfig) -> set[GroupName]:
    """Returns the attributes that the first of two stages selects."""
    design = config.screening
    if design is None:
        return set()
    # Tested with the others, every cell that could become a finding must have drawn its images.
    return selected(scores, design.least, config.alpha) if design.tests_all else selected(scores, design.least)


def _of_second_stage(config: AuditConfig) -> int:
    """Returns the images of a cell from each source that the second of two stages tests."""
    assert config.screening is not None
    assert config.images_per_cell is not None
    return config.screening.fresh + (config.images_per_cell if config.screening.tests_all else 0)


def fresh_images(run: C2BRun, config: AuditConfig) -> dict[CellKey, int]:
    """Returns the number of images of each cell in the second of two stages, or of findings that are to be
    confirmed."""
    if config.screening is not None:
        return cells_to_draw(run.captions, _selected(run.read("screening"), config), _of_second_stage(config))
    return to_confirm(run.scores, run.captions, run.draws) if config.confirm else {}


def _wanted(config: AuditConfig) -> int | None:
    """Returns the number of distinct images that each cell wants, where captions drew them and no budget decides when
    to stop."""
    fixed = config.images_per_cell is not None and config.images.sources != ("labelled",) and config.budget is None
    return (config.images_per_cell or 0) * len(config.images.sources) if fixed else None


def _with_wanted(scores: pa.Table, images_wanted: int | None) -> pa.Table:
    column = pa.array([images_wanted] * scores.num_rows, pa.int64())
    return scores.set_column(scores.schema.get_field_index("wanted"), scores.schema.field("wanted"), column)


def _most(config: AuditConfig) -> int:
    """Returns the most images of a caption. All rows of a labelled table are taken, unless the config limits them."""
    return ALL if config.images_per_caption is None else config.images_per_caption


def _note(run: C2BRun, look: Mapping[str, int], granted: Mapping[str, int], config: AuditConfig) -> None:
    assert config.budget is not None
    spent = run.manifest.get("budget", {}).get("looks", [])
    # A resumed run repeats its earlier looks.
    spent = [entry for entry in spent if entry["images"] < look["images"]] + [dict(look)]
    run.update({"budget": {"images": config.budget.images, "looks": spent, "granted": dict(granted)}})
