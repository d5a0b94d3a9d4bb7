import json

import pytest

from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.errors import ConfigError, SourceError

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
        ({"images": {"source": ["retrieve", "labelled"], "index": "i", "table": "t"}}, "images", "stand alone"),
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
            "labelled ones are known",
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
        ({"right": "top3"}, "right", "'top1', 'among_classes' or 'top5'"),
        ({"right": "among_classes", "classes": ["bus"]}, "", "two classes or more"),
        ({"label_map": {"bus": [True]}}, "label_map", "is neither a label's name nor its index"),
        ({"label_map": {"bus": [1.0]}}, "label_map", "is neither a label's name nor its index"),
    ],
)
def test_each_mistake_names_its_field(changes, field, words):
    with pytest.raises(ConfigError) as caught:
        read_audit({**GOOD, **changes})
    assert field in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(("text", "words"), [("a: [", "not a YAML file"), ("", "found nothing"), ("- a", "a list")])
def test_a_file_that_is_no_mapping(tmp_path, text, words):
    path = tmp_path / "audit.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        read_audit(path)
    assert "audit.yaml" in str(caught.value)


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
