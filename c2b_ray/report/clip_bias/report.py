"""The report of a run of `c2b clip-bias`: tables → view model → HTML, one self-contained file.

facts   the tables, typed                    maps, transferring, spaces   the paper's figures
plots   numbers as SVG                       view                         the page as a tree of text
"""

from __future__ import annotations

from c2b_ray.report.clip_bias.facts import read_facts
from c2b_ray.report.clip_bias.view import build_view
from c2b_ray.report.kit.page import STYLES, render
from c2b_ray.report.kit.thumbnails import thumbnails
from c2b_ray.store.files import write_bytes
from c2b_ray.store.run import Run


def write_report(run: Run) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    facts = read_facts(run)
    pictures = {f"{one.dataset} {one.key}": one.bytes for one in facts.examples if one.bytes is not None}
    view = build_view(facts, thumbnails(pictures))
    write_bytes(run.report, render("clip_bias.html.j2", view, (*STYLES, "clip_bias.css")).encode())
    return run.report
