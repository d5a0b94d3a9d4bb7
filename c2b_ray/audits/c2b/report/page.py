"""The report of a C2B run: scores → view model → HTML, one self-contained file.

    ranking    scores as cells and groups, worst first
    findings   groups as sentences, with the images that are shown
    view       everything above as a tree of text

It reads a run and writes its report.html; it knows nothing of models or of how the run was computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from c2b_ray.audits.c2b.budget import duplicates, label_sets
from c2b_ray.audits.c2b.report.explore import embeddings_of_index, explored
from c2b_ray.audits.c2b.report.label_errors import label_error_images
from c2b_ray.audits.c2b.report.perturbations import examples_of
from c2b_ray.audits.c2b.report.view import Tables, build_view, names_of_classifiers, plan
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.c2b.scoring.label_sets import LabelScores, scores_of_labels
from c2b_ray.config.audit import AuditConfig
from c2b_ray.report.explore import Explore, reduced
from c2b_ray.report.page import EXPLORE, STYLES, render
from c2b_ray.report.pictures import all_small, keep_shown, left_in_place, read_pictures, shown, uri
from c2b_ray.steps.answers import answers_of
from c2b_ray.storage.files import write_bytes

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
    page_plan = plan(tables, config.tau, config.alpha)
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
