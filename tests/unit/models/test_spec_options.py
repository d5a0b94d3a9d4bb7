"""The table of `c2b models SCHEME` is the one that loaders check options against, and the guide agrees with it."""

import json
import re
from pathlib import Path

import pytest

from c2b_ray.cli.models import models
from c2b_ray.errors import ConfigError, InputError, SpecError
from c2b_ray.models import (
    catalog,
    open_clip_encoder,
    prediction_columns,
    tensor_names,
    timm_classifier,
    torchvision_classifier,
    zero_shot,
)
from c2b_ray.models.spec_options import SCHEMES, label_names, read_labels

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
WITH_OPTIONS = [key for key, table in SCHEMES.items() if table.options]


def refusal(role, spec):
    """What is said of a model that does not exist, by whatever library notices it."""
    try:
        catalog.describe_spec(role, spec)
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("role", "scheme"), WITH_OPTIONS, ids=[f"{a} {b}" for a, b in WITH_OPTIONS])
def test_a_loader_knows_the_options_of_the_table_and_no_other(role, scheme):
    spec = catalog.Spec(f"{scheme}:there-is-none", scheme, "there-is-none", {"optoin": "1", "labels": "a,b"})
    if "labels" not in SCHEMES[role, scheme].options:
        spec.options.pop("labels")
    with pytest.raises(InputError, match="unknown option 'optoin'"):
        catalog.describe_spec(role, spec)
    for option in SCHEMES[role, scheme].options:
        one = catalog.Spec(spec.text, scheme, spec.name, {"labels": "a,b"} if "labels" in spec.options else {})
        one.options[option] = one.options.get(option, "1")
        assert "unknown option" not in refusal(role, one), option


def test_options_that_loaders_read_together_are_in_the_table():
    held = {key: set(table.options) for key, table in SCHEMES.items()}
    assert held["classifier", "timm"] >= {*timm_classifier._PREPROCESSING, *tensor_names.OPTIONS}
    assert held["classifier", "torchvision"] >= {*torchvision_classifier._PREPROCESSING, *tensor_names.OPTIONS}
    assert held["classifier", "table"] == {"labels", "head", *prediction_columns.OPTIONS}
    of_encoder = {*open_clip_encoder.VARIANT, *open_clip_encoder.PREPROCESSING, *tensor_names.OPTIONS, "weights"}
    assert held["encoder", "open_clip"] >= of_encoder
    assert held["classifier", "open_clip"] == held["encoder", "open_clip"] | {*zero_shot._ZERO_SHOT_OPTIONS}


def test_the_guide_names_no_option_that_the_table_lacks():
    page = (GUIDE / "classifiers.md").read_text(encoding="utf-8").partition("## A URL")[0]
    named = set(re.findall(r"`\??(\w+)=", page)) - {"options"}  # which is an argument of another library
    assert named
    assert named <= set(SCHEMES["classifier", "onnx"].options)


def test_every_scheme_of_the_table_is_in_the_catalogue():
    assert set(SCHEMES) <= set(catalog.CATALOG)


def test_the_command_prints_a_scheme_and_offers_the_nearest(capsys):
    models("onnx", False)
    printed = capsys.readouterr().out
    assert "normalisation" in printed
    assert re.search(r"^    preprocess=   +imagenet, unit", printed, re.MULTILINE)
    models("onnx:net.onnx", True)
    assert "preprocess" in json.loads(capsys.readouterr().out)["classifier"]["options"]
    with pytest.raises(ConfigError, match=r"did you mean 'onnx'\?"):
        models("onx", False)
    models(None, False)
    roles = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert all(re.match(r"\w+  +\S", line) for line in roles)  # names and schemes are apart


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", '{"0": "bus", "1": "boat"}'), ("a.json", '{"boat": 1, "bus": 0}'), ("a.json", '["bus", "boat"]'),
     ("a.json", '{"0": ["n02924116", "bus"], "1": ["n02858304", "boat"]}'),
     ("a.json", '{"id2label": {"0": "bus", "1": "boat"}, "hidden": [1]}'), ("a.yaml", "nc: 2\nnames: [bus, boat]\n"),
     ("a.yml", "names:\n  0: bus\n  1: boat\n"), ("a.txt", "bus\nboat\n"), ("a.txt", "0 bus\n1 boat\n"),
     ("a.txt", "1: boat\n0: bus"), ("a.txt", "2, boat\n1, bus"), ("a.csv", "index,name\n0,bus\n1,boat\n")],
)  # fmt: skip
def test_label_files_are_read_in_the_forms_that_training_scripts_write(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_labels(tmp_path / name) == ("bus", "boat")


@pytest.mark.parametrize(
    "names", [("1 finger", "2 fingers"), ("0 stars", "1 star"), ("3 Series", "5 Series"), ("1", "2"), ("0 bus", "boat")]
)
def test_numbers_that_are_part_of_the_names_stay(tmp_path, names):
    (tmp_path / "a.txt").write_text("\n".join(names))
    assert read_labels(tmp_path / "a.txt") == names


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "2 fingers\n1 finger", r"not in the order of the numbers: the first is '2 fingers'"),
        ("a.json", '{"1": "bus", "2": "boat"}', "begins at 1"),
        ("a.json", '"bus"', "expected a list of strings in the order of the outputs, or a mapping"),
        ("a.txt", "'bus'\n'boat'", "every line is quoted"),
    ],
)
def test_label_files_that_leave_the_order_open_are_refused_once(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError, match=message) as raised:
        read_labels(tmp_path / name)
    assert str(raised.value).count(name) == 1


def test_label_names_of_another_number_show_what_the_file_holds(tmp_path):
    (tmp_path / "a.csv").write_text("name\nbus\nboat\n")
    with pytest.raises(SpecError, match=r"3 label names for 2 outputs; .*a\.csv has name, bus, .*one name a line"):
        label_names(catalog.parse(f"torchvision:x?labels={tmp_path / 'a.csv'}"), 2, None)
