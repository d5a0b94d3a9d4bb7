"""Models on a GPU answer as on a CPU, to within rounding, in each precision."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_model

from c2b_ray.models import catalog, devices
from c2b_ray.models.index.vectors import on_device
from c2b_ray.models.torch_runtime import CPU_BATCH, runtime_of
from c2b_ray.roles import Classifier, GenerationRequest, Pixels
from c2b_ray.world import render, sample

ALLOWED = {"fp32": 1e-3, "fp16": 0.05, "bf16": 0.2}
"""Of the spread of the logits. float32 differs by the order of sums; TF32, which would differ by 1e-2, is off."""


def pictures(n: int) -> list[Pixels]:
    """Of two sizes."""
    scenes = [render(scene) for scene in sample(n, 7)]
    return [scene if i % 2 else np.ascontiguousarray(scene[: len(scene) * 3 // 4]) for i, scene in enumerate(scenes)]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "mobilenet.safetensors"
    save_model(timm.create_model("mobilenetv2_100", num_classes=50), str(file))
    return f"timm:mobilenetv2_100?weights={file}"


def logits(classifier: Classifier, images: list[Pixels]) -> np.ndarray:
    return classifier.logits(images, [""] * len(images))


@pytest.mark.parametrize("precision", devices.PRECISIONS)
def test_a_classifier_answers_as_on_the_cpu(spec: str, precision: str) -> None:
    images = pictures(40)
    expected = logits(catalog.classifier(f"{spec}&device=cpu"), images)
    answer = logits(catalog.classifier(f"{spec}&device=cuda&precision={precision}&batch=16"), images)
    assert float(np.abs(answer - expected).max()) < ALLOWED[precision] * float(expected.std())
    whole = logits(catalog.classifier(f"{spec}&device=cuda&precision={precision}"), images)
    assert float(np.abs(answer - whole).max()) < ALLOWED[precision] * float(expected.std())


def test_batches_that_are_copied_while_others_compute_are_not_mixed_up(spec: str) -> None:
    """Many small batches, from several threads at once, as a stage's processes send them."""
    images = pictures(64) * 8
    classifier = catalog.classifier(f"{spec}&device=cuda&batch=16&precision=fp32")
    expected = logits(classifier, images[:64])
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: logits(classifier, images), range(8)):
            np.testing.assert_allclose(answer, np.tile(expected, (8, 1)), atol=1e-4)


def test_without_ray_a_spec_takes_the_first_gpu_and_its_batch(spec: str) -> None:
    runtime = runtime_of(catalog.parse(spec))
    assert (str(runtime.device), runtime.batch) == ("cuda:0", 256)
    with devices.assigned([]):
        runtime = runtime_of(catalog.parse(spec))
    assert (str(runtime.device), runtime.batch) == ("cpu", CPU_BATCH)


@pytest.mark.parametrize("precision", devices.PRECISIONS)
def test_an_encoder_answers_as_on_the_cpu(precision: str) -> None:
    images = pictures(20)
    expected = catalog.encoder("world:clip?device=cpu").encode_images(images)
    answer = catalog.encoder(f"world:clip?device=cuda&precision={precision}").encode_images(images)
    assert float((answer * expected).sum(axis=1).min()) > {"fp32": 0.99999, "fp16": 0.999, "bf16": 0.99}[precision]


def test_a_generator_makes_the_same_picture_from_a_seed() -> None:
    """Noise is drawn on the CPU."""
    requests = [GenerationRequest("a photo of a red bus at night", 3)]
    [expected] = catalog.image_generator("world:diffusion?device=cpu").generate(requests)
    [answer] = catalog.image_generator("world:diffusion?device=cuda").generate(requests)
    assert expected.pixels is not None
    assert answer.pixels is not None
    assert float(np.abs(answer.pixels.astype(int) - expected.pixels.astype(int)).mean()) < 2


def test_an_onnx_graph_answers_as_on_the_cpu(spec: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime is built for CPUs: install onnxruntime-gpu")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    module = timm.create_model("mobilenetv2_100", num_classes=50).eval()
    file = tmp_path / "net.onnx"
    torch.onnx.export(module, (torch.zeros(1, 3, 224, 224),), file, dynamic_shapes=({0: torch.export.Dim("n")},))
    images = pictures(20)
    expected = logits(catalog.classifier(f"onnx:{file}?preprocess=imagenet&device=cpu"), images)
    answer = logits(catalog.classifier(f"onnx:{file}?preprocess=imagenet&device=cuda"), images)
    assert float(np.abs(answer - expected).max()) < ALLOWED["fp32"] * float(expected.std())


def test_an_index_finds_the_same_images() -> None:
    faiss = pytest.importorskip("faiss")
    if not faiss.get_num_gpus():
        pytest.skip("this faiss is built for CPUs: install faiss-gpu")
    vectors = np.random.default_rng(0).normal(size=(5000, 64)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    shard = faiss.IndexFlatIP(64)
    shard.add(vectors)
    moved = on_device(shard, "flat", "gpu")
    assert moved is not shard
    assert np.array_equal(moved.search(vectors[:50], 1)[1], shard.search(vectors[:50], 1)[1])
