"""The report of a C2B run: scores → view model → HTML, one self-contained file.

    ranking    scores as cells and groups, worst first
    findings   groups as sentences, with the images that are shown
    view       everything above as a tree of text

It reads a run and writes its report.html; it knows nothing of models or of how the run was computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.budget import duplicates, label_sets
from c2b_ray.audits.c2b.report import headline
from c2b_ray.audits.c2b.report.answers import answers, besides
from c2b_ray.audits.c2b.report.explore import embeddings_of_index, explored
from c2b_ray.audits.c2b.report.findings import (
    Finding,
    GroupView,
    cues,
    finding,
    forest_plot,
    galleries,
    shared_caption,
    value_rows,
)
from c2b_ray.audits.c2b.report.gallery import Examples, Shown, choose, verification_shown
from c2b_ray.audits.c2b.report.headline import ClassifierSummary, summaries
from c2b_ray.audits.c2b.report.intersections import Intersections, intersections
from c2b_ray.audits.c2b.report.label_errors import LabelErrors, label_error_images, label_errors
from c2b_ray.audits.c2b.report.look_answers import (
    FollowedLooks,
    Looks,
    NamedByAttribute,
    followed_looks,
    look_answers,
    looks_view,
    named_by_attributes,
)
from c2b_ray.audits.c2b.report.method import (
    DerivedValues,
    Drop,
    Merges,
    Spending,
    drops,
    merges,
    method,
    spending,
    titled,
)
from c2b_ray.audits.c2b.report.overview import (
    Overview,
    PooledView,
    Sources,
    Versus,
    overviews,
    pooled_view,
    sources,
    taken,
    versus,
)
from c2b_ray.audits.c2b.report.perturbations import ONLY_PERTURBED, Example, Perturbations, examples_of, perturbations
from c2b_ray.audits.c2b.report.perturbations import tally as perturbed_tally
from c2b_ray.audits.c2b.report.ranking import FINDINGS, Cell, Group, Key, folded, leading, ranked, worst_first
from c2b_ray.audits.c2b.report.undetermined import (
    ClearSection,
    Problems,
    Undetermined,
    clear,
    no_clear,
    notes,
    problems,
    undetermined,
)
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.scoring.metric import LabelScores, scores_of_labels
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.explore import Explore, reduced
from c2b_ray.report.method import Method, SetupNote, mapping, setup_notes
from c2b_ray.report.page import EXPLORE, STYLES, Answer, render
from c2b_ray.report.pictures import ThumbnailSet, all_small, keep_shown, left_in_place, read_pictures, shown, uri
from c2b_ray.report.redact import clean, names_of
from c2b_ray.steps.answers import answers_of, gives_each_label
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.storage.files import write_bytes
from c2b_ray.tables import (
    AGREEMENT,
    CALIBRATION,
    DRAWS,
    INTERSECTIONS,
    LABEL_ERRORS,
    LOOK_ALIKES,
    LOOKS,
    PERTURBATIONS,
    POOLED,
    PROPOSALS,
    SCORES,
    VERIFICATIONS,
)

# The report as a tree of frozen dataclasses that hold nothing but text: all counting, ranking and wording ends
# here.


MOST_DETAILED = 24  # groups with a plot and pictures; the others are tables
MOST_TABLES = 120  # groups that are tables; the others are counted
MOST_SENTENCES = 40


@dataclass(frozen=True)
class Tables:
    """The tables of a run; `images` without its bytes, of `verifications` no more than `image_id` and `error`."""

    rejected: pa.Table
    captions: pa.Table
    draws: pa.Table
    images: pa.Table
    predictions: pa.Table
    scores: pa.Table
    intersections: pa.Table = field(default_factory=INTERSECTIONS.empty_table)
    proposals: pa.Table = field(default_factory=PROPOSALS.empty_table)
    verifications: pa.Table = field(default_factory=VERIFICATIONS.empty_table)
    calibration: pa.Table = field(default_factory=CALIBRATION.empty_table)
    agreement: pa.Table = field(default_factory=AGREEMENT.empty_table)
    pool: pa.Table = field(default_factory=DRAWS.empty_table)
    pooled: pa.Table = field(default_factory=POOLED.empty_table)
    perturbations: pa.Table = field(default_factory=PERTURBATIONS.empty_table)
    label_errors: pa.Table = field(default_factory=LABEL_ERRORS.empty_table)
    without: pa.Table = field(default_factory=SCORES.empty_table)
    """The scores without the suspected label errors."""
    looks: pa.Table = field(default_factory=LOOKS.empty_table)
    look_alikes: pa.Table = field(default_factory=LOOK_ALIKES.empty_table)
    fresh: pa.Table = field(default_factory=DRAWS.empty_table)
    """The draws of a second stage or a confirmation, which had no part in selecting cells unless all are tested."""

    def of_draws(self) -> Tables:
        """Returns the tables without images that no draw refers to, such as those of an earlier index."""
        drawn_ids = self.draws["image_id"].combine_chunks()
        of_images = {name: getattr(self, name) for name in ("images", "predictions", "verifications")}
        return replace(self, **{name: t.filter(pc.is_in(t["image_id"], drawn_ids)) for name, t in of_images.items()})


@dataclass(frozen=True)
class PagePlan:
    """The plan of the page: every group, those shown in detail with their pictures, and those shown as tables."""

    groups: tuple[Group, ...]
    detailed: tuple[Group, ...]
    listed: tuple[Group, ...]
    examples: Mapping[Key, Examples]
    named: tuple[NamedByAttribute, ...]
    looks: tuple[FollowedLooks, ...]

    @property
    def image_ids(self) -> list[str]:
        """Returns the image ids, those of the strongest findings first."""
        of_named = [image_id for named_by in self.named for image_id in named_by.examples.image_ids]
        of_looks = [image_id for named_by in self.looks for image_id in named_by.image_ids]
        of_cells = [image_id for examples in self.examples.values() for image_id in examples.image_ids]
        return list(dict.fromkeys([*of_named, *of_looks, *of_cells]))


@dataclass(frozen=True)
class Section:
    """One classifier's findings: some in detail, the rest as tables."""

    name: str
    detailed: tuple[GroupView, ...]
    others: tuple[GroupView, ...]
    more: int


@dataclass(frozen=True)
class Headline:
    """The head of the page."""

    title: str
    date: str
    unfinished: str
    accuracy: tuple[str, ...]
    answers: tuple[Answer, ...]
    rest: str
    tally: str
    scale: str
    paper: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Findings:
    """The findings as sentences, strongest first; `line` introduces them."""

    line: str
    cues: tuple[str, ...]
    sentences: tuple[Finding, ...]
    more: int


@dataclass(frozen=True)
class View:
    headline: Headline
    setup: tuple[SetupNote, ...]
    classifiers: tuple[str, ...]
    interval_name: str
    measured: str
    tau: str
    alpha: str
    summaries: tuple[ClassifierSummary, ...]
    overviews: tuple[Overview, ...]
    pooled: PooledView
    versus: Versus
    findings: Findings
    sections: tuple[Section, ...]
    compared: bool
    perturbations: Perturbations
    label_errors: LabelErrors
    looks: Looks
    intersections: Intersections
    explore: Explore
    shown: Shown
    sources: Sources
    spending: Spending
    undetermined: Undetermined
    clear: tuple[ClearSection, ...]
    no_clear: str
    drops: tuple[Drop, ...]
    problems: Problems
    method: Method
    merges: Merges


def plan(
    tables: Tables, tau: float = 0.05, alpha: float = 0.05, distinct: Callable[[], Distinct] | None = None
) -> PagePlan:
    """`distinct`: as for `named_by_attributes`."""
    groups = ranked(tables.scores)
    leading = worst_first(groups)
    detailed, listed = leading[:MOST_DETAILED], leading[MOST_DETAILED : MOST_DETAILED + MOST_TABLES]
    examples = choose(detailed, tables.captions, tables.draws, tables.predictions)
    cells = [cell for group in groups for cell in group.cells]
    named_answers = named_by_attributes(cells, tables.captions, tables.draws, tables.predictions, tau, alpha, distinct)
    told = {of.classifier for of in named_answers}  # a column says by name what the answers follow
    looks = tuple(of for of in followed_looks(tables.looks, tables.look_alikes) if of.classifier not in told)
    return PagePlan(tuple(groups), tuple(detailed), tuple(listed), examples, named_answers, looks)


def build_view(
    manifest: Mapping[str, Any],
    config: AuditConfig,
    tables: Tables,
    page_plan: PagePlan,
    thumbnails: Mapping[str, str],
    perturbed: Mapping[str, Example] | None = None,
    explored: Explore = Explore(),  # noqa: B008  # frozen
) -> View:
    """Builds the view. `thumbnails`: a data: URI per image id of the plan; missing ones are described in words.
    `perturbed`: an example of each perturbation."""
    tau, alpha = config.tau, config.alpha
    names, groups = names_of_classifiers(config, tables), page_plan.groups
    links = {group.key: f"group-{i}" for i, group in enumerate(groups, start=1)}
    similar_groups, derived = folded(groups), DerivedValues(manifest)
    findings = {
        group.key: item
        for group in worst_first(list(groups))
        if (
            item := finding(
                group, names[group.classifier], 1 - alpha, links[group.key], similar_groups.get(group.key, ()), derived
            )
        )
    }
    cells = [cell for group in groups for cell in group.cells]
    in_detail = {group.key: links[group.key] for group in (*page_plan.detailed, *page_plan.listed)}
    answers_taken = taken(tables.captions, tables.draws, tables.predictions, {group.classifier for group in groups})
    thumbnail_set, other_tables = (
        _shelf(tables.images, page_plan, thumbnails),
        (tables.pooled, tables.intersections, tables.perturbations),
    )
    looks = look_answers(page_plan.looks, names, thumbnails, 1 - alpha)
    answered = answers(
        groups,
        page_plan.named,
        other_tables,
        names,
        page_plan.examples,
        thumbnail_set,
        links,
        (tau, alpha),
        derived,
        looks,
    )
    return View(
        headline=_headline(manifest, config, cells, tables, names, answered),
        setup=setup_notes(manifest),
        classifiers=tuple(names.values()),
        interval_name=words.percent(1 - alpha),
        measured=titled(config.metric),
        tau=words.decimal(tau),
        alpha=words.decimal(alpha),
        summaries=tuple(summaries(cells, names)),
        overviews=overviews(groups, names, answers_taken, 1 - alpha, in_detail),
        pooled=pooled_view(tables.pooled, cells, names, 1 - alpha),
        versus=versus(groups, names, in_detail),
        findings=_findings([findings[group.key] for group, _ in leading(groups)], cells, names, alpha),
        sections=tuple(_sections(page_plan, names, findings, thumbnail_set, tau, derived)),
        compared=bool(cells) or not tables.perturbations.num_rows,
        perturbations=perturbations(tables.perturbations, names, 1 - alpha, perturbed or {}),
        label_errors=label_errors(config, (tables.label_errors, tables.scores, tables.without), names, thumbnails),
        looks=looks_view(tables.looks, names),
        intersections=intersections(tables.intersections, names, 1 - alpha),
        explore=explored,
        shown=verification_shown(
            tables.verifications, tables.calibration, tables.scores, mapping(manifest.get("models")), names
        ),
        sources=sources(tables.agreement, names, tau),
        spending=spending(manifest, groups),
        undetermined=undetermined(groups, names, tau),
        clear=clear(groups, names),
        no_clear=no_clear(cells, tau),
        drops=drops(tables.rejected, tables.pool, tables.draws, tables.images, cells, manifest.get("blank_rows")),
        problems=problems(tables.rejected, tables.draws, tables.images, tables.predictions, names),
        method=method(manifest),
        merges=merges(tables.proposals),
    )


def _shelf(images: pa.Table, page_plan: PagePlan, thumbnails: Mapping[str, str]) -> ThumbnailSet:
    pictured = images.filter(pc.is_in(images["image_id"], pa.array(page_plan.image_ids, pa.string())))
    return ThumbnailSet(
        thumbnails, dict(zip(*(pictured[name].to_pylist() for name in ("image_id", "key")), strict=True))
    )


def _headline(
    manifest: Mapping[str, Any],
    config: AuditConfig,
    cells: Sequence[Cell],
    tables: Tables,
    names: Mapping[str, str],
    answered: tuple[Answer, ...],
) -> Headline:
    pooled, pairs, perturbed = (
        sum(verdict in FINDINGS for verdict in table["verdict"].to_pylist())
        for table in (tables.pooled, tables.intersections, tables.perturbations)
    )
    scale = (headline.scale(cells, tables.draws), headline.two_stages(config, cells, tables.captions, tables.fresh))
    tally = headline.tally(cells, pooled, pairs, perturbed)
    if not cells and tables.perturbations.num_rows:
        scale, tally = (ONLY_PERTURBED, ""), perturbed_tally(tables.perturbations.to_pylist())
    return Headline(
        title=clean(config.task),
        date=words.moment(str(manifest.get("finished") or manifest.get("created") or "")),
        unfinished=headline.unfinished(manifest),
        accuracy=headline.accuracies_in_brief(
            headline.accuracies(cells, gives_each_label(tables.predictions)),
            names,
            pc.count_distinct(tables.draws["image_id"]).as_py(),
        ),
        answers=answered,
        rest=besides(cells, config.tau) if any(cell.is_finding for cell in cells) else "",
        tally=tally,
        scale=" ".join(filter(None, scale)),
        paper=headline.paper(cells),
        notes=notes(config, cells, manifest.get("rule")),
    )


def _findings(leads: Sequence[Finding], cells: Sequence[Cell], names: Mapping[str, str], alpha: float) -> Findings:
    """Returns the findings section. `leads`: the leading finding of each group."""
    return Findings(
        line=headline.findings_line(cells, len(leads)),
        cues=cues(cells, names, 1 - alpha),
        sentences=tuple(leads[:MOST_SENTENCES]),
        more=max(len(leads) - MOST_SENTENCES, 0),
    )


def names_of_classifiers(config: AuditConfig, tables: Tables) -> dict[str, str]:
    specs = list(config.classifiers)
    for table in (tables.scores, tables.predictions, tables.perturbations):
        specs += pc.unique(table["classifier"]).to_pylist()
    return names_of(specs)


def _sections(
    page_plan: PagePlan,
    names: Mapping[str, str],
    findings: Mapping[Key, Finding],
    thumbnail_set: ThumbnailSet,
    tau: float,
    derived: DerivedValues,
) -> Iterable[Section]:
    listed = {group.key for group in page_plan.listed}
    for classifier in dict.fromkeys(group.classifier for group in page_plan.groups):
        detailed: list[GroupView] = []
        brief: list[GroupView] = []
        left_out = 0
        for group in page_plan.groups:
            lead = group.lead
            if group.classifier != classifier or lead is None:
                continue
            in_detail = group.key in page_plan.examples
            if not in_detail and group.key not in listed:
                left_out += 1
                continue
            link = findings[group.key].link
            view = GroupView(
                link=link,
                target_class=group.target_class,
                attribute=group.attribute,
                finding=findings[group.key],
                rows=value_rows(group, derived),
                forest=forest_plot(group, tau, link) if in_detail else "",
                shared_caption=shared_caption(page_plan.examples[group.key]) if in_detail else "",
                galleries=galleries(
                    page_plan.examples[group.key],
                    (lead.n - lead.correct, lead.correct),
                    lead.verdict,
                    thumbnail_set,
                    names[classifier],
                )
                if in_detail
                else (),
            )
            (detailed if in_detail else brief).append(view)
        yield Section(names[classifier], tuple(detailed), tuple(brief), left_out)


MOST_CHARACTERS = 1_400_000
"""Of the findings' pictures in their full size, so that a page stays below 5 MB; the rest of them are smaller."""


def write_report(run: C2BRun) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path.

    Only shown images are decoded, and those whose bytes the run does not hold are kept in it, as small as they are
    shown. Raises StorageError where the file system refuses.
    """
    tables = Tables(
        rejected=run.rejected,
        captions=run.captions,
        draws=run.draws,
        images=run.read("images", ["image_id", "key", "error"]),
        predictions=run.predictions,
        scores=run.scores,
        intersections=run.intersections,
        proposals=run.proposals,
        verifications=run.read("verifications", ["image_id", "error"]),
        calibration=run.calibration,
        agreement=run.agreement,
        pool=run.read("pool"),
        pooled=run.read("pooled"),
        perturbations=run.read("perturbations"),
        label_errors=run.read("label_errors"),
        without=run.read("scores_without"),
        looks=run.read("looks"),
        look_alikes=run.read("look_alikes"),
        fresh=run.read("confirmation"),
    ).of_draws()
    config = run.config
    page_plan = plan(tables, config.tau, config.alpha, partial(duplicates, run))
    image_ids = list(dict.fromkeys([*page_plan.image_ids, *label_error_images(tables.label_errors)]))
    pictures, perturbed = _pictures(run, image_ids), examples_of(run, tables.perturbations)
    view = build_view(run.manifest, config, tables, page_plan, pictures, perturbed, _explored(run, tables))
    write_bytes(run.report, render("report.html.j2", view, (*STYLES, "explore.css"), EXPLORE).encode())
    return run.report


def _pictures(run: C2BRun, image_ids: Sequence[str]) -> dict[str, str]:
    """Returns the pictures of the page by image id, and keeps those that only their source holds."""
    return {image_id: uri(jpeg) for image_id, jpeg in _kept(run, image_ids, _of_findings).items()}


def _of_findings(images: Mapping[str, bytes]) -> dict[str, bytes]:
    return all_small(images, MOST_CHARACTERS)


def _of_sample(run: C2BRun, image_ids: Sequence[str]) -> tuple[dict[str, bytes], int]:
    """Returns what `reduced` does of these images."""
    kept = _kept(run, list(dict.fromkeys(image_ids)), lambda new: reduced(list(new), new)[0])
    return reduced(image_ids, kept, thumbnails=True)


def _kept(
    run: C2BRun, image_ids: Sequence[str], reduce: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
) -> dict[str, bytes]:
    """Returns JPEGs by image id, and keeps those that only their source holds, as small as `reduce` makes them: the
    page can be made again when the source is gone."""
    stored = shown(run)
    new = reduce(read_pictures(run, [image_id for image_id in image_ids if image_id not in stored]))
    keep_shown(run, {image_id: new[image_id] for image_id in left_in_place(run, list(new))})
    all_pictures = stored | dict(new)
    return {image_id: all_pictures[image_id] for image_id in image_ids if image_id in all_pictures}


def _explored(run: C2BRun, tables: Tables) -> Explore:
    """Returns the block in which a reader explores the images, once those of the findings are kept."""
    rows = run.read("images", ["image_id", "row"])
    config = run.config
    return explored(
        config,
        tables.captions,
        tables.draws,
        tables.predictions,
        tables.images,
        names_of_classifiers(config, tables),
        partial(_of_sample, run),
        embeddings_of_index(config, rows),
        _label_scores(run, config, tables),
    )


def _label_scores(run: C2BRun, config: AuditConfig, tables: Tables) -> list[LabelScores]:
    """Returns what classifiers that give each label on its own score for it; nothing of others, and of runs that took a
    part of the images of each cell."""
    sets = label_sets(run, config.classes, duplicates(run))
    if sets is None:
        return []
    answers = {name: answers_of(run.predictions, name) for name in names_of_classifiers(config, tables)}
    return scores_of_labels(sets, answers)
