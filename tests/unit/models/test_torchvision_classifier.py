"""The names, weights and preprocessing of `torchvision:` specs, and a real MobileNet where it is at hand."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import catalog
from c2b_ray.models.torchvision_classifier import _preprocessing
from c2b_ray.roles import Classifier, Pixels
from c2b_ray.steps.decode import decode

REAL = Path(__file__).resolve().parents[4] / "shared" / "real"
RESNET18 = torchvision.models.ResNet18_Weights.DEFAULT


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("torchvision") / "w.safetensors"
    save_file(torchvision.models.squeezenet1_1(num_classes=3).state_dict(), path)
    return path


def test_the_last_layer_says_how_many_classes_there_are(file: Path) -> None:
    assert catalog.classifier(f"torchvision:squeezenet1_1?weights={file}").labels == ("label_0", "label_1", "label_2")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ([256], [224], [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])),
        ("?mean=0.5&std=0.25", ([256], [224], [0.5] * 3, [0.25] * 3)),
        ("?mean=0.1,0.2,0.3", ([256], [224], [0.1, 0.2, 0.3], [0.229, 0.224, 0.225])),
        ("?size=112", ([128], [112], [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])),  # 256 × 112/224
        ("?size=112&resize=120", ([120], [112], [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])),
        ("?crop=100", ([256], [100], [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])),
    ],
)
def test_options_override_the_preprocessing(query: str, expected: tuple[Any, ...]) -> None:
    found = _preprocessing(catalog.parse(f"torchvision:resnet18{query}"), RESNET18)
    assert (found.resize_size, found.crop_size, list(found.mean), list(found.std)) == expected


def test_what_a_file_does_not_say_is_named_as_an_assumption_until_the_spec_states_it(
    file: Path, tmp_path: Path
) -> None:
    (tmp_path / "names.txt").write_text("a\nb\nc\n")

    def assumed(options: str) -> dict[str, str]:
        spec = f"torchvision:squeezenet1_1?weights={file}{options}"
        known = catalog.describe("classifier", spec)
        assert known is not None
        assert known.facts == catalog.description_of(catalog.classifier(spec)).facts
        return {fact.name: fact.option for fact in known.facts if fact.assumed}

    assert assumed("") == {"label names": "labels", "input size": "size", "normalisation": "mean"}
    assert assumed(f"&labels={tmp_path / 'names.txt'}&mean=0.5&std=0.5&resize=64&crop=64") == {}


def test_a_thousand_classes_are_taken_for_imagenets_and_said(tmp_path: Path) -> None:
    save_file(torchvision.models.squeezenet1_1().state_dict(), tmp_path / "w.safetensors")
    known = catalog.describe("classifier", f"torchvision:squeezenet1_1?weights={tmp_path / 'w.safetensors'}")
    assert known is not None
    assert known.labels[0] == "tench"
    fact = next(fact for fact in known.facts if fact.name == "label names")
    assert (fact.assumed, fact.option) == (True, "labels")
    published = catalog.describe("classifier", "torchvision:squeezenet1_1")
    assert published is not None
    assert published.facts
    assert not any(fact.assumed for fact in published.facts)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet5", "did you mean 'resnet50'"),
        ("fasterrcnn_resnet50_fpn", "torchvision has no classifier"),
        ("resnet50?weights=IMAGENET1K_V3", "did you mean 'IMAGENET1K_V2'"),
        ("resnet50?weight=DEFAULT", "did you mean 'weights'"),
    ],
)
def test_names_that_mean_nothing_offer_the_nearest(name: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        catalog.classifier(f"torchvision:{name}")


@pytest.mark.parametrize("query", ["mean=grey", "mean=1,2", "std=0", "std=inf", "size=0", "crop=-3", "batch=x"])
def test_numbers_are_checked(file: Path, query: str) -> None:
    with pytest.raises(SpecError, match=query.partition("=")[0]):
        catalog.classifier(f"torchvision:squeezenet1_1?weights={file}&{query}")


def test_means_of_pixels_from_0_to_255_are_refused_with_those_of_pixels_from_0_to_1(file: Path) -> None:
    for query, fitting in (("mean=123.675,116.28,103.53", "mean=0.485,0.456,0.406"), ("std=58.395", "std=0.229")):
        with pytest.raises(SpecError, match=f"is of pixels from 0 to 255, .* give {fitting}"):
            catalog.describe("classifier", f"torchvision:squeezenet1_1?weights={file}&{query}")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shufflenet_v2_x0_5", {}),
        ("mnasnet0_5", {}),
        ("mobilenet_v3_small", {}),
        ("regnet_y_400mf", {}),
        ("googlenet", {"aux_logits": True, "init_weights": False}),
        ("googlenet", {"aux_logits": False, "init_weights": False}),
    ],
)
def test_every_way_of_naming_the_last_layer(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    module = torchvision.models.get_model(name, weights=None, num_classes=3, **arguments)
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    assert len(catalog.classifier(f"torchvision:{name}?weights={tmp_path / 'w.safetensors'}").labels) == 3


def test_weights_of_another_architecture_are_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"missing \(conv1\.weight, bn1\.weight"):
        catalog.classifier(f"torchvision:resnet18?weights={file}")
    with pytest.raises(WeightsError, match=r"12 missing \(features\.5\.squeeze"):
        catalog.classifier(f"torchvision:squeezenet1_0?weights={file}")
    torch.save({}, tmp_path / "w.pth")
    with pytest.raises(WeightsError, match="are pickles"):
        catalog.classifier(f"torchvision:resnet18?weights={tmp_path / 'w.pth'}")


def test_published_weights_that_cannot_be_downloaded_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def hub(*_: object, **__: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr(torchvision.models._api, "load_state_dict_from_url", hub)
    with pytest.raises(SpecError, match=r"squeezenet1_1-b8a52dc0\.pth cannot be downloaded.*\?weights=PATH"):
        catalog.classifier("torchvision:squeezenet1_1")


class Payload:
    """Unpickling it leaves a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_published_weights_run_no_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    cache = tmp_path / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    name = torchvision.models.SqueezeNet1_1_Weights.DEFAULT.url.rpartition("/")[2]
    torch.manual_seed(0)
    state = torchvision.models.squeezenet1_1().state_dict()
    torch.save(state, cache / name)
    classifier = catalog.classifier("torchvision:squeezenet1_1?device=cpu")
    assert classifier.labels[0] == "tench"
    torch.save({**state, "x": Payload(tmp_path / "ran")}, cache / name)
    with pytest.raises(WeightsError, match="cannot be used"):
        catalog.classifier("torchvision:squeezenet1_1?device=cpu")
    (cache / name).write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(WeightsError, match="cannot be used"):
        catalog.classifier("torchvision:squeezenet1_1?device=cpu")
    assert not (tmp_path / "ran").exists()


def entry_categories(classifier: Classifier, images: list[Pixels]) -> list[str]:
    """The likeliest of the 16 entry-level categories: a category's probability is the mean over its classes."""
    categories = json.loads((REAL / "cue-conflict" / "entry_categories.json").read_text())
    logits = classifier.logits(images, [""] * len(images)).astype(np.float64)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    means = np.stack([odds[:, classes].mean(axis=1) for classes in categories.values()], axis=1)
    return [list(categories)[i] for i in means.argmax(axis=1)]


@pytest.mark.skipif(not REAL.is_dir(), reason="no real weights at ../shared/real")
def test_a_real_mobilenet_agrees_with_its_onnx_twin() -> None:
    rows = list(csv.DictReader((REAL / "cue-conflict" / "labels.csv").read_text().splitlines()))
    rows = [row for row in rows if row["shape"] == row["texture"]][:16]
    truth = [row["shape"] for row in rows]
    images = [decode((REAL / "cue-conflict" / row["file"]).read_bytes()) for row in rows]
    file = f"{REAL}/mobilenet_v2_imagenet1k"
    mine = catalog.classifier(f"torchvision:mobilenet_v2?weights={file}.safetensors&mean=0.5&std=0.5&resize=224")
    twin = catalog.classifier(f"onnx:{file}.onnx?mean=0.5&std=0.5")
    assert mine.labels[0] == "tench"
    mine_says, twin_says = entry_categories(mine, images), entry_categories(twin, images)
    # Not all: the twin pads as TensorFlow does, which moves every convolution of stride 2 by half a pixel.
    assert np.mean([a == b for a, b in zip(mine_says, twin_says, strict=True)]) > 0.6
    assert np.mean([a == b for a, b in zip(twin_says, truth, strict=True)]) > 0.6
