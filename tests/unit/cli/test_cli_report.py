"""`c2b report`: what a person reads of a run."""

from __future__ import annotations

from synthetic_run import PLANTED, Recipe, make_run


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
