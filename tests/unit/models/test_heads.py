"""What the outputs of a classifier mean, in every library: sigmoids stay sigmoids, and one output is two labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from numpy.testing import assert_allclose
from safetensors.torch import save_file
from timm.models import save_for_hf
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

import c2b_ray
from c2b_ray.errors import ConfigError, SourceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.models.heads import HEADS
from c2b_ray.models.memory_classifier import hold
from c2b_ray.roles import Classifier, Pixels
from tests.support.sigmoid_graphs import of_colour, scores_of_colours

COLOURS = [(0.9, 0.1, 0.2), (0.2, 0.8, 0.4), (0.5, 0.5, 0.9)]
PICTURES: list[Pixels] = [of_colour(*colour) for colour in COLOURS]
WEIGHT, BIAS = np.array([[6.0, -1], [0, 5], [-4, 0]]), np.array([-2.0, -1])
MEANS = np.stack([picture.mean(axis=(0, 1)) / 255 for picture in PICTURES])
LOGITS = MEANS @ WEIGHT + BIAS


def answered(classifier: Classifier) -> np.ndarray:
    return classifier.logits(PICTURES, ["a", "b", "c"]).astype(np.float64)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    result: np.ndarray = 1 / (1 + np.exp(-logits))
    return result


def fact_of(spec: str) -> c2b_ray.roles.ModelFact | None:
    known = catalog.described("classifier", spec)
    return next((fact for fact in known.facts if fact.name == "head"), None)


# ONNX


@pytest.mark.parametrize("ends_in_sigmoid", [True, False])
def test_an_onnx_head_is_read_from_the_graph_or_stated(tmp_path: Path, ends_in_sigmoid: bool) -> None:
    path = scores_of_colours(tmp_path / "m.onnx", WEIGHT, BIAS, ["car", "person"], ends_in_sigmoid)
    spec = f"onnx:{path}?preprocess=unit"
    plain = catalog.described("classifier", spec)
    assert plain.head == ("sigmoid" if ends_in_sigmoid else "softmax")
    stated = catalog.classifier(f"{spec}&head=sigmoid")
    assert catalog.description_of(stated).head == "sigmoid"
    assert stated.labels == ("car", "person")
    assert_allclose(answered(stated), LOGITS, atol=1e-4)
    if ends_in_sigmoid:
        fact = fact_of(spec)
        assert fact is not None
        assert fact.source == "the graph's last node, Sigmoid"
    else:  # another meaning of the same numbers is another model
        assert stated.revision != plain.revision


@pytest.mark.parametrize("ends_in_sigmoid", [True, False])
def test_one_output_is_the_score_of_one_label(tmp_path: Path, ends_in_sigmoid: bool) -> None:
    path = scores_of_colours(tmp_path / "m.onnx", WEIGHT[:, :1], BIAS[:1], ["car"], ends_in_sigmoid)
    classifier = catalog.classifier(f"onnx:{path}?preprocess=unit")
    assert classifier.labels == ("not car", "car")
    assert catalog.description_of(classifier).head == "softmax"  # the two exclude each other
    logits = answered(classifier)
    assert_allclose(logits[:, 0], 0)
    assert_allclose(sigmoid(logits[:, 1]), sigmoid(LOGITS[:, 0]), atol=1e-6)
    stated = catalog.classifier(f"onnx:{path}?preprocess=unit&head=sigmoid")
    assert (stated.labels, catalog.description_of(stated).head) == (("car",), "sigmoid")
    assert_allclose(answered(stated)[:, 0], logits[:, 1])
    assert stated.revision != classifier.revision
    names = tmp_path / "names.txt"
    names.write_text("cat\ndog\n")
    assert catalog.classifier(f"onnx:{path}?preprocess=unit&labels={names}").labels == ("cat", "dog")
    names.write_text("cat\ndog\nowl\n")
    with pytest.raises(SpecError, match="3 label names for one output"):
        catalog.classifier(f"onnx:{path}?preprocess=unit&labels={names}")
    with pytest.raises(SpecError, match="softmax is 1 for every picture"):
        catalog.classifier(f"onnx:{path}?preprocess=unit&head=softmax")
    with pytest.raises(SpecError, match="head='sigmoids'; did you mean 'sigmoid'"):
        catalog.classifier(f"onnx:{path}?preprocess=unit&head=sigmoids")


def test_a_probability_of_one_or_zero_is_a_finite_logit(tmp_path: Path) -> None:
    path = scores_of_colours(tmp_path / "m.onnx", 1000 * WEIGHT, 1000 * BIAS, ["car", "person"])
    logits = answered(catalog.classifier(f"onnx:{path}?preprocess=unit"))
    assert np.isfinite(logits).all()
    assert_allclose(sigmoid(logits), (LOGITS > 0).astype(float), atol=1e-6)


# Torch: timm, torchvision, transformers


def timm_folder(path: Path, outputs: int) -> str:
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=outputs)
    names = ["car", "person", "dog"][:outputs]
    save_for_hf(model, path, safe_serialization=True, model_config={"label_names": names})
    return f"timm:{path}"


def torchvision_file(path: Path, outputs: int) -> str:
    torch.manual_seed(0)
    save_file(torchvision.models.squeezenet1_1(num_classes=outputs).state_dict(), path)
    names = path.with_suffix(".txt")
    names.write_text("\n".join(["car", "person", "dog"][:outputs]))
    return f"torchvision:squeezenet1_1?weights={path}&labels={names}"


def hf_folder(path: Path, outputs: int, problem: str | None = None) -> str:
    torch.manual_seed(0)
    names = ["car", "person", "dog"][:outputs]
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8,
        id2label=dict(enumerate(names)), label2id={name: i for i, name in enumerate(names)},
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(path)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(path)
    about = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**about, "problem_type": problem}))
    return f"hf:{path}"


@pytest.mark.parametrize("made", [timm_folder, torchvision_file, hf_folder])
def test_a_torch_model_of_one_output_has_two_labels(tmp_path: Path, made: object) -> None:
    assert callable(made)
    spec = made(tmp_path / ("m.safetensors" if made is torchvision_file else "m"), 1)
    classifier = catalog.classifier(spec)
    assert classifier.labels == ("not car", "car")
    logits = answered(classifier)
    assert logits.shape == (3, 2)
    assert (logits[:, 0] == 0).all()
    assert (logits[:, 1] != 0).all()
    assert classifier.features(PICTURES).shape[0] == 3  # the layer of the one output is still found
    assert catalog.described("classifier", spec).revision == classifier.revision
    fact = fact_of(spec)
    assert fact is not None
    assert "one sigmoid: the score of 'car', against 'not car'" in fact.value


@pytest.mark.parametrize("made", [timm_folder, torchvision_file, hf_folder])
def test_a_torch_model_keeps_its_logits_when_its_head_is_stated(tmp_path: Path, made: object) -> None:
    assert callable(made)
    spec = made(tmp_path / ("m.safetensors" if made is torchvision_file else "m"), 3)
    plain, stated = spec, f"{spec}{'&' if '?' in spec else '?'}head=sigmoid"
    assert catalog.described("classifier", plain).head == "softmax"
    assert catalog.described("classifier", stated).head == "sigmoid"
    assert_allclose(answered(catalog.classifier(plain)), answered(catalog.classifier(stated)))
    assert catalog.described("classifier", plain).revision != catalog.described("classifier", stated).revision


def test_transformers_configs_say_their_head(tmp_path: Path) -> None:
    spec = hf_folder(tmp_path, 3, "multi_label_classification")
    assert catalog.described("classifier", spec).head == "sigmoid"
    fact = fact_of(spec)
    assert fact is not None
    assert fact.source == "config.json (problem_type)"
    assert catalog.described("classifier", f"{spec}?head=softmax").head == "softmax"
    with pytest.raises(SpecError, match="problem_type: regression"):
        catalog.described("classifier", hf_folder(tmp_path / "r", 1, "regression"))


# Models in memory


def test_models_in_memory_say_their_head() -> None:
    def scores(images: list[Pixels]) -> np.ndarray:
        return np.stack([image.mean(axis=(0, 1)) / 255 for image in images]) @ WEIGHT + BIAS

    (several,) = hold(c2b_ray.InMemory(scores, ["car", "person"], head="sigmoid")).values()
    assert (several.head, several.labels) == ("sigmoid", ("car", "person"))
    assert_allclose(answered(several), LOGITS, atol=1e-5)
    (one,) = hold(
        c2b_ray.InMemory(lambda images: sigmoid(scores(images)[:, 0]), ["car"], output="probabilities")
    ).values()
    assert (one.head, one.labels) == ("softmax", ("not car", "car"))
    assert_allclose(answered(one)[:, 1], LOGITS[:, 0], atol=1e-5)
    with pytest.raises(ConfigError, match="may be probabilities or logits"):
        hold(c2b_ray.InMemory(lambda images: sigmoid(scores(images)), ["car", "person"], head="sigmoid"))
    with pytest.raises(ConfigError, match="head: 'both' is none of softmax, sigmoid"):
        c2b_ray.InMemory(scores, ["car"], head="both")  # type: ignore[arg-type]


# Tables of predictions


def table(path: Path, text: str, query: str = "?head=sigmoid") -> Classifier:
    path.write_text(text)
    return catalog.classifier(f"table:{path}{query}")


def test_a_wide_table_of_sigmoids_need_not_sum_to_one(tmp_path: Path) -> None:
    text = "file,car,person\na,0.9,0.8\nb,0.1,0.25\nc,0,1\n"
    with pytest.raises(SourceError, match=r"sum to 1\.7"):
        table(tmp_path / "t.csv", text, "")
    found = table(tmp_path / "t.csv", text)
    assert (found.labels, catalog.description_of(found).head) == (("car", "person"), "sigmoid")
    assert_allclose(sigmoid(answered(found)), [[0.9, 0.8], [0.1, 0.25], [0, 1]], atol=1e-6)
    with pytest.raises(SourceError, match=r"'split' a label's probability\?"):
        table(tmp_path / "t.csv", "file,car,split\na,0.9,0\nb,0.1,1\n")


def test_a_table_of_one_score_has_one_label_against_all_else(tmp_path: Path) -> None:
    found = table(tmp_path / "t.csv", "file,car\na,0.9\nb,0.1\nc,0.5\n")
    assert (found.labels, catalog.description_of(found).head) == (("car",), "sigmoid")
    assert_allclose(sigmoid(answered(found)[:, 0]), [0.9, 0.1, 0.5], atol=1e-6)
    assert answered(found)[2].tolist() == [0]


def test_a_long_table_of_sigmoids_lists_several_labels_of_a_file(tmp_path: Path) -> None:
    text = "file,prediction,probability\na,car,0.9\na,person,0.8\nb,person,0.3\nc,car,0.1\n"
    assert_allclose(sigmoid(answered(table(tmp_path / "t.csv", text))), [[0.9, 0.8], [0, 0.3], [0.1, 0]], atol=1e-6)


def test_a_table_of_lists_has_files_without_any_label(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = {"file": ["a", "b", "c"], "predictions": [["car", "person"], [], ["person"]]}
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    found = catalog.classifier(f"table:{tmp_path / 't.parquet'}?head=sigmoid")
    assert found.labels == ("car", "person")
    assert_allclose(sigmoid(answered(found)), [[1, 1], [0, 0], [0, 1]], atol=1e-6)


def test_the_heads_are_two() -> None:
    assert HEADS == ("softmax", "sigmoid")
