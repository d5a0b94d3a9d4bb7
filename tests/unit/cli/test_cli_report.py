"""`c2b report`: what a person reads of a run."""

from __future__ import annotations

import json

import pyarrow as pa
from run_recipes import PLANTED, Recipe
from synthetic_run import make_run


def test_the_terminal_names_the_rule_the_basis_and_what_classes_share(c2b, tmp_path):
    accuracy = {(PLANTED, name, "fog"): 0.5 for name in ("bus", "boat", "umbrella")}
    recipe = Recipe(
        classifiers=(PLANTED,), attributes={"weather": ("fog", "rain", "snow")}, accuracy=accuracy,
        images_per_cell=60, pictures=False, config={"right": "top1"},
    )  # fmt: skip
    run = make_run(tmp_path / "run", recipe)
    status, out, _ = c2b("report", run.path)
    assert status == 0
    assert "(right: top1)" in out
    assert "unverified" in out
    assert f"Over 3 classes, {PLANTED} does less well when weather is fog" in out
    assert " clear, " in out


def test_the_terminal_ranks_as_the_page_does(c2b, tmp_path):
    accuracy = {(PLANTED, "bus", "fog"): 0.4, (PLANTED, "boat", "fog"): 0.5}
    recipe = Recipe(
        classes=("bus", "boat"), classifiers=(PLANTED,), attributes={"weather": ("fog", "rain", "snow")},
        accuracy=accuracy, images_per_cell=60, pictures=False, manifest={"status": "running"},
    )  # fmt: skip
    run = make_run(tmp_path / "run", recipe)
    # On fresh images little is left of the bus in fog, whose φ is the larger.
    confirmed = {"bus": -0.1, "boat": -0.4}
    rows = [row | {"phi_confirmed": confirmed.get(row["target_class"])} for row in run.scores.to_pylist()]
    run.write("scores", pa.Table.from_pylist(rows, run.scores.schema))
    status, out, _ = c2b("report", run.path)
    assert status == 0
    assert out.index("boat") < out.index("bus")
    page = (tmp_path / "run" / "report.html").read_text()
    told = page[page.index('<ol class="findings"') :]
    assert told.index("<b>boat</b>") < told.index("<b>bus</b>")
    found = json.loads(c2b("report", run.path, "--json")[1])["findings"]
    assert [row["target_class"] for row in found if row["verdict"] == "against"] == ["boat", "bus"]
    assert "6 findings, 0 clear, 0 undetermined" in out
