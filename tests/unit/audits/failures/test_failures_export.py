"""Exports of hypotheses: safe in a spreadsheet, and nothing of the machine in them."""

from __future__ import annotations

import csv as csv_module
import json
from io import BytesIO, StringIO
from pathlib import Path

import pyarrow.parquet as pq
from failures_recipes import Cause, Recipe
from synthetic_failures import make_run

from c2b_ray.audits.failures import exports
from c2b_ray.report.redact import names_of

SPEC = "onnx:/srv/secret/net.onnx"


def test_exports_hold_every_hypothesis_and_no_path(tmp_path: Path) -> None:
    cause = Cause("fly", "=1+1", "it is in /home/me/photos/a.jpg", 0.02, 0.05, 0.0)
    run = make_run(tmp_path / "run", Recipe(causes=(cause,), classifiers=(SPEC, "m"), doubts=("seen in /srv/x.txt",)))
    rows = run.read("hypotheses").num_rows
    data = {name: getattr(exports, name)(run) for name in ("csv", "json", "parquet")}
    table = list(csv_module.DictReader(StringIO(data["csv"].decode())))
    assert len(table) == rows == pq.read_table(BytesIO(data["parquet"])).num_rows
    assert {row["target"] for row in table} == {"'=1+1", ""}
    document = json.loads(data["json"])
    assert len(document["hypotheses"]) == rows
    for text in (data["csv"].decode(), data["json"].decode()):
        assert "/srv" not in text
        assert "/home" not in text
    assert all(row["classifier"] == "m" for row in json.loads(exports.json(run, "m"))["hypotheses"])


def test_a_classifier_is_called_alone_what_it_is_called_among_others(tmp_path: Path) -> None:
    specs = ("onnx:/srv/first/net.onnx", "onnx:/srv/second/net.onnx")
    run = make_run(tmp_path / "run", Recipe(classifiers=specs))
    for spec in specs:
        rows = json.loads(exports.json(run, spec))["hypotheses"]
        assert {row["classifier"] for row in rows} == {names_of(specs)[spec]}
