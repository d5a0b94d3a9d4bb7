"""`c2b check` tells what a run would see, and refuses what the run would refuse."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from c2b_ray.audits.check import check
from c2b_ray.audits.kit.models import fact_line
from c2b_ray.errors import ConfigError
from c2b_ray.roles import ModelFact
from c2b_ray.world.table import write_sample

CONTROL, PLANTED = "world:resnet-control-0", "world:resnet-planted-0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("checked")
    write_sample(path / "scenes.parquet", 120, 1003)
    return path


def written(folder, name, **fields):
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(fields), encoding="utf-8")
    return str(path)


def audit_file(folder, **more):
    fields = {
        "task": "Name the thing.",
        "classes": ["bus", "boat", "chair"],
        "classifier": CONTROL,
        "images": {"source": "labelled", "table": "scenes.parquet"},
    }
    return written(folder, "audit", **fields | more)


def test_an_audit_of_labelled_images_is_answered_on_one_image_of_each_class(folder):
    checked = check(audit_file(folder))
    (model,) = checked.models
    assert (model.field, model.role, model.spec, len(model.labels)) == ("classifier", "classifier", CONTROL, 10)
    assert {answer.of_class for answer in model.answers} == {"bus", "boat", "chair"}
    assert all(answer.right is (answer.top[0][0] == answer.of_class) for answer in model.answers)
    assert sum(answer.right is True for answer in model.answers) >= 2  # of a sound classifier
    assert all(0 < answer.top[0][1] <= 1 and len(answer.top) == 3 for answer in model.answers)
    assert "scenes.parquet" in checked.pictures


def test_a_label_map_that_exchanges_classes_is_seen_in_the_answers(folder):
    label_map = {"bus": ["boat"], "boat": ["bus"], "chair": ["chair"]}
    (model,) = check(audit_file(folder, label_map=label_map)).models
    wrong = {answer.of_class for answer in model.answers if answer.right is False}
    assert {"bus", "boat"} <= wrong


def test_what_is_left_out_of_a_table_is_said(folder):
    scenes = pq.read_table(folder / "scenes.parquet")
    days = pa.array([f"2026-01-{1 + i % 28:02d}" for i in range(scenes.num_rows)])
    pq.write_table(scenes.append_column("taken", days), folder / "dated.parquet")
    checked = check(audit_file(folder, images={"source": "labelled", "table": "dated.parquet"}))
    assert "column taken is no attribute: dates" in checked.left_out


def test_searches_and_datasets_are_checked_on_scenes_and_every_model_is_loaded(folder):
    images = {"generate": {"model": "world:renderer"}}
    classifiers = {"a": CONTROL, "b": PLANTED}
    fields = {"labels": ["bus", "boat"], "captioner": "world:clip", "hierarchy": "world", "budget": {"draws": 600}}
    failures = written(folder, "failures", **fields, classifier=classifiers, images=images)
    checked = check(failures)
    roles = [(model.role, len(model.answers)) for model in checked.models]
    assert sorted(roles) == [("captioner", 0), ("classifier", 3), ("classifier", 3), ("image_generator", 0)]
    assert "embedded world" in checked.pictures
    (folder / "captions.csv").write_text("label,caption\nbus,a photo of a bus\nboat,a photo of a boat\n")
    dataset = written(
        folder, "dataset", captions={"file": "captions.csv"}, classifier=CONTROL, images=images, draws_per_caption=2
    )
    assert [model.role for model in check(dataset).models] == ["classifier", "image_generator"]


def test_what_the_run_would_refuse_is_refused(folder, capsys):
    with pytest.raises(ConfigError, match="no row of the labelled table has target_class 'tram'"):
        check(audit_file(folder, classes=["bus", "tram"]))
    with pytest.raises(ConfigError, match="via"):
        check(audit_file(folder), via="nowhere")
    (folder / "list.yaml").write_text("[1, 2]")
    with pytest.raises(ConfigError, match="expected a mapping"):
        check(str(folder / "list.yaml"))


def test_the_command_prints_an_object_or_lines(folder, capsys):
    from c2b_ray.cli.doctor import check as command

    command(audit_file(folder), "auto", True)
    told = json.loads(capsys.readouterr().out)
    assert told["models"][0]["answers"][0]["top"][0][0] in told["models"][0]["labels"]
    command(audit_file(folder), "auto", False)
    lines = capsys.readouterr().out
    assert "10 labels: bus, boat, airplane, house, chair … bicycle" in lines
    assert "(bus) → " in lines


def test_an_assumed_setting_names_its_option():
    stated = ModelFact("output", "logits", "rows beyond 1 on trial pictures")
    assumed = ModelFact("crop", "0.875", "timm's default", assumed=True, option="crop_pct")
    assert fact_line(stated) == "output: logits (rows beyond 1 on trial pictures)"
    assert fact_line(assumed) == "crop: 0.875, which is ASSUMED (timm's default); state it with crop_pct= in the spec"
