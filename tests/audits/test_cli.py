"""The command line on a small world: index, audit, report, and what bad input says."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from c2b_ray import load_run
from c2b_ray.audits.ask import images_of_class
from c2b_ray.audits.runs import answer_question
from c2b_ray.endpoint.work.progress import ProgressReporter
from c2b_ray.errors import ConfigError
from c2b_ray.world.scenes import ATTRIBUTES, sample
from c2b_ray.world.table import labelled_table, write_sample

SCENES = 300


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("world")
    write_sample(place / "scenes.parquet", SCENES, seed=1001)
    return place


@pytest.fixture
def index(place, c2b):
    made = ("--images", place / "scenes.parquet", "--encoder", "world:clip", "--out", place / "index")
    status, out, _ = c2b("index", "build", *made, "--json")
    assert status == 0
    assert json.loads(out)["images"] == SCENES
    return place / "index"


@pytest.fixture
def audit_file(index, tmp_path):
    def write(**changes):
        asked = {
            "task": "Tell buses from boats.",
            "classes": ["bus", "boat"],
            "classifier": "world:resnet-planted-0",
            "images": {"source": "retrieve", "index": str(index)},
            "attributes": {"weather": ["fog", "clear"]},
            "images_per_caption": 12,
            "captions_per_cell": 1,
            **changes,
        }
        path = tmp_path / "audit.yaml"
        path.write_text(yaml.safe_dump(asked))
        return path

    return write


@pytest.fixture
def audited(c2b, tmp_path):
    """Runs an audit of this file and returns its run."""

    def audit(file):
        status, _, err = c2b("audit", file, "--out", tmp_path / "run", "--json")
        assert status == 0, err
        return load_run(tmp_path / "run")

    return audit


def rows_of(table):
    """Rows that are equal where NaN stands in both."""
    return [{name: "NaN" if value != value else value for name, value in row.items()} for row in table.to_pylist()]


def test_search_finds_what_the_caption_says(index, c2b):
    status, out, _ = c2b("index", "search", index, "a photo of a bus in the fog", "-k", 5, "--json")
    hits = json.loads(out)
    assert status == 0
    assert len(hits) == 5
    assert sum(hit["metadata"]["target_class"] == "bus" for hit in hits) >= 4
    assert [hit["similarity"] for hit in hits] == sorted((hit["similarity"] for hit in hits), reverse=True)


def test_an_audit_and_its_report(audit_file, c2b, tmp_path):
    status, out, _ = c2b("audit", audit_file(), "--out", tmp_path / "run", "--json")
    assert status == 0
    said = json.loads(out)
    run = load_run(tmp_path / "run")
    assert run.scores.num_rows == 4
    assert sum(said["verdicts"].values()) == 4
    assert run.manifest["status"] == "finished"
    assert run.manifest["counts"]["prediction_errors"] == 0
    assert Path(said["report"]).read_text().startswith("<!")
    before = run.scores
    status, _, _ = c2b("audit", audit_file(), "--out", tmp_path / "run")  # the same again changes nothing
    assert status == 0
    assert rows_of(load_run(tmp_path / "run").scores) == rows_of(before)
    status, _, err = c2b("audit", audit_file(tau=0.1), "--out", tmp_path / "run")
    assert status == 2
    assert "its tau differs" in err
    status, out, _ = c2b("report", tmp_path / "run")
    assert status == 0
    assert "report.html" in out


def write_as_labelled(run, out):
    """Writes a run as if its images were those of a table."""
    manifest = json.loads((run / "run.json").read_text())
    manifest["config"]["images"] = {"source": "labelled", "table": "labels.csv"}
    out.mkdir()
    for path in run.rglob("*.parquet"):
        copied = out / path.relative_to(run)
        copied.parent.mkdir(exist_ok=True)
        copied.hardlink_to(path)
    (out / "run.json").write_text(json.dumps(manifest))


def test_a_question_is_answered_from_the_run_s_models_and_changes_nothing(audit_file, c2b, tmp_path):
    status, _, _ = c2b("audit", audit_file(), "--out", tmp_path / "run", "--json")
    assert status == 0
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    page = tmp_path / "pages" / "asked.html"
    question = ("ask", tmp_path / "run", "a photo of a bus in the snow")
    status, out, _ = c2b(*question, "--n", 10, "--html", page, "--keep", "--json")
    assert status == 0
    said = json.loads(out)
    (answer,) = said["answers"]
    assert said["target_class"] == "bus"
    assert answer["asked"]["n"] == len(said["predictions"]) == 10
    assert answer["asked"]["correct"] == sum(row["predicted_class"] == "bus" for row in said["predictions"])
    run = load_run(tmp_path / "run")
    drawn = {row["image_id"] for row in said["predictions"]} & images_of_class(run.captions, run.draws, "bus")
    assert answer["of_class"]["n"] - answer["others"]["n"] == len(drawn)  # no image is on both sides
    assert page.read_text().count("<img") == 10
    kept = Path(said["kept"])
    assert json.loads(kept.read_text())["answers"] == said["answers"]
    kept.unlink()
    kept.parent.rmdir()
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    status, out, _ = c2b(*question, "--n", 3)
    assert status == 0
    assert "of 3 right" in out
    booked = ProgressReporter(lambda report: None, lambda: None)
    sentence = {"run": str(tmp_path / "run"), "sentence": "a photo of a bus in the snow", "n": 3}
    answer_question(sentence, tmp_path / "asked", listener=booked)
    assert booked.images == 3, "at the shared endpoint a question is a job, which books its images"
    write_as_labelled(tmp_path / "run", tmp_path / "labelled")
    with pytest.raises(ConfigError, match="run: it is an audit of labelled images"):
        answer_question({**sentence, "run": str(tmp_path / "labelled")}, tmp_path / "none")
    status, _, err = c2b("ask", tmp_path / "run", "a mug in the snow")
    assert status == 2
    assert "name one of bus, boat with --class" in err


def test_intersections_of_retrieved_images_have_captions_of_their_own(audit_file, audited, c2b, tmp_path):
    asked = {
        "attributes": {"weather": ["fog", "clear"], "lighting": ["day", "night"]},
        "intersections": [["Lighting", "weather"]],
        "language_model": "world:lm",
        "classes": ["bus"],
        "label_map": {"bus": ["bus"]},
    }
    run = audited(audit_file(**asked))
    rows = run.intersections.to_pylist()
    assert [row["bias_class"] for row in rows] == ["day, fog", "day, clear", "night, fog", "night, clear"]
    assert {row["n"] for row in rows} == {12}
    texts = {r["bias_class"]: r["text"] for r in run.captions.to_pylist() if r["attribute"] == "lighting × weather"}
    assert all("bus" in text for text in texts.values())
    assert len(set(texts.values())) == 4
    assert "lighting × weather" not in run.scores["attribute"].to_pylist()
    assert "Intersections" in Path(run.report).read_text()
    # the world's language model names each thing once: nothing of it is to be merged away
    assert set(run.proposals["attribute"].to_pylist()) == set(ATTRIBUTES)
    assert run.proposals["merged"].to_pylist() == [[]] * len(ATTRIBUTES)
    status, _, err = c2b(
        "audit", audit_file(**asked | {"intersections": [["size", "wether"]]}), "--out", tmp_path / "b"
    )
    assert status == 2
    assert "did you mean 'weather'" in err


def test_a_labelled_run_needs_an_index_to_be_asked(index, audited, place, c2b, tmp_path):
    asked = {
        "task": "Tell buses from boats.",
        "classes": ["bus", "boat"],
        "classifier": "world:resnet-planted-0",
        "images": {"source": "labelled", "table": str(place / "scenes.parquet")},
        "attributes": {"lighting": ["day", "night"], "size": ["small", "large"]},
        "intersections": [["lighting", "size"]],
    }
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(asked))
    run = audited(tmp_path / "audit.yaml")
    assert run.intersections.num_rows == 8
    lighting = sum(row["n"] for row in run.scores.to_pylist() if row["attribute"] == "lighting")
    assert sum(run.intersections["n"].to_pylist()) == lighting  # every scene by day or night is small or large
    status, _, err = c2b("ask", tmp_path / "run", "a bus at night")
    assert status == 2
    assert "--index" in err
    status, out, _ = c2b("ask", tmp_path / "run", "a bus at night", "-n", 4, "--index", index, "--json")
    assert status == 0
    assert json.loads(out)["answers"][0]["asked"]["n"] == 4


def test_generated_images_are_verified_and_drawn_on_a_budget(audit_file, audited, place):
    write_sample(place / "known.parquet", 120, seed=1002)
    asked = {
        "classes": ["bus", "boat"],
        "images": {
            "source": ["retrieve", "generate"],
            "index": str(place / "index"),
            "generator": "world:renderer?mislabel=0.2",
        },
        "verification": {"model": "world:clip", "calibration": str(place / "known.parquet")},
        "budget": {"images": 160, "first": 6},
        "images_per_caption": 40,
    }
    run = audited(audit_file(**asked))
    sources = run.draws["source"].to_pylist()
    assert sources.count("retrieve") == sources.count("generate") > 0
    looks = run.manifest["budget"]["looks"]
    images = [look["images"] for look in looks]
    assert images[0] == 48  # two sources, four captions, six images each
    assert len(images) > 1
    assert images == sorted(set(images))
    assert len(sources) == images[-1] <= 160
    # an image that two captions looked at is verified once for each class
    target = dict(zip(run.captions["caption_id"].to_pylist(), run.captions["target_class"].to_pylist(), strict=True))
    pairs = {(row["image_id"], target[row["caption_id"]]) for row in run.read("pool").to_pylist()}
    assert pairs > {(row["image_id"], target[row["caption_id"]]) for row in run.draws.to_pylist()}
    assert set(run.predictions["image_id"].to_pylist()) == set(run.draws["image_id"].to_pylist())
    seen = [(row["image_id"], row["target_class"]) for row in run.verifications.to_pylist()]
    assert len(seen) == len(set(seen))
    assert set(seen) == pairs
    assert {row["attribute"] for row in run.calibration.to_pylist()} == {"target_class", "weather"}
    assert set(run.calibration["source"].to_pylist()) == {"table"}
    assert run.agreement.num_rows == run.scores.num_rows == 4
    assert run.manifest["counts"]["image_errors"] == 0
    assert {"generator", "verifier", "index"} <= run.manifest["models"].keys()
    assert Path(run.report).is_file()
    tables = ("draws", "pool", "images", "verifications", "calibration", "predictions", "scores", "agreement")
    before = {name: run.read(name) for name in tables}
    again = audited(audit_file(**asked))
    for name, table in before.items():
        assert rows_of(again.read(name)) == rows_of(table), name
    assert again.manifest["budget"]["looks"] == looks


@pytest.fixture
def of_buses(place, c2b):
    """Fields of an audit that retrieves and verifies buses, half of which are taken for houses in the fog."""
    write_sample(place / "calibration.parquet", 400, seed=1002)
    pq.write_table(labelled_table(sample(240, 1003, target_class="bus"), "bus"), place / "buses.parquet")
    made = ("--images", place / "buses.parquet", "--encoder", "world:clip", "--out", place / "buses")
    assert c2b("index", "build", *made)[0] == 0
    return {
        "classes": ["bus"],
        "images": {"source": "retrieve", "index": str(place / "buses")},
        "verification": {"model": "world:clip", "calibration": str(place / "calibration.parquet")},
    }


def test_an_attribute_whose_phi_looks_large_is_tested_on_more_retrieved_images(audit_file, audited, of_buses):
    screening = {"fresh": 15, "tested": "all"}
    asked = of_buses | {"images_per_caption": 15, "screening": screening}
    run = audited(audit_file(**asked))
    first, both = (run.read(name).select(["caption_id", "image_id"]).to_pylist() for name in ("draws", "confirmation"))
    assert len(first) == 30
    assert len(both) == 60
    assert all(row in both for row in first)  # the second stage begins with the images of the first
    assert run.scores["n"].to_pylist() == [30, 30]
    assert run.read("screening")["n"].to_pylist() == [15, 15]
    assert "15 images of each cell, then 15 more" in Path(run.report).read_text()
    assert rows_of(audited(audit_file(**asked)).scores) == rows_of(run.scores)


def test_findings_are_measured_again_on_fresh_images(audit_file, audited, of_buses):
    asked = of_buses | {
        "images_per_caption": 20,
        "confirm": True,
        "tau": 0.0,
        "alpha": 0.9,  # nearly anything is a finding
    }
    run = audited(audit_file(**asked))
    fresh, known = run.read("confirmation"), set(run.draws["image_id"].to_pylist())
    assert fresh.num_rows > 0
    assert not known & set(fresh["image_id"].to_pylist())
    assert set(run.predictions["image_id"].to_pylist()) == known | set(fresh["image_id"].to_pylist())
    rows = run.scores.to_pylist()
    found = {row["target_class"] for row in rows if row["verdict"] in ("for", "against")}
    assert found
    assert {row["target_class"] for row in rows if row["phi_confirmed"] is not None} == found
    assert all(
        row["phi_confirmed_low"] <= row["phi_confirmed"] <= row["phi_confirmed_high"]
        for row in rows
        if row["target_class"] in found
    )
    assert rows_of(audited(audit_file(**asked)).scores) == rows_of(run.scores)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clases": ["x"]}, "did you mean 'classes'"),
        ({"classifier": "world:resnet-plant-0"}, "world:resnet-plant"),
        ({"classifier": "tim:resnet18"}, "did you mean 'timm'"),
        ({"classes": ["bus", "boot"]}, "did you mean 'boat'"),
        ({"images": {"source": "retrieve", "index": "nowhere"}}, "nowhere"),
    ],
)
def test_bad_input_says_what_is_wrong_and_exits_2(audit_file, c2b, tmp_path, changes, words):
    status, out, err = c2b("audit", audit_file(**changes), "--out", tmp_path / "run")
    assert status == 2
    assert words in err
    assert "Traceback" not in err
    assert out == ""


def test_values_that_the_calibration_calls_otherwise_are_named_before_the_run(c2b, audit_file, place, tmp_path):
    """README's audit, its fog written as `foggy`: what the verifier does for it is not known, and nothing is found."""
    verification = {"model": "world:clip", "calibration": str(place / "scenes.parquet")}
    path = audit_file(attributes={"weather": ["foggy", "clear"], "wether": ["snow", "rain"]}, verification=verification)
    said = [
        "calibration has no image with weather: 'foggy'; did you mean 'fog'?",
        "calibration has no column 'wether'; did you mean 'weather'",
    ]
    status, out, err = c2b("check", path)
    assert status == 0, err
    assert all(f"left out: {line}" in out for line in said)
    status, out, err = c2b("audit", path, "--out", tmp_path / "run")
    assert status == 0, err
    assert all(f"warning: {line}" in err for line in said)
    assert err.index(said[0]) < err.index("caption: begins")
    assert "answers are right (" in out
