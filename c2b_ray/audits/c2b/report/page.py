"""The report of a C2B run, one self-contained HTML file: what the page shows, in order, and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.c2b.budget import clusters, duplicates, label_sets
from c2b_ray.audits.c2b.report.answers import answers, besides
from c2b_ray.audits.c2b.report.detail import DetailedGroups, detail_section
from c2b_ray.audits.c2b.report.evidence import shown_article, sources_article, spending_article
from c2b_ray.audits.c2b.report.explore import embeddings_of_index, explored
from c2b_ray.audits.c2b.report.findings import cues, found_row
from c2b_ray.audits.c2b.report.gallery import Examples, choose
from c2b_ray.audits.c2b.report.headline import (
    accuracies,
    accuracies_in_brief,
    findings_line,
    paper,
    scale,
    summary_table,
    tally,
    two_stages,
    unfinished,
)
from c2b_ray.audits.c2b.report.intersections import intersections_section
from c2b_ray.audits.c2b.report.label_errors import label_error_images, label_errors_section
from c2b_ray.audits.c2b.report.look_answers import (
    FollowedLooks,
    NamedByAttribute,
    followed_looks,
    look_answers,
    looks_section,
    named_by_attributes,
    what_answers_follow,
)
from c2b_ray.audits.c2b.report.method import DerivedValues, method, terms, titled
from c2b_ray.audits.c2b.report.overview import found_cells, overview_article, pooled_article, taken
from c2b_ray.audits.c2b.report.perturbations import ONLY_PERTURBED, Example, examples_of, perturbations_section
from c2b_ray.audits.c2b.report.perturbations import tally as perturbed_tally
from c2b_ray.audits.c2b.report.ranking import FINDINGS, Cell, Group, Key, leading, ranked, worst_first
from c2b_ray.audits.c2b.report.undetermined import clear_section, notes, undetermined_section
from c2b_ray.audits.c2b.report.unused import drops, merged_article, unused_article
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.scoring.metric import LabelScores, scores_of_labels
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Answers,
    Article,
    Block,
    Findings,
    Items,
    Page,
    Paragraph,
    Section,
    assumed,
    made,
    setup,
    spec,
)
from c2b_ray.report.explore import Explore, explore_section, reduced
from c2b_ray.report.method import Method, mapping, setup_notes
from c2b_ray.report.page import EXPLORE, STYLES, Answer
from c2b_ray.report.pictures import ThumbnailSet, all_small, keep_shown, left_in_place, read_pictures, shown, uri
from c2b_ray.report.redact import clean, names_of
from c2b_ray.report.words import Span
from c2b_ray.steps.answers import answers_of, gives_each_label
from c2b_ray.storage.files import write_bytes

MOST_DETAILED = 24  # groups with a plot and pictures; the others are tables
MOST_TABLES = 120  # groups that are tables; the others are counted
MOST_SENTENCES = 40
MOST_UNFOLDED = 8  # sentences that show at first


@dataclass(frozen=True)
class SharedTables:
    """The tables that several parts of the page need, read once; `images` without bytes, of `verifications` no more
    than `image_id` and `error`. Images that no draw refers to, such as those of an earlier index, are left out."""

    captions: pa.Table
    draws: pa.Table
    images: pa.Table
    predictions: pa.Table
    verifications: pa.Table
    scores: pa.Table


def shared_tables(run: C2BRun) -> SharedTables:
    draws = run.draws
    drawn_ids = draws["image_id"].combine_chunks()
    images, predictions, verifications = (
        table.filter(pc.is_in(table["image_id"], drawn_ids))
        for table in (
            run.read("images", ["image_id", "key", "error"]),
            run.predictions,
            run.read("verifications", ["image_id", "error"]),
        )
    )
    return SharedTables(run.captions, draws, images, predictions, verifications, run.scores)


@dataclass(frozen=True)
class ShownImages:
    """The images that the page shows: examples of the groups in detail, and of what answers follow."""

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


def shown_images(run: C2BRun, tables: SharedTables, groups: Sequence[Group]) -> ShownImages:
    config, of_answers = run.config, (tables.captions, tables.draws, tables.predictions)
    examples = choose(worst_first(list(groups))[:MOST_DETAILED], *of_answers)
    cells = [cell for group in groups for cell in group.cells]
    named = named_by_attributes(cells, *of_answers, config.tau, config.alpha, partial(duplicates, run))
    told = {look.classifier for look in named}  # a column says by name what the answers follow
    looks = followed_looks(run.read("looks"), run.read("look_alikes"))
    return ShownImages(examples, named, tuple(look for look in looks if look.classifier not in told))


def page_of(
    run: C2BRun,
    tables: SharedTables,
    groups: Sequence[Group],
    of_images: ShownImages,
    thumbnails: Mapping[str, str],
    perturbed: Mapping[str, Example] | None = None,
    explored: Explore = Explore(),  # noqa: B008  # frozen
) -> Page:
    """Returns the page. `groups`: those of the scores; `thumbnails`: a data: URI per image id, those that are missing
    are described in words; `perturbed`: an example of each perturbation."""
    manifest, config = run.manifest, run.config
    tau, alpha, confidence = config.tau, config.alpha, 1 - config.alpha
    pooled, crossed, effects = (run.read(name) for name in ("pooled", "intersections", "perturbations"))
    names = names_of_classifiers(config, tables.scores, tables.predictions, effects)
    derived = DerivedValues(manifest)
    cells = [cell for group in groups for cell in group.cells]
    details = DetailedGroups(
        groups,
        of_images.examples,
        [group.key for group in worst_first(list(groups))[MOST_DETAILED : MOST_DETAILED + MOST_TABLES]],
        {group.key: f"group-{i}" for i, group in enumerate(groups, start=1)},
        names,
        _thumbnail_set(tables.images, of_images, thumbnails),
    )
    told = answers(
        groups,
        of_images.named,
        (pooled, crossed, effects),
        names,
        details.examples,
        details.pictures,
        details.links,
        (tau, alpha),
        derived,
        look_answers(of_images.looks, names, thumbnails, confidence),
    )
    taken_for = taken(
        tables.captions,
        tables.draws,
        tables.predictions,
        {group.classifier for group in groups},
        duplicates(run),
        clusters(run),
        confidence,
    )
    of_cells = [
        *overview_article(groups, names, taken_for, confidence, details.links_to_details),
        *pooled_article(pooled, cells, names, confidence),
    ]
    is_scored, verified = bool(cells) or not effects.num_rows, tables.verifications.num_rows > 0
    sections = [
        _found_section(details, config, derived, of_cells, is_scored),
        *detail_section(details, config, derived, verified),
        *perturbations_section(effects, names, tau, alpha, perturbed or {}),
        *label_errors_section(
            config, (run.read("label_errors"), tables.scores, run.read("scores_without")), names, thumbnails
        ),
        *looks_section(run.read("looks"), names, confidence),
        *intersections_section(crossed, names, tau, confidence),
        *explore_section(explored),
    ]
    if is_scored:
        sections += [undetermined_section(groups, names, tau, verified), clear_section(groups, names, tau)]
    evidence = [
        *shown_article(
            tables.verifications,
            run.calibration,
            tables.scores,
            mapping(manifest.get("models")),
            names,
            crossed.num_rows > 0,
        ),
        *sources_article(run.agreement, names, confidence),
        *spending_article(manifest, groups),
    ]
    present = {section.link for section in sections} | {article.link for article in (*of_cells, *evidence)}
    rejected, blank_rows = run.rejected, manifest.get("blank_rows")
    unused = blank_rows, manifest.get("other_rows")
    dropped = drops(rejected, run.read("pool"), tables.draws, tables.images, cells, *unused)
    run_method = method(manifest)
    last = made(
        run_method,
        "audit.yaml",
        *_extent(run, tables, cells, (pooled, crossed, effects)),
        *summary_table(cells, names),
        *evidence,
        unused_article(dropped, rejected, tables.draws, tables.images, tables.predictions, names),
        *merged_article(run.proposals),
        Article("Terms and rules", [terms(tau, alpha, present)]),
    )
    date = words.moment(str(manifest.get("finished") or manifest.get("created") or ""))
    return Page(
        title=clean(config.task),
        suffix="classifier audit",
        kicker="Classifier audit",
        byline=[*((spec(name),) for name in names.values()), *([(Span(date, style="date"),)] if date else [])],
        head=_head(
            manifest,
            told,
            run_method,
            _accuracy_lines(cells, tables, names, tau),
            what_answers_follow(of_images.named, of_images.looks),
        ),
        sections=[*sections, last],
        styles=(*STYLES, "explore.css"),
        scripts=EXPLORE,
    )


def _head(
    manifest: Mapping[str, Any],
    told: Sequence[Answer],
    run_method: Method,
    accuracy: Sequence[str],
    followed: Mapping[str, str],
) -> list[Block]:
    """Returns what stands above the contents: what was found, and what puts all of it in doubt. `followed`: as for
    `setup_notes`."""
    unfinished_line = unfinished(manifest)
    notes_of_setup = setup_notes(manifest, followed)
    # "Nothing was found" says nothing about a classifier that is set up wrongly, so that the set-up stands before it.
    has_findings = any(answer.verdict in FINDINGS for answer in told)
    blocks: list[Block] = [*setup(notes_of_setup), Answers(told)]
    if has_findings and not any(note.hopeless for note in notes_of_setup):
        blocks.reverse()
    return [
        *([Paragraph(unfinished_line, "notice")] if unfinished_line else []),
        *blocks,
        *assumed(run_method),
        Paragraph(" ".join(accuracy), "scale"),
    ]


def _found_section(
    details: DetailedGroups,
    config: AuditConfig,
    derived: DerivedValues,
    of_cells: Sequence[Article],
    is_scored: bool,
) -> Section:
    """Returns the findings as sentences, strongest first, and as a table; and `of_cells`, which show all cells."""
    confidence = 1 - config.alpha
    cells = [cell for group in details.groups for cell in group.cells]
    findings = [
        row
        for group, similar in leading(details.groups)
        if (
            row := found_row(
                group,
                details.names[group.classifier],
                confidence,
                details.links[group.key],
                similar,
                derived,
            )
        )
    ]
    blocks: list[Block] = [Paragraph(cue, "cue") for cue in cues(cells, details.names, confidence)]
    if findings:
        more = words.further(len(findings), MOST_SENTENCES, "in the tables below")
        blocks.append(Paragraph(findings_line(cells, len(findings)), "intro"))
        blocks.append(Findings(findings[:MOST_SENTENCES], "findings", MOST_UNFOLDED, more))
        blocks += found_cells(details.groups, details.names, details.links_to_details, titled(config.metric))
    elif is_scored:
        blocks.append(Paragraph("No cell’s difference is established."))
    return Section("All findings", [*blocks, *of_cells], "found", "All findings" if findings or of_cells else "")


def _extent(
    run: C2BRun, tables: SharedTables, cells: Sequence[Cell], of_other_findings: Sequence[pa.Table]
) -> list[Block]:
    """Returns how many cells have which verdict, the extent of the audit, and what to know about its images.
    `of_other_findings`: the tables pooled, intersections and perturbations."""
    config, effects = run.config, of_other_findings[-1]
    numbers = [sum(verdict in FINDINGS for verdict in table["verdict"].to_pylist()) for table in of_other_findings]
    line = tally(cells, *numbers)
    extent = [scale(cells, tables.draws), two_stages(config, cells, tables.captions, run.read("confirmation"))]
    if not cells and effects.num_rows:
        extent, line = [ONLY_PERTURBED], perturbed_tally(effects.to_pylist())
    lines = notes(config, cells, run.manifest.get("rule"))
    return [
        Paragraph(line, "tally"),
        Paragraph(" ".join(filter(None, [*extent, paper(cells)])), "scale"),
        *([Items(lines)] if lines else []),
    ]


def _accuracy_lines(cells: Sequence[Cell], tables: SharedTables, names: Mapping[str, str], tau: float) -> list[str]:
    """Returns how often each classifier is right, and what is ruled out besides findings."""
    number = pc.count_distinct(tables.draws["image_id"]).as_py()
    lines = accuracies_in_brief(accuracies(cells, gives_each_label(tables.predictions)), names, number)
    return [*lines, *([besides(cells, tau)] if any(cell.is_finding for cell in cells) else [])]


def _thumbnail_set(images: pa.Table, of_images: ShownImages, thumbnails: Mapping[str, str]) -> ThumbnailSet:
    pictured = images.filter(pc.is_in(images["image_id"], pa.array(of_images.image_ids, pa.string())))
    return ThumbnailSet(
        thumbnails, dict(zip(*(pictured[name].to_pylist() for name in ("image_id", "key")), strict=True))
    )


def names_of_classifiers(config: AuditConfig, *tables: pa.Table) -> dict[str, str]:
    """Returns the name on the page of each classifier of the config or of these tables."""
    specs = list(config.classifiers)
    for table in tables:
        specs += pc.unique(table["classifier"]).to_pylist()
    return names_of(specs)


MOST_CHARACTERS = 1_400_000
"""Of the findings' pictures in their full size, so that a page stays below 5 MB; the rest of them are smaller."""


def write_report(run: C2BRun) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path.

    Only shown images are decoded, and those whose bytes the run does not hold are kept in it, as small as they are
    shown. Raises StorageError where the file system refuses.
    """
    tables, effects = shared_tables(run), run.read("perturbations")
    groups = ranked(tables.scores)
    of_images = shown_images(run, tables, groups)
    image_ids = list(dict.fromkeys([*of_images.image_ids, *label_error_images(run.read("label_errors"))]))
    pictures, perturbed = _pictures(run, image_ids), examples_of(run, effects)
    names = names_of_classifiers(run.config, tables.scores, tables.predictions, effects)
    page = page_of(run, tables, groups, of_images, pictures, perturbed, _explored(run, tables, names))
    write_bytes(run.report, page.html().encode())
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


def _explored(run: C2BRun, tables: SharedTables, names: Mapping[str, str]) -> Explore:
    """Returns the block in which a reader explores the images, once those of the findings are kept."""
    config = run.config
    return explored(
        config,
        tables.captions,
        tables.draws,
        tables.predictions,
        tables.images,
        names,
        partial(_of_sample, run),
        embeddings_of_index(config, run.read("images", ["image_id", "row"])),
        _label_scores(run, config, names),
    )


def _label_scores(run: C2BRun, config: AuditConfig, names: Iterable[str]) -> list[LabelScores]:
    """Returns what classifiers that give each label on its own score for it; nothing of others, and of runs that took a
    part of the images of each cell."""
    sets = label_sets(run, config.classes, duplicates(run))
    if sets is None:
        return []
    return scores_of_labels(sets, {name: answers_of(run.predictions, name) for name in names})
