"""Classifiers with gradients answer as they do without, and those that have none say why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from c2b_ray.errors import SpecError
from c2b_ray.models import memory_classifier
from c2b_ray.models.gradients import TorchGradients, gradient_classifier
from c2b_ray.models.memory_classifier import InMemory, Preprocess
from c2b_ray.roles import GradientClassifier
from c2b_ray.world.zoo import WEIGHTS


def module(last: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32, 2), *([last] if last else []))


def held(model: nn.Module) -> tuple[object, str]:
    classifiers = memory_classifier.hold({"m": InMemory(model, ["no", "yes"], Preprocess(24, 32))})
    return classifiers, classifiers["m"].spec


@pytest.mark.parametrize("last", [None, nn.Softmax(dim=1)], ids=["logits", "probabilities"])
def test_a_module_in_memory_keeps_its_mode_and_answers_as_itself(last):
    model = module(last).train()
    keep, spec = held(model)
    classifier = gradient_classifier(spec)
    assert isinstance(classifier, GradientClassifier)
    pictures = [np.random.default_rng(i).integers(0, 255, (32, 32, 3), np.uint8) for i in range(2)]
    images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float().div(255).requires_grad_()
    there = classifier.probabilities(images)
    expected = torch.softmax(torch.from_numpy(keep["m"].logits(pictures, ["a", "b"])), dim=1)
    torch.testing.assert_close(there.detach(), expected, atol=1e-3, rtol=0)
    there[:, 1].sum().backward()
    assert images.grad.abs().sum() > 0
    assert all(part.training for part in model.modules())


@pytest.mark.skipif(not (WEIGHTS / "resnet-control-0").is_dir(), reason="the world's classifiers are not here")
def test_one_output_is_the_logit_of_the_second_of_two_labels():
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 1))
    kept = memory_classifier.hold({"m": InMemory(module, ["a"], Preprocess(16))})
    single = gradient_classifier(kept["m"].spec)
    assert single.labels == ("not a", "a")
    images = torch.rand(4, 3, 16, 16)
    logits = single.logits_of(images)
    expected = module(single.prepare(images))
    assert torch.equal(logits, torch.cat([torch.zeros_like(expected), expected], dim=1))


def test_a_classifier_of_the_world_answers_as_itself():
    classifier = gradient_classifier("world:resnet-control-0?device=cpu")
    assert isinstance(classifier, TorchGradients)  # `gradient_classifier` has compared its answers


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("onnx:model.onnx", "ONNX Runtime gives no gradients"),
        ("https://host/predict", "no gradients pass through a URL"),
        ("http:host", "no gradients pass through a URL"),
        ("table:predictions.csv", "a table of predictions has no gradients"),
    ],
)
def test_what_has_no_gradients_says_why_without_being_loaded(spec, why):
    with pytest.raises(SpecError, match=why):
        gradient_classifier(spec)


def test_a_function_and_a_module_that_detaches_are_refused():
    def function(images):
        return np.zeros((len(images), 2), np.float32)

    keep = memory_classifier.hold({"f": InMemory(function, ["no", "yes"])})
    with pytest.raises(SpecError, match="a function has no gradients"):
        gradient_classifier(keep["f"].spec)

    class Detached(nn.Module):
        def forward(self, values):
            return values.detach().mean(dim=(2, 3))[:, :2]

    keep, spec = held(Detached())
    with pytest.raises(SpecError, match="carry no gradients"):
        gradient_classifier(spec)
    del keep


def test_a_module_that_answers_nan_is_refused_for_that():
    model = module()
    with torch.no_grad():
        model[-1].bias.fill_(torch.nan)
    keep, spec = held(model)
    with pytest.raises(SpecError, match="answers NaN"):
        gradient_classifier(spec)
    del keep


def test_a_preprocessing_that_is_a_function_is_refused():
    def prepare(image):
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float()

    keep = memory_classifier.hold({"m": InMemory(module(), ["no", "yes"], prepare)})
    with pytest.raises(SpecError, match="cannot be differentiated"):
        gradient_classifier(keep["m"].spec)
