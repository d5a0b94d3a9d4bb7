"""Exports: what other programs read back, with nothing unknown made zero and nothing private let out."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.audits.audit import audit_named
from c2b_ray.audits.c2b.exports import escaped, scores_csv, scores_json, scores_parquet
from c2b_ray.audits.c2b.report.page import write_report
from c2b_ray.audits.c2b.run import C2BRun as Run
from c2b_ray.report.redact import names_of
from c2b_ray.tables import LABEL_ERRORS, PERTURBATIONS, SCORES
from c2b_ray.text import visible


def test_csv_has_a_row_per_cell_and_blanks_for_the_unknown(showcase_run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(scores_csv(showcase_run).decode())))
    scores = showcase_run.scores.to_pylist()
    assert list(rows[0]) == SCORES.names
    assert len(rows) == len(scores)
    for row, score in zip(rows, scores, strict=True):
        assert (row["target_class"], int(row["n"])) == (score["target_class"], score["n"])
        if score["n"]:
            assert float(row["phi"]) == score["phi"]
        else:
            assert row["accuracy"] == row["phi"] == ""
    assert any(score["n"] == 0 for score in scores)


def test_json_is_json_and_says_how_the_run_was_made(showcase_run: Run) -> None:
    text = scores_json(showcase_run).decode()
    assert "NaN" not in text
    told = json.loads(text, parse_constant=pytest.fail)
    assert told["settings"]["tau"] == 0.1
    assert told["models"]["index"]["revision"] == "77a0c4de"
    empty = next(row for row in told["scores"] if row["n"] == 0)
    assert empty["phi"] is None
    assert len(told["scores"]) == showcase_run.scores.num_rows
    assert "/srv" not in text


def test_parquet_keeps_the_schema(showcase_run: Run) -> None:
    table = pq.read_table(pa.BufferReader(scores_parquet(showcase_run)))
    assert table.schema.equals(SCORES)
    assert table["phi"].null_count > 0
    assert table["verdict"].equals(showcase_run.scores["verdict"])


def doubted(classifiers: Sequence[str], name: str) -> pa.Table:
    """A suspected label error of each classifier, of the class `name`."""
    row = {
        "key": "0.png",
        "label": name,
        "answer": "boat",
        "confidence": 0.9,
        "label_probability": 0.1,
        "image_id": "0",
    }
    return pa.Table.from_pylist([{"classifier": one, **row} for one in classifiers], LABEL_ERRORS)


def perturbed(classifiers: Sequence[str], target_class: str) -> pa.Table:
    rows = [
        {
            **{field.name: 0 for field in PERTURBATIONS if not field.nullable},
            "classifier": classifier,
            "target_class": target_class,
            "perturbation": "blur",
            "verdict": "against",
        }
        for classifier in classifiers
    ]
    return pa.Table.from_pylist(rows, PERTURBATIONS)


@pytest.mark.parametrize("form", list(audit_named("c2b").exports))
def test_nothing_private_leaves(form: str, build_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "very-secret-value-123")
    one, two = "onnx:/home/someone/a/net.onnx", "onnx:/home/someone/b/net.onnx"
    run = build_run(
        classifiers=(one, two),
        classes=("bus", "very-secret-value-123"),
        images_per_cell=3,
        accuracy={(name, "bus", "fog"): 0.0 for name in (one, two)},
        pictures=False,
        config={"task": "with very-secret-value-123"},
    )
    run.write("perturbations", perturbed((one, two), "very-secret-value-123"))
    run.write("label_errors", doubted((one, two), "very-secret-value-123"))
    data = run.kind.export(run, form, one if form == "model-card" else None)
    assert b"very-secret" not in data
    assert b"/home/someone" not in data
    # Two that would be called the same are still told apart.
    assert b"onnx:net.onnx #ae57cc" in data


def test_an_export_may_be_of_one_classifier(build_run: Callable[..., Run]) -> None:
    run = build_run(classifiers=("onnx:a.onnx", "onnx:b.onnx"), images_per_cell=3, pictures=False)
    rows = list(csv.DictReader(io.StringIO(run.kind.export(run, "csv", "onnx:b.onnx").decode())))
    assert {row["classifier"] for row in rows} == {"onnx:b.onnx"}


@pytest.mark.parametrize("form", ["csv", "json", "parquet", "failures"])
def test_a_classifier_is_called_alone_what_it_is_called_among_others(form: str, build_run: Callable[..., Run]) -> None:
    one, two = "onnx:/home/someone/a/net.onnx", "onnx:/home/someone/b/net.onnx"
    wrong = {(name, "bus", "fog"): 0.0 for name in (one, two)}
    run = build_run(classifiers=(one, two), images_per_cell=3, accuracy=wrong, pictures=False)
    data = run.kind.export(run, form, one)
    assert b"onnx:net.onnx #ae57cc" in data
    assert names_of([one, two])[two].encode() not in data


def test_names_that_act_are_neutralised_where_they_would(build_run: Callable[..., Run]) -> None:
    formula, turned = '=HYPERLINK("http://x")', "bus\u202egpj"
    run = build_run(classes=(formula, turned), images_per_cell=3, pictures=False)
    rows = list(csv.DictReader(io.StringIO(scores_csv(run).decode())))
    assert {row["target_class"].removeprefix("'") for row in rows} >= {formula, visible(turned)}
    assert not any(value.startswith(("=", "@")) for row in rows for value in row.values() if value)
    for text in (scores_json(run).decode(), Path(write_report(run)).read_text()):
        assert "\u202e" not in text
        assert "202egpj" in text
    assert escaped(turned) == "bus\\\\u202egpj"
