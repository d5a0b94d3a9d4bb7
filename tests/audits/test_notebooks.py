"""The notebook of the documentation, run from its first cell to its last in a kernel of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from c2b_ray.storage.run import load_run

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "first.ipynb"
pytestmark = pytest.mark.long


# Of the kernel's client: sockets that it leaves to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_first_notebook_runs_and_shows_what_the_run_found(tmp_path, monkeypatch):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[2]))
    notebook = nbformat.read(NOTEBOOK, 4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # outputs of another day would be read as today's
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    run = load_run(tmp_path / "run")
    shown = [
        output["data"].get("text/html", "")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    bars, headline, failures, table, report = shown
    assert bars.count("<progress") >= 3
    assert f"<b>{run.record.headline.text}" in headline
    assert headline.count("<img") == 8
    assert f"{len(run.failures())} images" in failures
    assert "fog" in table
    assert "<iframe" in report
    samples = json.loads((tmp_path / "failures-for-fiftyone" / "samples.json").read_text())["samples"]
    assert len(samples) == len(run.failures())
    assert all(Path(sample["filepath"]).is_file() for sample in samples)
