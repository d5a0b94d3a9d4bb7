"""Documents that hold a key twice or are nested too deeply are named as that, whoever reads them."""

import pytest

from c2b_ray.errors import ConfigError, InputError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.captioned import _unwrapped
from c2b_ray.models.index.plan import Manifest
from c2b_ray.models.spec_options import names_of, read_labels
from c2b_ray.serving.app import placements
from c2b_ray.storage.manifest import parse_json, read_json, read_yaml

DEEP = "[" * 200_000
READERS = {
    "JSON": read_json,
    "YAML": read_yaml,
    "labels": read_labels,
    "script": lambda path: catalog.captioner(f"scripted:{path}"),
    "placement": placements,
    "index": lambda path: Manifest.from_json(path.read_text(), "an index"),
}


@pytest.mark.parametrize("read", READERS.values(), ids=list(READERS))
def test_every_reader_names_a_key_twice_and_deep_nesting(tmp_path, read):
    path = tmp_path / "document.json"
    for text, words in (('{"a": [], "a": []}', "the key 'a' is given twice"), (DEEP, "it is nested too deeply")):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read(path)


def test_an_error_names_the_file_and_the_line(tmp_path):
    (tmp_path / "a.yaml").write_text("a: 1\nb: 2\na: 3\n")
    with pytest.raises(ConfigError, match=r"a\.yaml: not a YAML file: the key 'a' is given twice .*line 3") as caught:
        read_yaml(tmp_path / "a.yaml")
    assert caught.value.location == str(tmp_path / "a.yaml")


def test_what_a_model_or_a_graph_says_is_taken_as_text_where_it_is_no_json():
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    assert _unwrapped('{"answer": "dark"}') == "dark"
    assert _unwrapped(f'{{"answer": {DEEP}}}') == f'{{"answer": {DEEP}}}'
    assert names_of('["bus", "boat"]', "m") == ["bus", "boat"]
    assert names_of(f"bus,{DEEP}", "m") == ["bus", DEEP]
    with pytest.raises(WeightsError, match="neither JSON nor a Python list or dict"):
        names_of(DEEP, "m")
