"""The names, labels and weights of `timm:` specs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models import save_for_hf

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import catalog, weights


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("timm")
    save_for_hf(timm.create_model("test_resnet", num_classes=3), place, safe_serialization=True)
    return place


def test_weights_of_ones_own_say_how_many_classes_there_are(directory: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.json"
    names.write_text(json.dumps(["a", "b", "c"]))
    file = directory / "model.safetensors"
    assert catalog.classifier(f"timm:test_resnet?weights={file}").labels == ("label_0", "label_1", "label_2")
    assert catalog.classifier(f"timm:test_resnet?weights={file}&labels={names}").labels == ("a", "b", "c")
    names.write_text(json.dumps(["a", "b"]))
    with pytest.raises(SpecError, match="2 label names for 3 outputs"):
        catalog.classifier(f"timm:test_resnet?weights={file}&labels={names}")


def test_a_thousand_classes_are_imagenets(tmp_path: Path) -> None:
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "w.safetensors")
    labels = catalog.classifier(f"timm:test_resnet?weights={tmp_path / 'w.safetensors'}").labels
    assert len(labels) == 1000
    assert labels[0] == "tench, Tinca tinca"


def test_pickles_are_refused_even_where_timm_would_take_them(tmp_path: Path) -> None:
    save_for_hf(timm.create_model("test_resnet", num_classes=3), tmp_path, safe_serialization=False)
    assert (tmp_path / "pytorch_model.bin").exists()
    with pytest.raises(WeightsError, match="no such file"):
        catalog.classifier(f"timm:{tmp_path}")
    with pytest.raises(WeightsError, match="are pickles"):
        catalog.classifier(f"timm:test_resnet?weights={tmp_path / 'pytorch_model.bin'}")


def test_weights_that_do_not_fit_are_named(directory: Path, tmp_path: Path) -> None:
    tensors = weights.read_safetensors(directory / "model.safetensors")
    del tensors["bn1.weight"]
    save_file(tensors, tmp_path / "w.safetensors")
    with pytest.raises(WeightsError, match=r"1 missing \(bn1\.weight\)"):
        catalog.classifier(f"timm:test_resnet?weights={tmp_path / 'w.safetensors'}")
    with pytest.raises(WeightsError, match=r"no tensor 'head\.weight'"):
        catalog.classifier(f"timm:test_vit?weights={directory / 'model.safetensors'}")


@pytest.mark.parametrize(
    ("change", "reason"),
    [("{", "timm cannot build it"), ('{"architecture": "resnut"}', "Unknown model"), ("{}", "timm cannot build it")],
)
def test_a_config_that_says_nothing_is_refused(directory: Path, tmp_path: Path, change: str, reason: str) -> None:
    (tmp_path / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    (tmp_path / "config.json").write_text(change)
    with pytest.raises(WeightsError, match=reason):
        catalog.classifier(f"timm:local-dir:{tmp_path}")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resnet5", "did you mean 'resnet50'"),
        ("resnet50.a1_in1", "did you mean 'resnet50.a1_in1k'"),
        ("resnet50?label=x", "did you mean 'labels'"),
        ("test_resnet?device=gpu9", "no device 'gpu9'"),
        ("test_resnet?batch=none", "not a whole number above 0"),
        ("local-dir:nowhere", r"holds no config\.json"),
    ],
)
def test_names_that_mean_nothing_offer_the_nearest(name: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        catalog.classifier(f"timm:{name}")


def test_hub_weights_are_the_safetensors_of_the_tag(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet").state_dict(), tmp_path / "model.safetensors")

    def hub(repository: str, filename: str, **_: object) -> str:
        asked.append((repository, filename))
        return str(tmp_path / filename)

    monkeypatch.setattr(weights, "hf_hub_download", hub)
    classifier = catalog.classifier("timm:test_resnet.r160_in1k?device=cpu")
    assert asked == [("timm/test_resnet.r160_in1k", "model.safetensors")]
    assert len(classifier.labels) == 1000
