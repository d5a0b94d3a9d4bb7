"""The report of a run of `c2b prompts`: tables → view model → HTML, one self-contained file.

rows   the paper's table, words and parts of prompts, as text        curve   what λ trades
view   the page as a tree of text
"""

from __future__ import annotations

from c2b_ray.report.kit.export import exported
from c2b_ray.report.kit.page import STYLES, render
from c2b_ray.report.kit.thumbnails import thumbnails
from c2b_ray.report.prompts.view import Tables, build_view
from c2b_ray.store.files import write_bytes
from c2b_ray.store.run import Run

MOST_EXAMPLES = 24


def write_report(run: Run) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    names = ("prompts", "methods", "gains", "associations", "modifiers", "heads")
    rows = {name: exported(run.read(name)).to_pylist() for name in names}
    examples = run.read("examples").sort_by([("attribute", "ascending"), ("value", "ascending")])
    shown = examples.slice(0, MOST_EXAMPLES).to_pylist()
    images = {
        f"{row['example_id']} {number}": data
        for row in shown
        for number, data in enumerate(row["pictures"])
        if data is not None
    }
    encoded = thumbnails(images)
    pictures = {(key.split(" ")[0], int(key.split(" ")[1])): uri for key, uri in encoded.items()}
    view = build_view(run.manifest, Tables(**rows, examples=shown), pictures)
    write_bytes(run.report, render("prompts.html.j2", view, (*STYLES, "failures.css", "prompts.css")).encode())
    return run.report
