"""Models in memory: what they are given, what their answers become, and when two are the same."""

from __future__ import annotations

import copy
import gc
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision
from PIL import Image
from torch import nn
from torchvision import transforms

from c2b_ray.errors import ConfigError, ServiceError, SpecError
from c2b_ray.models import catalog
from c2b_ray.models.memory_classifier import InMemory, MemoryClassifier, Preprocess, content_of, hold
from c2b_ray.roles import Pixels

LABELS = ["cat", "dog", "owl"]


def net(seed: int = 0, labels: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.Flatten(1), nn.LazyLinear(labels))


def built(seed: int = 0) -> nn.Module:
    module = net(seed)
    module(torch.zeros(2, 3, 32, 32))
    return module


def pictures(count: int = 5) -> list[Pixels]:
    noise = np.random.default_rng(3)
    return [noise.integers(0, 256, (40 + 7 * i, 61 - 3 * i, 3), dtype=np.uint8) for i in range(count)]


def brightness(images: list[Pixels]) -> Any:
    return np.stack([image.reshape(-1, 3).mean(axis=0) for image in images])


def logits(model: Any, **more: Any) -> np.ndarray:
    return MemoryClassifier(InMemory(model, LABELS, **more)).logits(pictures(), [""] * 5)


def test_a_module_sees_what_torchvision_makes_of_a_picture_and_evaluates() -> None:
    module = built().train()
    usual = transforms._presets.ImageClassification(crop_size=32, resize_size=36)
    evaluated = copy.deepcopy(module).eval()
    with torch.inference_mode():
        expected = evaluated(torch.stack([usual(Image.fromarray(image)) for image in pictures()])).numpy()
    for preprocess in (Preprocess(32, resize=36), usual, lambda image: usual(image)):
        np.testing.assert_allclose(logits(module, preprocess=preprocess, batch=2), expected, atol=2e-2)


def test_a_module_is_left_as_it_was() -> None:
    module = built().train()
    module[1].eval()  # a frozen batch norm
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    logits(module, preprocess=Preprocess(32))
    assert [part.training for part in module] == [True, False, True, True, True]
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_a_module_in_half_precision_gets_its_own_dtype() -> None:
    module = built().eval()
    single = logits(module, preprocess=Preprocess(32))
    np.testing.assert_allclose(logits(module.bfloat16(), preprocess=Preprocess(32)), single, atol=0.1)


def test_timm_models_bring_their_preprocessing() -> None:
    torch.manual_seed(0)
    module = timm.create_model("test_resnet", num_classes=3)
    data = timm.data.resolve_model_data_config(module)
    transform = timm.data.create_transform(**data, is_training=False)
    np.testing.assert_array_equal(logits(module), logits(module, preprocess=transform))


def test_another_module_must_say_its_preprocessing() -> None:
    with pytest.raises(ConfigError, match=r"preprocess: ResNet does not say .* c2b_ray.Preprocess\(size=224\)"):
        hold(torchvision.models.resnet18(), LABELS)


def test_a_callable_gets_uint8_pictures_that_it_may_write_to() -> None:
    given: list[tuple[Any, ...]] = []

    def answer(images: list[Pixels]) -> Any:
        given.extend((image.dtype, image.shape, image.flags.writeable) for image in images)
        return brightness(images)

    read_only = pictures()
    for image in read_only:
        image.setflags(write=False)
    found = MemoryClassifier(InMemory(answer, LABELS, batch=2)).logits(read_only, [""] * 5)
    assert given == [(np.uint8, image.shape, True) for image in read_only]
    np.testing.assert_allclose(found, brightness(read_only), rtol=1e-6)


def test_probabilities_become_log_probabilities_and_nan_stays() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    rows[1] = np.nan
    rows[2] = [1, 0, 0]
    found = logits(lambda images: torch.tensor(rows, dtype=torch.float16), output="probabilities")
    good = [0, 3, 4]
    np.testing.assert_allclose(np.exp(found[good]), rows[good], atol=2e-3)
    assert np.isnan(found[1]).all()
    assert found[2].argmax() == 0
    assert np.isfinite(found[2]).all()
    np.testing.assert_array_equal(logits(lambda images: np.full((5, 3), 0.5)), np.full((5, 3), 0.5))  # no probabilities


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda images: np.zeros((len(images), 4)), r"shape \(14, 4\); its 3 labels make \(14, 3\)"),
        (lambda images: np.zeros(3), r"shape \(3,\)"),
        (lambda images: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda images: [["high", "low", "low"]] * len(images), "ValueError"),
    ],
)
def test_a_model_that_does_not_answer_is_refused_before_the_audit(answer: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"classifier: lambda .*{message}.*tried on small pictures"):
        hold(answer, LABELS)
    with pytest.raises(ServiceError, match=message.replace("14", "5")):
        logits(answer)


@pytest.mark.parametrize(
    ("model", "labels", "message"),
    [
        (brightness, "cat", "labels: expected a list with the name of each"),
        (brightness, None, "labels: expected a list"),
        (brightness, [1, 2, 3], "labels: expected a list"),
        (3, LABELS, "classifier: expected a torch module or a callable, not a int"),
        ({}, LABELS, "classifier: expected a model, or a mapping"),
        (InMemory(brightness, LABELS), LABELS, "labels: an InMemory has labels of its own"),
    ],
)
def test_what_is_no_classifier_is_refused(model: Any, labels: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        hold(model, labels)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="the crop must fit"):
        Preprocess(32, resize=16)
    with pytest.raises(ConfigError, match="three numbers each"):
        Preprocess(32, std=(0.0, 1.0, 1.0))
    with pytest.raises(ConfigError, match="three numbers each"):
        Preprocess(32, mean=0.5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a callable gets the pictures as they are"):
        InMemory(brightness, LABELS, preprocess=Preprocess(32))


def test_a_spec_loads_what_is_held_and_nothing_after() -> None:
    held = hold({"a": InMemory(brightness, LABELS), "b": InMemory(built(), LABELS, Preprocess(32))})
    assert list(held) == ["a", "b"]
    specs = [classifier.spec for classifier in held.values()]
    assert [catalog.classifier(spec) for spec in specs] == list(held.values())
    del held
    gc.collect()
    for spec in specs:
        with pytest.raises(SpecError, match="pass it again"):
            catalog.classifier(spec)


def revision(model: Any, **more: Any) -> str:
    return MemoryClassifier(InMemory(model, LABELS, **more)).revision


def test_a_modules_revision_is_of_its_content() -> None:
    fit = Preprocess(32)
    same = revision(built(), preprocess=fit)
    assert revision(built(), preprocess=fit) == same
    assert revision(built().train(), preprocess=Preprocess(32)) == same
    assert revision(built(1), preprocess=fit) != same
    assert revision(built(), preprocess=Preprocess(32, mean=(0.5, 0.5, 0.5))) != same
    assert revision(built().bfloat16(), preprocess=fit) != same
    other = InMemory(built(), ["cat", "dog", "yak"], fit)
    assert MemoryClassifier(other).revision != same
    strided = built()
    strided[0].stride = (2, 2)  # the same tensors in another structure
    assert content_of(strided) != content_of(built())


def test_a_modules_code_is_part_of_its_content() -> None:
    def scaled(factor: int) -> nn.Module:
        def doubled(self: nn.Module, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.mean(dim=(2, 3)) * 2

        def plain(self: nn.Module, pixels: torch.Tensor) -> torch.Tensor:
            return pixels.mean(dim=(2, 3))

        return type("Scaled", (nn.Module,), {"forward": doubled if factor == 2 else plain})()

    assert content_of(scaled(1)) == content_of(scaled(1)) != content_of(scaled(2))


def test_what_cannot_be_hashed_is_new_each_time_unless_named() -> None:
    assert revision(brightness) != revision(brightness)
    assert revision(brightness, revision="2026-11-22") == revision(brightness, revision="2026-11-22")
    to_tensor = transforms.ToTensor()
    assert revision(built(), preprocess=lambda image: to_tensor(image)) != revision(
        built(), preprocess=lambda image: to_tensor(image)
    )
    assert revision(built(), preprocess=transforms.Compose([to_tensor])) == revision(
        built(), preprocess=transforms.Compose([to_tensor])
    )


def test_a_models_long_message_is_cut_and_its_exception_is_the_cause():
    def failing(images):
        raise ValueError("the beginning " + "x" * 60_000)

    with pytest.raises(ConfigError, match=r"ValueError: the beginning x+…; before the audit") as caught:
        hold(failing, ["a", "b"])
    assert len(str(caught.value)) < 700


def test_the_picture_that_a_model_fails_on_is_named():
    def brittle(images):
        if any(image.max() > 200 for image in images):
            raise ValueError("too bright")
        return [[1.0, 2.0]] * len(images)

    (classifier,) = hold(InMemory(brittle, ["a", "b"])).values()
    dark, bright = np.zeros((4, 4, 3), np.uint8), np.full((4, 4, 3), 255, np.uint8)
    with pytest.raises(
        ServiceError, match=r"on 2 of 3 pictures, the first of them sun\.png: .* bright\. .* row of NaN"
    ):
        classifier.logits([dark, bright, bright], ["night.png", "sun.png", "snow.png"])
    with pytest.raises(ServiceError, match=r"failed on 2 pictures: ValueError: too bright$"):
        classifier.logits([bright, bright], ["sun.png", "snow.png"])

    def crowded(images):
        if len(images) > 2:
            raise MemoryError("no room")
        return [[1.0, 2.0]] * len(images)

    (classifier,) = hold(InMemory(crowded, ["a", "b"])).values()
    with pytest.raises(ServiceError, match=r"on 3 pictures together, and on none of them alone: MemoryError: no room"):
        classifier.logits([dark] * 3, ["1", "2", "3"])


def with_softmax(images: list[Pixels]) -> Any:
    return torch.softmax(torch.from_numpy(brightness(images)) / 20, dim=1)


def test_probabilities_are_told_from_logits_once_and_for_all_batches() -> None:
    held = hold({"p": InMemory(with_softmax, LABELS, batch=1), "l": InMemory(brightness, LABELS)})
    images = pictures()
    own = with_softmax(images).numpy()
    np.testing.assert_allclose(np.exp(held["p"].logits(images, [""] * 5)), own, atol=1e-5)
    np.testing.assert_allclose(held["l"].logits(images, [""] * 5), brightness(images), rtol=1e-6)
    facts = {name: next(f for f in model.facts if f.name == "output").value for name, model in held.items()}
    assert facts == {"p": "probabilities", "l": "logits"}


def test_one_row_of_logits_that_sums_to_one_stays_logits() -> None:
    def answer(images: list[Pixels]) -> Any:
        return np.array([[0.25, 0.75, 0.0] if image.shape[0] != 64 else [5, -3, image.mean()] for image in images])

    (classifier,) = hold(answer, LABELS).values()
    np.testing.assert_array_equal(classifier.logits(pictures(1), [""]), [[0.25, 0.75, 0.0]])


def test_scores_of_each_label_and_contradictions_are_refused_and_an_output_may_be_stated() -> None:
    def sigmoids(images: list[Pixels]) -> Any:
        return torch.sigmoid(torch.from_numpy(brightness(images)) / 50 - 2)

    with pytest.raises(
        ConfigError, match=r"classifier: sigmoids: .*scores of each label on its own .*output=\) logits"
    ):
        hold(sigmoids, LABELS)
    (stated,) = hold(InMemory(sigmoids, LABELS, output="logits")).values()
    np.testing.assert_allclose(stated.logits(pictures(), [""] * 5), sigmoids(pictures()), rtol=1e-6)
    with pytest.raises(ConfigError, match="its rows are probabilities"):
        hold(InMemory(with_softmax, LABELS, output="logits"))
    with pytest.raises(ConfigError, match="output: 'softmax' is none of logits, probabilities"):
        InMemory(with_softmax, LABELS, output="softmax")  # type: ignore[arg-type]
