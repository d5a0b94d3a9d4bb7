"""What is wrong with an audit is said before Ray starts and before anything is written."""

import json

import pytest
import ray

from c2b_ray.audits.c2b.audit import audit
from c2b_ray.audits.c2b.classification import with_classes
from c2b_ray.audits.c2b.estimate import check
from c2b_ray.config import read_audit
from c2b_ray.errors import InputError
from c2b_ray.models import timm_classifier
from c2b_ray.world.scenes import CLASSES

PREDICTIONS = "file,bus,tram\na.jpg,0.9,0.1\nb.jpg,0.2,0.8\n"
LABELS = "image,target_class,weather\na.jpg,bus,fog\nb.jpg,bus,clear\n"
GOOD = {
    "task": "t",
    "classes": ["bus"],
    "classifier": "table:predictions.csv",
    "images": {"source": "labelled", "table": "labels.csv"},
}
RETRIEVED = {"images": {"source": "retrieve", "index": "idx"}, "attributes": {"weather": ["fog", "clear"]}}

GENERATED = {"images": {"source": "generate", "generator": "world:renderer"}, "attributes": RETRIEVED["attributes"]}
SPELLED = {"weather": ["fog", "clear"], "time_of_day": ["day", "night"]}


def test_images_outside_the_table_s_folder_are_refused_with_the_line_to_write(tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "predictions.csv").write_text("file,bus,tram\n../photos/a.jpg,0.9,0.1\n../photos/b.jpg,0.2,0.8\n")
    (tmp_path / "lists/t.csv").write_text(LABELS.replace("\na", "\n../photos/a").replace("\nb", "\n../photos/b"))
    images = {"source": "labelled", "table": f"{tmp_path}/lists/t.csv"}
    config = GOOD | {"classifier": f"table:{tmp_path}/predictions.csv"}
    with pytest.raises(InputError, match=f"images.root: 2 of 2 images do not lie .* `root: {tmp_path}/photos` under"):
        check(read_audit(config | {"images": images}), "here")
    check(read_audit(config | {"images": images | {"root": f"{tmp_path}/photos"}}), "here")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "predictions.csv").write_text(PREDICTIONS)
    (tmp_path / "labels.csv").write_text(LABELS)
    return tmp_path


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classifier": "onx:net.onnx"}, "no classifier has the scheme 'onx'; did you mean 'onnx'"),
        ({"classifier": "onnx:net.onnx"}, "no such file or directory: .*net.onnx"),
        ({"classifier": "table:predictions.csv?labels=n.txt"}, "no such file or directory: .*n.txt"),
        ({"classes": ["buss"]}, "target_class 'buss'; did you mean 'bus'"),
        ({"label_map": {"bus": ["coach"]}}, "label_map.bus: .* has no label 'coach'"),
        ({"images": {"source": "labelled", "table": "label.csv"}}, "label.csv: no such"),
        (RETRIEVED, "idx: no index there .expected manifest.json.; c2b index build"),
        (RETRIEVED | {"intersections": [["weather", "lihgting"]]}, "no attribute 'lihgting'"),
        # The pair is known by another spelling: what is wrong is the index alone.
        (RETRIEVED | {"attributes": SPELLED, "intersections": [["weather", "time of day"]]}, "idx: no index there"),
        (RETRIEVED | {"language_model": "wrld:lm"}, "no language_model has the scheme 'wrld'"),
        (RETRIEVED | {"verification": {"model": "clip:x"}}, "verification.model: .*no captioner has the scheme"),
        ({"images": {"source": "labelled", "table": "gs://bucket/t.csv"}}, "gs:// is not read or written here"),
        ({"intersections": [["weather", "lihgting"]]}, "intersections: .*'lihgting'"),
        (RETRIEVED | {"language_model": "world:llm"}, "world has no language_model 'llm'; did you mean 'lm'"),
        (RETRIEVED | {"language_model": "scripted:labels.csv"}, "labels.csv"),
        (RETRIEVED | {"verification": {"model": "world:clop"}}, "verification.model: .*did you mean 'clip'"),
        (
            {"images": {"source": "generate", "generator": "world:rendrer"}, "attributes": RETRIEVED["attributes"]},
            "images.generator: .*did you mean 'renderer'",
        ),
    ],
)
def test_what_is_wrong_is_said_before_ray_starts(place, changes, words):
    path = place / "audit.yaml"
    path.write_text(json.dumps({**GOOD, **changes}))
    with pytest.raises(InputError, match=words):
        audit(path, place / "run")
    assert not ray.is_initialized()
    assert not (place / "run").exists()


def test_via_is_checked_too_and_a_good_audit_passes(place):
    path = place / "audit.yaml"
    path.write_text(json.dumps(GOOD))
    with pytest.raises(InputError, match="via: 'rays' is none of"):
        audit(path, place / "run", "rays")
    check(read_audit(path), "actors")


def test_labels_are_checked_and_classes_found_without_loading_a_classifier(place, monkeypatch):
    def refuse(spec):
        raise AssertionError(f"{spec.text} is loaded")

    monkeypatch.setattr(timm_classifier, "load", refuse)
    audited = {**GOOD, "classes": "all", "classifier": "world:resnet-planted-3", **GENERATED}
    config = with_classes(read_audit(audited))
    assert config.classes == list(CLASSES)
    check(config, "actors")
    with pytest.raises(InputError, match="no label of world:resnet-planted-3 is 'submarine'"):
        check(read_audit({**audited, "classes": ["submarine"]}), "actors")
