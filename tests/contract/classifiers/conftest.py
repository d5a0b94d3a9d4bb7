"""A small classifier of every kind, for the suites of classifiers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torchvision
from http_service import serving_over_http
from small_classifiers import LABELS, brightness, hf_directory, onnx_file, timm_directory, torchvision_file

from c2b_ray.models.memory_classifier import InMemory, MemoryClassifier, Preprocess, hold


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_over_http(LABELS) as (url, _):
        yield url


@pytest.fixture(scope="module")
def in_memory() -> dict[str, MemoryClassifier]:
    torch.manual_seed(0)
    module = torchvision.models.squeezenet1_1(num_classes=5)
    return hold(
        {
            "module": InMemory(module, LABELS, Preprocess(64), batch=2, output="logits"),
            "callable": InMemory(brightness, LABELS, batch=2),
        }
    )


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory, url: str, in_memory: dict[str, MemoryClassifier]) -> dict[str, str]:
    place = tmp_path_factory.mktemp("classifiers")
    names = place / "names.txt"
    names.write_text("\n".join(LABELS) + "\n")
    softmax = np.random.default_rng(2).dirichlet(np.ones(5), size=5)
    rows = [
        f"images/{i}.jpg,{label},{p:.6f}" for i, row in enumerate(softmax) for label, p in zip(LABELS, row, strict=True)
    ]
    (place / "predictions.csv").write_text("\n".join(["file,class,probability", *rows]))
    return {
        "timm": f"timm:{timm_directory(place / 'timm')}?device=cpu&batch=2",
        "torchvision": f"torchvision:squeezenet1_1?weights={torchvision_file(place / 'w.safetensors')}"
        f"&labels={names}&size=64&batch=2&device=cpu",
        "onnx": f"onnx:{onnx_file(place / 'm.onnx', [2, 3, 32, 32])}?preprocess=imagenet&labels={names}",
        "hf": f"hf:{hf_directory(place / 'hf')}?device=cpu&batch=2",
        "zero_shot": f"world:clip?labels={','.join(LABELS)}&device=cpu&batch=2",
        "http": url,
        "table": f"table:{place / 'predictions.csv'}",
        **{name: classifier.spec for name, classifier in in_memory.items()},
    }
