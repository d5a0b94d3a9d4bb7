"""What a config names on this machine, and what it names at the endpoint."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.audits.audit import audit_named
from c2b_ray.client.local_files import LocalConfig
from c2b_ray.errors import ConfigError

FIELDS = {
    "task": "t",
    "classes": ["bus"],
    "classifier": "world:clip",
    "images": {"source": "labelled", "table": "data/t"},
}


def local(base, kind="c2b", **fields):
    return LocalConfig(audit_named(kind), {**FIELDS, **fields} if kind == "c2b" else fields, base)


def uploaded(config):
    """The config, with the name of each file in place of its hash."""
    return config.with_uploads(lambda file: f"upload:{Path(file.path).name}")


@pytest.fixture
def base(tmp_path):
    for name in ("net.onnx", "w.safetensors", "photos.zip", "captions.csv", "names.txt", "p.csv", "notes.docx"):
        (tmp_path / name).write_text("bus\nboat\n")
    (tmp_path / "photos/bus").mkdir(parents=True)
    (tmp_path / "photos/bus/1.png").write_bytes(b"x")
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"image": [b"x"], "target_class": ["bus"]}), tmp_path / "whole.parquet")
    return tmp_path


def test_what_the_endpoint_has_is_left_as_it_is(base):
    for table in ("data/t.csv", "upload:" + "0" * 64, "s3://bucket/t.parquet"):
        config = local(base, images={"source": "labelled", "table": table})
        assert not config.files
        assert uploaded(config) == {**FIELDS, "images": {"source": "labelled", "table": table}}


@pytest.mark.parametrize(
    ("spec", "named", "kinds"),
    [
        ("onnx:net.onnx", "onnx:upload:net.onnx", ["onnx"]),
        (
            "onnx:net.onnx?mean=0.5&labels=names.txt",
            "onnx:upload:net.onnx?mean=0.5&labels=upload:names.txt",
            ["onnx", "text"],
        ),
        ("onnx:net.onnx?labels=a,b", "onnx:upload:net.onnx?labels=a,b", ["onnx"]),
        ("timm:resnet18?weights=w.safetensors", "timm:resnet18?weights=upload:w.safetensors", ["safetensors"]),
        ("table:p.csv?file=path", "table:upload:p.csv?file=path", ["csv"]),
    ],
)  # fmt: skip
def test_files_of_a_classifier(base, spec, named, kinds):
    config = local(base, classifier=spec)
    assert sorted(file.kind for file in config.files) == sorted(kinds)
    assert uploaded(config)["classifier"] == {spec: named}, "it is called as in the file, not by a hash"
    config = local(base, classifier={"mine": spec})
    assert uploaded(config)["classifier"] == {"mine": named}


def test_an_absolute_path_is_shown_by_its_name(base):
    config = local(base, classifier=f"onnx:{base}/net.onnx")
    assert uploaded(config)["classifier"] == {"onnx:net.onnx": "onnx:upload:net.onnx"}
    (base / "b").mkdir()
    (base / "b/net.onnx").write_text("another")
    both = local(base, classifier=["onnx:net.onnx", "onnx:b/net.onnx"])
    assert uploaded(both)["classifier"] == ["onnx:upload:net.onnx", "onnx:upload:net.onnx"], "names would be one"


@pytest.mark.parametrize(
    ("table", "kind", "is_packed"),
    [("photos", "table", True), ("photos.zip", "images", False), ("whole.parquet", "table", False)],
)
def test_labelled_images(base, table, kind, is_packed):
    config = local(base, images={"source": "labelled", "table": table})
    (file,) = config.files
    assert (file.field, file.kind, file.images is not None) == ("images.table", kind, is_packed)
    assert uploaded(config)["images"]["table"] == f"upload:{table}"


def test_the_root_of_a_table_goes_with_it(base):
    (base / "t.csv").write_text("image,target_class\nbus/1.png,bus\n")
    config = local(base, images={"source": "labelled", "table": "t.csv", "root": "photos", "columns": {"key": "image"}})
    (file,) = config.files
    assert file.images.root == str(base / "photos")
    assert file.images.columns == {"key": "image"}
    assert uploaded(config)["images"] == {"source": "labelled", "table": "upload:t.csv", "columns": {"key": "image"}}


def test_a_table_most_of_whose_images_lie_elsewhere_is_refused_as_by_the_audit_itself(base):
    (base / "lists").mkdir()
    (base / "lists/t.csv").write_text("image,target_class\n../photos/bus/1.png,bus\n")
    with pytest.raises(ConfigError, match=r"images\.root: 1 of 1 images do not lie below .*write `root: .*photos/bus`"):
        local(base, images={"source": "labelled", "table": "lists/t.csv"})
    assert local(base, images={"source": "labelled", "table": "lists/t.csv", "root": "photos"}).files


def test_each_class_may_have_a_column(base):
    (base / "photos/t.csv").write_text("image,bus,boat\nbus/1.png,1,0\n")
    columns = {"target_class": ["bus", "boat"]}
    config = local(base, images={"source": "labelled", "table": "photos/t.csv", "columns": columns})
    assert config.files[0].images.columns == columns
    assert config.files[0].size()


def test_the_same_file_is_uploaded_once(base):
    read = {"model": "world:clip", "calibration": "whole.parquet"}
    images = {"source": "labelled", "table": "whole.parquet", "read": read}
    config, sent = local(base, images=images, attributes={"weather": ["fog", "rain"]}), []
    fields = config.with_uploads(lambda file: sent.append(file) or "upload:x")
    assert len(sent) == len(config.files) == 1
    assert (fields["images"]["table"], fields["images"]["read"]["calibration"]) == ("upload:x", "upload:x")


def test_a_label_map_is_read_and_cut_to_the_classes(base):
    (base / "map.json").write_text(json.dumps({"bus": ["school bus"], "boat": [3]}))
    assert uploaded(local(base, label_map="map.json"))["label_map"] == {"bus": ["school bus"]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"images": {"source": "labelled", "table": "photo"}},
            r"images\.table: photo: no such file or folder in .*data/…, upload:",
        ),
        (
            {"images": {"source": "retrieve", "index": "photos"}, "attributes": {"weather": ["fog", "rain"]}},
            r"images\.index: photos lies on this machine: an index is not uploaded",
        ),
        ({"images": {"source": "labelled", "table": "~nobody/t.csv"}}, r"images\.table: ~nobody/t.csv: no such file"),
        ({"images": {"source": "labelled", "table": "t" * 300}}, r"images\.table: t+: no such file"),
        ({"images": {"source": "labelled", "table": "a\0b"}}, r"images\.table: a\0b: no such file"),
        ({"classifier": "onnx:gone.onnx"}, r"classifier: gone\.onnx: no such file"),
        ({"classifier": "onnx:photos"}, r"classifier: .*photos: the endpoint takes a file that ends in \.onnx"),
        ({"classifier": "table:notes.docx"}, r"classifier: .*ends in \.parquet or \.pq or \.csv"),
        ({"classifier": "hf:./photos"}, r"classifier: \./photos lies on this machine: what `hf` names is not uploaded"),
    ],
)  # fmt: skip
def test_what_no_endpoint_takes_is_said_before_anything_is_sent(base, fields, message):
    with pytest.raises(ConfigError, match=message):
        local(base, **fields)


def test_a_folder_called_data_is_the_endpoints_unless_it_is_written_as_a_path(base):
    (base / "data/bus").mkdir()
    (base / "data/bus/1.png").write_bytes(b"x")
    assert not local(base, images={"source": "labelled", "table": "data/bus"}).files
    assert [file.path for file in local(base, images={"source": "labelled", "table": "./data"}).files] == [
        str(base / "data")
    ]


def test_fields_that_are_wrong_are_left_to_the_endpoint(base):
    config = local(base, classifier="onnx:net.onnx", tau=7)
    assert not config.files
    assert uploaded(config) == {**FIELDS, "classifier": "onnx:net.onnx", "tau": 7}


def test_the_captions_of_a_dataset_in_the_words_of_an_audit(base):
    """Its file may say `generate` as `c2b audit` does; the endpoint takes the dataset's own words alone."""
    (base / "dataset.yaml").write_text(
        "captions: {file: captions.csv}\nclassifier: world:clip\n"
        "images: {source: generate, generator: 'world:renderer'}\n"
    )
    dataset = audit_named("dataset")
    config = LocalConfig(dataset, dataset.config_file.fields(base / "dataset.yaml"), base)
    assert [(file.field, file.kind) for file in config.files] == [("captions.file", "csv")]
    assert uploaded(config) == {
        "captions": {"file": "upload:captions.csv"}, "classifier": "world:clip",
        "images": {"generate": {"model": "world:renderer"}},
    }  # fmt: skip
