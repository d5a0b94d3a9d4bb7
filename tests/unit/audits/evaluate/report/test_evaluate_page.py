"""The page of an evaluation names each classifier as no other."""

from __future__ import annotations

from c2b_ray.audits.evaluate.report.page import CASES, agreement_grids
from c2b_ray.report.blocks import Table
from c2b_ray.report.redact import names_of


def test_classifiers_whose_files_have_one_name_keep_a_line_each() -> None:
    """Paths are shortened to their last part, which several classifiers may share."""
    classifiers = ["onnx:/old/net.onnx", "onnx:/new/net.onnx"]
    counts = {f"{a}_{b}": 1 for a in CASES for b in CASES}
    rows = [
        {"method": "c2b", "classifier": name, "rule": "tested", "agreement": agreement, "agreement_of_biased": None}
        | counts
        for name, agreement in zip(["", *classifiers], (0.1, 0.2, 0.3), strict=True)
    ]
    grids = agreement_grids(rows, "tested", names_of(classifiers))
    table = next(block for block in grids if isinstance(block, Table))
    lines = [[cell.text for cell in row.cells] for row in table.lines]
    assert [line[1] for line in lines] == ["+0.10", "+0.20", "+0.30"]
    assert lines[0][0] == "all"
    assert all(line[0].startswith("onnx:net.onnx #") for line in lines[1:])
