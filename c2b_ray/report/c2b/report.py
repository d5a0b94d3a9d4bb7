"""The report of a C2B run: scores → view model → HTML, one self-contained file.

    ranking    scores as cells and groups, worst first          examples   which images are shown
    findings   groups as sentences                              forest     φ and its intervals as a plot
    view       everything above as a tree of text               page       the tree as HTML

It reads a run and writes its report.html; it knows nothing of models or of how the run was computed.
"""

from __future__ import annotations

from c2b_ray.report.c2b.view import Tables, build_view, plan
from c2b_ray.report.kit.page import render
from c2b_ray.report.kit.pictures import read_pictures
from c2b_ray.report.kit.thumbnails import thumbnails
from c2b_ray.store.c2b_run import C2BRun
from c2b_ray.store.files import write_bytes


def write_report(run: C2BRun) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path.

    Only shown images are decoded. Raises StorageError where the file system refuses.
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
    ).of_draws()
    planned = plan(tables)
    pictures = thumbnails(read_pictures(run, planned.image_ids))
    view = build_view(run.manifest, tables, planned, pictures)
    write_bytes(run.report, render("report.html.j2", view).encode())
    return run.report
