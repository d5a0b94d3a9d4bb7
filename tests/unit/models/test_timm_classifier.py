"""The names, labels and weights of `timm:` specs."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.data.config import resolve_model_data_config
from timm.data.transforms_factory import create_transform
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


def test_label_names_by_number_are_names_in_the_order_of_the_outputs(directory: Path, tmp_path: Path) -> None:
    copytree(directory, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    for names in ({"2": "c", "0": "a", "1": "b"}, ["a", "b", "c"]):
        (tmp_path / "config.json").write_text(json.dumps({**config, "label_names": names}))
        known = catalog.describe("classifier", f"timm:{tmp_path}")
        assert known is not None
        assert known.labels == catalog.classifier(f"timm:{tmp_path}").labels == ("a", "b", "c")
    (tmp_path / "config.json").write_text(json.dumps({**config, "label_names": {"1": "a", "2": "b", "3": "c"}}))
    with pytest.raises(WeightsError, match=r"label_names begins at 1.*labels=PATH"):
        catalog.classifier(f"timm:{tmp_path}")
    (tmp_path / "names.txt").write_text("a\nb\nc\n")
    assert catalog.classifier(f"timm:{tmp_path}?labels={tmp_path / 'names.txt'}").labels == ("a", "b", "c")


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


def test_pictures_are_prepared_as_timms_validate_script_prepares_them(tmp_path: Path) -> None:
    """The oracle is timm's own resolution with the test size, as in its validate.py."""
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=3)
    save_for_hf(model, tmp_path / "own", safe_serialization=True)
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    config["pretrained_cfg"] |= {"input_size": [3, 64, 64], "test_input_size": [3, 96, 96], "crop_pct": 0.8}
    config["pretrained_cfg"]["test_crop_pct"] = 0.9
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    loaded = timm.create_model(f"local-dir:{tmp_path / 'own'}", pretrained=False)
    seen = []
    for option, test in (("", True), ("?use_train_size=true", False)):
        data = resolve_model_data_config(loaded, use_test_size=test)
        expected = create_transform(**data, is_training=False)
        classifier = catalog.classifier(f"timm:{tmp_path / 'own'}{option}")
        image = np.random.default_rng(0).integers(0, 255, (150, 130, 3), dtype=np.uint8)
        found = classifier.preparation.normalised(classifier.preparation.stacked([image]))  # type: ignore[attr-defined]
        torch.testing.assert_close(found[0], expected(Image.fromarray(image)), atol=1e-5, rtol=1e-5)
        facts = {fact.name: fact for fact in classifier.facts}  # type: ignore[attr-defined]
        assert (facts["input size"].value, facts["crop"].value) == (
            ("96×96", "center, 0.9 of the picture") if test else ("64×64", "center, 0.8 of the picture")
        )
        assert not any(fact.assumed for fact in classifier.facts if fact.name != "label names")  # type: ignore[attr-defined]
        seen.append(classifier.revision)
    assert len(set(seen)) == 2


def test_what_no_file_states_is_named_as_an_assumption_until_the_spec_states_it(tmp_path: Path) -> None:
    save_file(timm.create_model("test_resnet", num_classes=3).state_dict(), tmp_path / "w.safetensors")
    (tmp_path / "names.txt").write_text("a\nb\nc\n")

    def assumed(spec: str) -> dict[str, str]:
        known = catalog.describe("classifier", spec)
        assert known is not None
        assert known.facts == catalog.description_of(catalog.classifier(spec)).facts
        return {fact.name: fact.option for fact in known.facts if fact.assumed}

    own = f"weights={tmp_path / 'w.safetensors'}&device=cpu"
    preprocessing = {
        "input size": "size", "crop": "crop_pct", "interpolation": "interpolation", "normalisation": "mean",
    }  # fmt: skip
    assert assumed(f"timm:test_resnet?{own}") == {"label names": "labels", **preprocessing}
    named = f"{own}&labels={tmp_path / 'names.txt'}"
    assert assumed(f"timm:test_resnet?{named}") == preprocessing
    assert assumed(f"timm:test_resnet.r160_in1k?{named}") == {}
    stated = "mean=0.5&std=0.5&size=96&crop_pct=1&crop_mode=squash&interpolation=bilinear"
    assert assumed(f"timm:test_resnet?{named}&{stated}") == {}
    classifier = catalog.classifier(f"timm:test_resnet?{named}&{stated}")
    image = np.full((40, 60, 3), 255, np.uint8)
    found = classifier.preparation.normalised(classifier.preparation.stacked([image]))  # type: ignore[attr-defined]
    assert found.shape == (1, 3, 96, 96)
    assert found.max() == found.min() == 1  # (1 − 0.5) / 0.5


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("crop_pct=2", "no share of the picture"),
        ("crop_mode=middle", "none of center, squash, border"),
        ("interpolation=cubic", "none of bilinear"),
        ("use_train_size=yes", "neither true nor false"),
        ("size=0", "not a whole number above 0"),
    ],
)
def test_wrong_preprocessing_is_refused(directory: Path, option: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        catalog.describe("classifier", f"timm:{directory}?{option}")


def test_a_transformer_is_built_for_the_size_that_is_stated_and_no_other(directory: Path, tmp_path: Path) -> None:
    module = timm.create_model("test_vit", num_classes=3, img_size=96).eval()
    save_file(module.state_dict(), tmp_path / "w.safetensors")
    spec = f"timm:test_vit?weights={tmp_path / 'w.safetensors'}&device=cpu"
    classifier = catalog.classifier(f"{spec}&size=96")
    picture = np.random.default_rng(0).integers(0, 255, (120, 130, 3), np.uint8)
    prepare = create_transform(**resolve_model_data_config(module, {"img_size": 96}, use_test_size=True))
    with torch.no_grad():
        expected = module(prepare(Image.fromarray(picture))[None])
    np.testing.assert_allclose(classifier.logits([picture], [""]), expected, atol=1e-5)
    for wrong in (spec, f"{spec}&size=64"):
        with pytest.raises(WeightsError, match="pictures of another size; state the size of its training"):
            catalog.describe("classifier", wrong)
    save_for_hf(timm.create_model("test_vit", num_classes=3), tmp_path / "of 160", safe_serialization=True)
    config = json.loads((tmp_path / "of 160" / "config.json").read_text())
    config["pretrained_cfg"]["fixed_input_size"] = True
    (tmp_path / "of 160" / "config.json").write_text(json.dumps(config))
    with pytest.raises(SpecError, match="takes pictures of 160×160 alone, not of 96×96"):
        catalog.describe("classifier", f"timm:{tmp_path / 'of 160'}?size=96")


def test_shards_are_no_whole_file(directory: Path, tmp_path: Path) -> None:
    directory = Path(copytree(directory, tmp_path / "copy"))
    (directory / "model.safetensors").rename(directory / "model-00001-of-00002.safetensors")
    for spec in (f"timm:{directory}", f"timm:test_resnet?weights={directory}/model-00001-of-00002.safetensors"):
        with pytest.raises(WeightsError, match=r"in shards \(model-00001-of-00002\.safetensors\).* into one file"):
            catalog.describe("classifier", spec)


def test_an_interpolation_that_is_drawn_for_each_picture_is_refused(tmp_path: Path) -> None:
    save_for_hf(timm.create_model("test_resnet", num_classes=3), tmp_path, safe_serialization=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["pretrained_cfg"]["interpolation"] = "random"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(SpecError, match="interpolation 'random'; state one with"):
        catalog.describe("classifier", f"timm:{tmp_path}")
    assert catalog.describe("classifier", f"timm:{tmp_path}?interpolation=bicubic") is not None


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
