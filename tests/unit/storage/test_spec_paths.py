"""A spec without its paths is the same wherever its files lie."""

from pathlib import Path
from urllib.parse import quote

import pytest

from c2b_ray.models.catalog import parse
from c2b_ray.storage.confined import located, without_paths


@pytest.mark.parametrize(
    ("spec", "bare"),
    [
        ("onnx:net.onnx?labels=names.txt&size=64", "onnx:?labels=&size=64"),
        ("timm:resnet18?weights=own.safetensors", "timm:resnet18?weights="),
        ("timm:resnet18?labels=bus,boat", "timm:resnet18?labels=bus,boat"),
        ("open_clip:local-dir:models/clip", "open_clip:local-dir:"),
        ("hf:./model", "hf:"),
        ("world:renderer?mislabel=0.5", "world:renderer?mislabel=0.5"),
        ("http://host/model?labels=/x", "http://host/model?labels=/x"),
    ],
)
def test_paths_and_nothing_else_are_left_out(spec, bare):
    assert {without_paths(located(spec, Path(folder))) for folder in ("/data/one", "/home/two")} == {bare}


@pytest.mark.parametrize("name", ["a+b.safetensors", "a b.safetensors", "a%b&c.safetensors"])
def test_a_path_stays_the_same_file_whatever_its_signs(name, tmp_path):
    spec = located(f"timm:resnet18?weights={quote(name, safe='+ ')}&size=64", tmp_path)
    assert parse(spec).options == {"weights": str(tmp_path / name), "size": "64"}
