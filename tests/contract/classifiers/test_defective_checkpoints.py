"""Checkpoints of classifiers with one defect each: no tensor is made up, and a backbone answers nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from defective_weights import (
    DEFECTS,
    OF_HEADS,
    PREFIXES,
    Kit,
    damaged,
    names_of,
    refused,
    same_twice_or_refused,
    saved,
    shard,
)
from safetensors.torch import load_file
from small_classifiers import LABELS, hf_directory, pictures, timm_directory

from c2b_ray.models import catalog
from c2b_ray.roles import Classifier
from c2b_ray.world.zoo import WEIGHTS

_NEW = "vit.layers.0.mlp.fc1.weight"  # as this release of transformers calls the tensor in the middle
KINDS = ["timm directory", "timm file", "torchvision file", "hf", "open_clip"]
WITH_HEADS = ["timm directory", "timm file", "torchvision file", "hf"]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("good")
    timm_directory(place / "timm")
    hf_directory(place / "hf")
    torch.manual_seed(1)
    saved(timm.create_model("test_resnet", num_classes=5).state_dict(), place / "timm.safetensors")
    saved(torchvision.models.squeezenet1_1(num_classes=5).state_dict(), place / "torchvision.safetensors")
    shutil.copytree(WEIGHTS / "clip-base-s", place / "clip")
    return place


@pytest.fixture
def made(good: Path, tmp_path: Path) -> Callable[[str], tuple[Kit, str]]:
    """Returns a function from a kind to a copy of its good weights, and the spec that loads them."""

    def copy(kind: str) -> tuple[Kit, str]:
        place = Path(shutil.copytree(good, tmp_path / "copy", dirs_exist_ok=True))
        (place / "labels.txt").write_text("\n".join(LABELS))
        return {
            "timm directory": (
                Kit(place / "timm" / "model.safetensors", "layer2.0.conv1.weight", "fc."),
                f"timm:{place / 'timm'}?device=cpu",
            ),
            "timm file": (
                Kit(place / "timm.safetensors", "layer2.0.conv1.weight", "fc."),
                f"timm:test_resnet?weights={place / 'timm.safetensors'}&device=cpu",
            ),
            "torchvision file": (
                Kit(place / "torchvision.safetensors", "features.6.expand3x3.weight", "classifier.1."),
                f"torchvision:squeezenet1_1?weights={place / 'torchvision.safetensors'}&device=cpu",
            ),
            "hf": (
                Kit(place / "hf" / "model.safetensors", _middle(place), "classifier."),
                f"hf:{place / 'hf'}?device=cpu",
            ),
            "open_clip": (
                Kit(place / "clip" / "open_clip_model.safetensors", "text.text_projection"),
                f"open_clip:local-dir:{place / 'clip'}?labels=bus,boat&device=cpu",
            ),
        }[kind]

    return copy


def _middle(place: Path) -> str:
    return next(n for n in names_of(place / "hf" / "model.safetensors") if n.endswith("intermediate.dense.weight"))


def answers(classifier: Classifier) -> bytes:
    return classifier.logits(pictures(2), ["", ""]).tobytes()


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_defect_is_refused_by_name_or_answers_alike(
    kind: str, defect: str, made: Callable[[str], tuple[Kit, str]]
) -> None:
    kit, spec = made(kind)
    good = answers(catalog.classifier(spec))
    assert answers(catalog.classifier(spec)) == good
    damaged(kit, defect)
    first = [name[:12] for name in names_of(kit.file)]
    same_twice_or_refused(lambda: catalog.classifier(spec), answers, {kit.middle, _NEW, *first, "ema.", "no tensor"})


@pytest.mark.parametrize("defect", [d for d in DEFECTS if d != "raw and averaged"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_defect_is_seen_in_the_header_before_anything_is_loaded(
    kind: str, defect: str, made: Callable[[str], tuple[Kit, str]]
) -> None:
    kit, spec = made(kind)
    damaged(kit, defect)
    if kind == "hf" and defect == "a tensor of whole numbers":
        pytest.skip("transformers casts whole numbers, which answers alike on each load")
    refused(lambda: catalog.describe("classifier", spec), "missing|unexpected|another|copies|no tensor")


@pytest.mark.parametrize("defect", OF_HEADS)
@pytest.mark.parametrize("kind", WITH_HEADS)
def test_a_head_that_is_gone_or_of_another_size(kind: str, defect: str, made: Callable[[str], tuple[Kit, str]]) -> None:
    kit, spec = made(kind)
    damaged(kit, defect)
    if defect == "no head":
        for read in (catalog.classifier, lambda text: catalog.describe("classifier", text)):
            refused(lambda read=read: read(spec), f"({kit.head}weight|the last layer).*(backbone)")  # type: ignore[misc]
    elif kind.endswith("file"):
        assert catalog.classifier(spec).labels == tuple(f"label_{i}" for i in range(10))
    else:
        refused(lambda: catalog.classifier(spec), "the file has 10 outputs, its config says 5")


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [(kind, prefix) for kind in KINDS for prefix in (PREFIXES if kind in ("timm file", "hf") else PREFIXES[::4])],
)
def test_a_prefix_of_all_names_is_taken_off_and_said(
    kind: str, prefix: str, made: Callable[[str], tuple[Kit, str]]
) -> None:
    kit, spec = made(kind)
    good = answers(catalog.classifier(spec))
    saved({prefix + name: tensor for name, tensor in load_file(kit.file).items()}, kit.file)
    loaded = catalog.classifier(spec)
    assert answers(loaded) == good
    described = catalog.describe("classifier", spec)
    assert described is not None
    for facts in (described.facts, catalog.description_of(loaded).facts):
        values = {fact.name: fact.value for fact in facts}
        assert values["tensor names"] == f"without the prefix '{prefix}'"


@pytest.mark.parametrize("kind", KINDS)
def test_the_spec_chooses_between_raw_and_averaged_weights(kind: str, made: Callable[[str], tuple[Kit, str]]) -> None:
    kit, spec = made(kind)
    raw = catalog.classifier(spec)
    damaged(kit, "raw and averaged")
    refused(lambda: catalog.classifier(spec), r"2 copies of the weights.*\?tensors=unprefixed or \?tensors=ema\.")
    chosen, averaged = (catalog.classifier(f"{spec}&tensors={name}") for name in ("unprefixed", "ema."))
    assert answers(chosen) == answers(raw)
    assert answers(averaged) != answers(raw)
    assert chosen.revision != averaged.revision
    for option in ("unprefixed", "ema."):
        described = catalog.describe("classifier", f"{spec}&tensors={option}")
        assert described is not None
        assert described == catalog.description_of(catalog.classifier(f"{spec}&tensors={option}"))
        assert any(fact.source == f"?tensors={option}" for fact in described.facts)
    refused(lambda: catalog.classifier(f"{spec}&tensors=avg."), r"no tensor begins with tensors='avg\.'.*ema\.")


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_training_may_stay_unread_where_the_spec_says_so(
    kind: str, made: Callable[[str], tuple[Kit, str]]
) -> None:
    kit, spec = made(kind)
    good = answers(catalog.classifier(spec))
    saved({**load_file(kit.file), "optimizer.step": torch.ones(1)}, kit.file)
    refused(lambda: catalog.classifier(spec), r"1 unexpected \(optimizer\.step\).*\?unused=optimizer\.")
    loaded = catalog.classifier(f"{spec}&unused=optimizer.")
    assert answers(loaded) == good
    assert any("optimizer." in fact.value for fact in loaded.facts)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_in_the_file_answers_alike(kind: str, made: Callable[[str], tuple[Kit, str]]) -> None:
    kit, spec = made(kind)
    good = catalog.classifier(spec).logits(pictures(2), ["", ""])
    saved({n: t.half() if t.is_floating_point() else t for n, t in load_file(kit.file).items()}, kit.file)
    found = catalog.classifier(spec)
    np.testing.assert_allclose(found.logits(pictures(2), ["", ""]), good, atol=0.05 * max(1, np.abs(good).max()))
    assert answers(catalog.classifier(spec)) == answers(found)


@pytest.mark.parametrize("absent", [False, True])
def test_shards_are_read_by_their_index(absent: bool, made: Callable[[str], tuple[Kit, str]]) -> None:
    kit, spec = made("hf")
    good = answers(catalog.classifier(spec))
    shard(kit.file, kit.file.parent, absent)
    if not absent:
        assert answers(catalog.classifier(spec)) == good
        return
    for read in (catalog.classifier, lambda text: catalog.describe("classifier", text)):
        refused(lambda read=read: read(spec), r"absent \(model-00002-of-00002")  # type: ignore[misc]


@pytest.mark.parametrize("stated", [0, 1000, None])
@pytest.mark.parametrize("where", ["num_classes", "pretrained_cfg"])
def test_timm_never_makes_up_the_head_that_its_config_contradicts(
    stated: int | None, where: str, made: Callable[[str], tuple[Kit, str]]
) -> None:
    kit, spec = made("timm directory")
    good = answers(catalog.classifier(spec))
    path = kit.file.parent / "config.json"
    config = json.loads(path.read_text())
    for key in ("num_classes", "model_args"):
        config.pop(key)
    config["pretrained_cfg"].pop("num_classes", None)
    if stated is not None:
        (config if where == "num_classes" else config["pretrained_cfg"])["num_classes"] = stated
    path.write_text(json.dumps(config))
    if stated is None:
        assert answers(catalog.classifier(spec)) == good
    else:
        refused(lambda: catalog.classifier(spec), r"5 outputs.*(config say 5|num_classes: 5)")
        refused(lambda: catalog.describe("classifier", spec), r"5 outputs.*(config say 5|num_classes: 5)")
    config["model_args"] = {"num_classes": 5}  # what timm builds; today it would then start a new head
    path.write_text(json.dumps(config))
    assert answers(catalog.classifier(spec)) == good


def test_a_directory_of_timm_given_as_transformers_says_how_to_write_it(made: Callable[[str], tuple[Kit, str]]) -> None:
    kit, _ = made("timm directory")
    refused(lambda: catalog.classifier(f"hf:{kit.file.parent}"), r"config\.json is timm's: write timm:")


def test_labels_that_are_not_numbered_from_zero_are_refused(made: Callable[[str], tuple[Kit, str]]) -> None:
    kit, spec = made("hf")
    path = kit.file.parent / "config.json"
    for numbers in ((1, 2, 3, 4, 5), (0, 1, 2, 3, 5)):
        config = {**json.loads(path.read_text()), "id2label": {str(i): f"name {i}" for i in numbers}}
        path.write_text(json.dumps(config))
        refused(lambda: catalog.classifier(spec), "id2label (begins at 1|has no number 4)")


def test_positions_of_another_size_are_not_resized_in_silence(tmp_path: Path) -> None:
    torch.manual_seed(0)
    saved(timm.create_model("test_vit", num_classes=5, img_size=224).state_dict(), tmp_path / "w.safetensors")
    refused(lambda: catalog.classifier(f"timm:test_vit?weights={tmp_path / 'w.safetensors'}"), r"pos_embed")
    shutil.copytree(WEIGHTS / "clip-base-s", tmp_path / "clip")
    path = tmp_path / "clip" / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["text_cfg"]["context_length"] += 8
    path.write_text(json.dumps(config))
    refused(lambda: catalog.encoder(f"open_clip:local-dir:{tmp_path / 'clip'}"), r"text\.positional_embedding")
