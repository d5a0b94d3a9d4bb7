"""The report of a run of `c2b latent`: directions, their strips and how they compare → one self-contained HTML file.

It reads a run and writes its report.html; it knows nothing of models or of how directions were found.
"""

from __future__ import annotations

from typing import Any

from c2b_ray.report.kit.page import STYLES, render
from c2b_ray.report.kit.thumbnails import thumbnails
from c2b_ray.report.latent.view import MOST_SHOWN, build_view, shown_first
from c2b_ray.store.files import write_bytes
from c2b_ray.store.run import Run


def write_report(run: Run) -> str:
    """Writes `report.html` of a run, whole or not at all, and returns its path. StorageError where the file system
    refuses."""
    directions = run.read("directions").to_pylist()
    shown = {row["direction_id"] for row in shown_first(directions)[:MOST_SHOWN]}
    strips: dict[str, list[dict[str, Any]]] = {}
    for part in run.each("strips", run.kind.tables["strips"].names):
        for row in part.to_pylist():
            if row["direction_id"] in shown:
                strips.setdefault(row["direction_id"], []).append(row)
    pictures = {
        f"{key} {number}": row["image"]
        for key, rows in strips.items()
        for number, row in enumerate(rows)
        if row["image"]
    }
    tables = (directions, run.read("problems").to_pylist(), run.read("hyperplanes").to_pylist())
    view = build_view(run.manifest, tables, strips, thumbnails(pictures))
    write_bytes(run.report, render("latent.html.j2", view, (*STYLES, "latent.css")).encode())
    return run.report
