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
        ({"classes": []}, "classes", "at least 1"),
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
        ({"tau": 1.5}, "tau", "less than 1"),
        ({"language_model": None}, "", "nothing to test"),
        ({"label_map": {"buss": [1]}}, "", "did you mean 'bus'"),
        ({"classifier": []}, "classifier", ""),
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
