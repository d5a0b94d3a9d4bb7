import json
from urllib.parse import quote

import pytest

from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.errors import ConfigError, InputError, SourceError

GOOD = {
    "task": "Tell buses from boats.",
    "classes": ["bus", "boat"],
    "classifier": "world:resnet-control-0",
    "images": {"source": "retrieve", "index": "idx"},
    "language_model": "world:lm",
}


def test_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "map.json").write_text(json.dumps({"bus": [1, 2], "boat": ["ship"], "mug": [3]}))
    path = tmp_path / "audit.yaml"
    path.write_text(json.dumps({**GOOD, "label_map": "map.json"}))  # JSON is YAML
    config = read_audit(path)
    assert config.images.index == str(tmp_path / "idx")
    assert config.label_map == {"bus": [1, 2], "boat": ["ship"]}  # the map of a larger label space is fine


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"clases": ["a"]}, "clases", "did you mean 'classes'"),
        ({"images": {"source": "retrieve", "indx": "x"}}, "images.indx", "did you mean 'index'"),
        ({"classes": []}, "classes", "at least one"),
        ({"classes": ["bus", "Bus "]}, "classes", "'Bus' is given twice"),
        (
            {"classes": ["traffic_light", "traffic light"]},
            "classes",
            "'traffic light' is given twice: 'traffic_light' is",
        ),
        ({"attributes": {"sign": ["no_entry", "No entry."]}}, "attributes", "given twice: 'no_entry' is compared as"),
        ({"attributes": {"weather": ["snow"]}}, "attributes", "'weather' has 1 value"),
        ({"attributes": {"weather": ["snow", "Snow"]}}, "attributes", "twice"),
        ({"attributes": {"sky": ["a", "b"], "Sky": ["a", "b"]}}, "attributes", "'Sky' is given twice"),
        ({"intersections": [["sky", "Sky "]]}, "intersections", "paired with itself"),
        ({"intersections": [["sky", "sea"], ["sea", "sky"]]}, "intersections", "given twice"),
        ({"intersections": [["sky"]]}, "intersections", ""),
        ({"images": {"source": "labelled"}}, "images", "needs `table`"),
        ({"images": {"source": "labelled", "table": "t", "index": "i"}}, "images", "does not belong"),
        ({"images": {"source": "bing"}}, "images.source", "'retrieve', 'generate' or 'labelled'"),
        ({"images": {"source": []}}, "images", "must name one or both"),
        ({"images": {"source": ["retrieve", "retrieve"], "index": "i"}}, "images", "each once"),
        ({"images": {"source": ["retrieve", "labelled"], "index": "i", "table": "t"}}, "images", "cannot be combined"),
        ({"images": {"source": ["retrieve", "bing"], "index": "i"}}, "images.source.1", "not 'bing'"),
        ({"images": {"source": "generate"}}, "images", "generate needs `generator`"),
        ({"images": {"source": ["retrieve", "generate"], "index": "i"}}, "images", "generate needs `generator`"),
        ({"images": {"source": ["retrieve", "generate"], "generator": "g"}}, "images", "retrieve needs `index`"),
        ({"images": {"source": "retrieve", "index": "i", "generator": "g"}}, "images", "`generator` does not belong"),
        ({"images": {"source": "generate", "index": "i", "generator": "g"}}, "images", "`index` does not belong"),
        ({"images": {"source": "generate", "generator": ""}}, "images.generator", "at least 1"),
        ({"verification": {}}, "verification.model", "required"),
        ({"verification": {"model": "m", "calibrated": "t"}}, "verification.calibrated", "mean 'calibration'"),
        (
            {"images": {"source": "labelled", "table": "t"}, "verification": {"model": "m"}},
            "verification",
            "attributes of labelled ones are known",
        ),
        ({"budget": {}}, "budget.images", "required"),
        ({"budget": {"images": 0}}, "budget.images", "greater than or equal to 1"),
        ({"budget": {"images": 10**8 + 1}}, "budget.images", "less than or equal to 100000000"),
        ({"budget": {"images": 100, "first": 1}}, "budget.first", "greater than or equal to 2"),
        ({"budget": {"images": 100, "frist": 10}}, "budget.frist", "did you mean 'first'"),
        ({"tau": 1.5}, "tau", "less than 1"),
        ({"language_model": None}, "", "nothing to test"),
        ({"label_map": {"buss": [1]}}, "", "did you mean 'bus'"),
        ({"classifier": []}, "classifier", ""),
        ({"templates": {"sky": "a [CLASS]"}}, "templates", "must hold [VALUE] once"),
        (
            {"templates": {"sk": "[CLASS] [VALUE]"}, "attributes": {"sky": ["a", "b"]}, "language_model": None},
            "",
            "no attribute 'sk'; did you mean 'sky'",
        ),
        ({"classifier": {"a": "x:1", "A ": "x:2"}}, "classifier", "'A' is given twice"),
        ({"classifier": {"a": "x:1", "b": "x:1"}}, "classifier", "'x:1' is given twice"),
        ({"classifier": {}}, "classifier", "at least one"),
        ({"right": "top3"}, "right", "'top1', 'among_classes' or 'top5'"),
        ({"right": "among_classes", "classes": ["bus"]}, "", "two classes or more"),
        ({"label_map": {"bus": [True]}}, "label_map", "is neither a label's name nor its index"),
        ({"label_map": {"bus": [1.0]}}, "label_map", "is neither a label's name nor its index"),
        ({"images_per_caption": True}, "images_per_caption", "true is neither a number nor a text"),
        ({"classes": "All"}, "classes", "a list of names, or `all`, not 'All'"),
        ({"classes": ["b\0us"]}, "classes.0", "holds a NUL character"),
        ({"classifier": "table:a\0.csv"}, "classifier", "holds a NUL character"),
        (
            {"images": {"source": "labelled", "table": "t.csv", "columns": {"taget_class": "x"}}},
            "images.columns.taget_class",
            "did you mean 'target_class'",
        ),
    ],
)
def test_each_mistake_names_its_field(changes, field, words):
    with pytest.raises(ConfigError) as caught:
        read_audit({**GOOD, **changes})
    assert field in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a: [", "not a YAML file"),
        (b"", "found nothing"),
        (b"- a", "a list"),
        (b"task: a\ntau: 0.1\ntask: b", "the key 'task' is given twice.*line 3"),
        (b"images: {index: a, index: b}", "the key 'index' is given twice"),
        (b"[" * 20_000, "nested too deeply"),
        (b"\xff\xfe\x00binary", "not text in UTF-8"),
        (b"task: \x00", "not a YAML file"),
        (b"task: 2026-02-31", "not a YAML file"),
        (b"? [a, b]\n: c", "not a YAML file"),
    ],
)
def test_a_file_that_is_no_mapping(tmp_path, data, words):
    path = tmp_path / "audit.yaml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        read_audit(path)
    assert caught.value.location == str(path)
    assert "audit.yaml" in str(caught.value)


@pytest.mark.parametrize("source", ["a\0b", "/dev/zero", ".", ["a.yaml"], 3, None])
def test_what_is_no_audit_file_is_an_input_error(source):
    with pytest.raises(InputError):
        read_audit(source)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"tsak": "x"}, "tsak", "unknown key; did you mean 'task'"),
        ({"images": {"sorce": "retrieve"}}, "images.sorce", "did you mean 'source'"),
    ],
)
def test_an_unknown_key_is_named_before_the_key_that_is_missing_for_it(change, field, words):
    with pytest.raises(ConfigError, match=words) as caught:
        read_audit({**{key: value for key, value in GOOD.items() if key != "task"}, **change})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("onnx:net.onnx?labels=my%20names.txt&batch=2", "onnx:BASE/net.onnx?labels=BASE/my%20names.txt&batch=2"),
        ("table:../predictions.csv", "table:PARENT/predictions.csv"),
        ("table:s3://bucket/predictions.csv", "table:s3://bucket/predictions.csv"),
        ("onnx:/elsewhere/net.onnx", "onnx:/elsewhere/net.onnx"),
        ("open_clip:local-dir:clip?labels=bus,tram", "open_clip:local-dir:BASE/clip?labels=bus,tram"),
        ("timm:resnet18?weights=own.safetensors", "timm:resnet18?weights=BASE/own.safetensors"),
        ("torchvision:resnet50?weights=IMAGENET1K_V2", "torchvision:resnet50?weights=IMAGENET1K_V2"),
        ("http://host/predict?labels=a.txt", "http://host/predict?labels=a.txt"),
        ("world:resnet-control-0", "world:resnet-control-0"),
    ],
)
def test_paths_inside_specs_are_relative_to_the_file(tmp_path, spec, expected):
    base = tmp_path / "in here"
    base.mkdir()
    path = base / "audit.yaml"
    path.write_text(json.dumps({**GOOD, "classifier": [spec]}))
    quoted = expected.replace("=BASE", f"={quote(str(base))}")
    assert read_audit(path).classifier == [quoted.replace("BASE", str(base)).replace("PARENT", str(tmp_path))]


def test_a_file_that_is_absent(tmp_path):
    with pytest.raises(SourceError, match=r"nothing\.yaml: no such file"):
        read_audit(tmp_path / "nothing.yaml")


def test_schema_has_the_contract_keys():
    keys = set(AuditConfig.model_json_schema()["properties"])
    contract = "task classes classifier images language_model attributes images_per_caption seed tau alpha label_map"
    assert keys >= set(contract.split())


def test_places_of_verification_are_relative_to_the_file_and_specs_are_not(tmp_path):
    path = tmp_path / "audit.yaml"
    images = {"source": ["retrieve", "generate"], "index": "idx", "generator": "world:renderer"}
    verification = {"model": "world:clip", "calibration": "known.parquet"}
    path.write_text(json.dumps({**GOOD, "images": images, "verification": verification}))
    config = read_audit(path)
    assert config.images.sources == ("retrieve", "generate")
    assert config.images.generator == "world:renderer"
    assert config.verification is not None
    assert config.verification.calibration == str(tmp_path / "known.parquet")
    assert read_audit({**GOOD, "verification": {"model": "m"}}).verification.calibration is None


@pytest.mark.parametrize(
    "spec",
    [
        "http://me:hunter2@host/x",
        "http://host/x?api_key=hunter2",
        "openai:http://host/v1?token=hunter2#m",
        "http://host/x?Authorization=hunter2",
        "http://host/x?code=hunter2",
        "http://host/x?which=hunter2hunter2hunter2",
        "openai:https://host/sk-hunter2hunter2hunter2/v1#m",
    ],
)
def test_keys_in_a_models_url_are_refused(spec):
    with pytest.raises(SourceError, match="password or key in it is refused") as caught:
        read_audit({**GOOD, "classifier": ["world:x", spec]})
    assert "hunter2" not in str(caught.value)


def test_a_url_that_says_which_model_is_taken():
    spec = "http://host/x?model=resnet50-2026-11-22&top=5"
    assert read_audit({**GOOD, "classifier": spec}).classifiers == (spec,)


KEYS = "s3://KEY:hunter2@bucket/place"


@pytest.mark.parametrize(
    "changes",
    [
        {"images": {"source": "retrieve", "index": KEYS}},
        {"images": {"source": "generate", "generator": f"diffusers:local-dir:{KEYS}"}},
        {"verification": {"model": f"hf:{KEYS}"}},
        {"verification": {"model": "world:clip", "calibration": KEYS}},
        {"classifier": f"onnx:{KEYS}"},
    ],
)
def test_keys_in_a_place_are_refused_wherever_one_stands(changes):
    with pytest.raises(SourceError, match="keys in it is refused") as caught:
        read_audit({**GOOD, **changes})
    assert "hunter2" not in str(caught.value)


def test_a_label_maps_file_holds_names_and_indices_alone(tmp_path):
    (tmp_path / "map.json").write_text(json.dumps({"bus": [True], "boat": [1]}))
    with pytest.raises(ConfigError, match="True is neither"):
        read_audit({**GOOD, "label_map": str(tmp_path / "map.json")})
    (tmp_path / "map.json").write_text('{"bus": [1], "bus": [2]}')
    with pytest.raises(ConfigError, match="the key 'bus' is given twice") as caught:
        read_audit({**GOOD, "label_map": str(tmp_path / "map.json")})
    assert caught.value.field == "label_map"


def test_a_config_made_in_python_is_completed_like_a_file(tmp_path):
    (tmp_path / "map.json").write_text(json.dumps({"bus": [1, 2], "boat": ["ship"]}))
    fields = {**GOOD, "label_map": str(tmp_path / "map.json")}
    config = read_audit(AuditConfig.model_validate(fields))
    assert config == read_audit(fields) == read_audit(config)
    assert config.label_map == {"bus": [1, 2], "boat": ["ship"]}
    with pytest.raises(SourceError, match="password or key"):
        read_audit(AuditConfig.model_validate({**GOOD, "classifier": "http://me:hunter2@host/x"}))


def test_classifiers_may_have_short_names(tmp_path):
    path = tmp_path / "audit.yaml"
    path.write_text(json.dumps({**GOOD, "classifier": {"old": "onnx:a.onnx?labels=l.txt", "new": "onnx:b.onnx"}}))
    config = read_audit(path)
    assert config.classifiers == ("old", "new")
    assert config.specs["new"] == f"onnx:{tmp_path}/b.onnx"
    assert read_audit(GOOD).specs == {GOOD["classifier"]: GOOD["classifier"]}
