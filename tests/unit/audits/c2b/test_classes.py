"""`classes: all`: the classes of the label map, or of the classifier."""

import json

import pytest
from jsonschema import Draft202012Validator

from c2b_ray.audits.c2b.classification import with_classes
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.errors import ConfigError

AUDIT = {
    "task": "t",
    "classes": "all",
    "images": {"source": "generate", "generator": "x:y"},
    "attributes": {"weather": ["fog", "rain"]},
}


def table(tmp_path, name, labels):
    path = tmp_path / f"{name}.csv"
    path.write_text("file,label\n" + "".join(f"{n}.jpg,{label}\n" for n, label in enumerate(labels)))
    return f"table:{path}"


def classes(tmp_path, *specs, **more):
    return with_classes(read_audit({**AUDIT, "classifier": list(specs), **more})).classes


def test_the_classifiers_labels_or_the_maps_keys(tmp_path):
    one, other = (table(tmp_path, name, ["tram", "bus"]) for name in ("one", "other"))
    assert classes(tmp_path, one, other) == ["bus", "tram"]
    (tmp_path / "map.json").write_text(json.dumps({"vehicle": [0, 1]}))
    assert classes(tmp_path, one, label_map=str(tmp_path / "map.json")) == ["vehicle"]
    assert classes(tmp_path, one, label_map={"vehicle": ["bus"]}) == ["vehicle"]


def test_of_a_labelled_table_all_are_those_that_it_shows(tmp_path):
    one = table(tmp_path, "one", ["tram", "bus", "car"])
    (tmp_path / "t.csv").write_text("image,target_class\na.jpg,Tram\nb.jpg,\nc.jpg,car\nd.jpg,boat\n")
    images = {"source": "labelled", "table": str(tmp_path / "t.csv")}
    assert classes(tmp_path, one, images=images) == ["car", "tram"]
    with pytest.raises(ConfigError, match=r"no row of .*t.csv has one of the labels of table:"):
        classes(tmp_path, table(tmp_path, "other", ["cat", "dog"]), images=images)


def test_what_cannot_be_all_is_refused(tmp_path):
    one, other = table(tmp_path, "one", ["tram", "bus"]), table(tmp_path, "other", ["tram", "car"])
    with pytest.raises(ConfigError, match="different labels"):
        classes(tmp_path, one, other)
    with pytest.raises(ConfigError, match="'Crane' and 'crane' are the same name"):
        classes(tmp_path, table(tmp_path, "cranes", ["crane", "Crane"]))
    with pytest.raises(ConfigError, match="two classes or more"):
        classes(tmp_path, one, label_map={"vehicle": ["bus"]}, right="among_classes")
    with pytest.raises(ConfigError, match="name at least one class"):
        read_audit({**AUDIT, "classifier": one, "classes": []})


def test_the_printed_schema_takes_all():
    asked = {**AUDIT, "classifier": "x:y"}
    schema = Draft202012Validator(AuditConfig.model_json_schema())
    assert schema.is_valid(asked)
    assert not schema.is_valid({**asked, "classes": []})
