"""Small classifiers of every library, made here, and pictures for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import timm
import torch
import torchvision
import transformers
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file
from timm.models import save_for_hf

from c2b_ray.roles import Floats, Pixels

LABELS = ("cat", "dog", "owl", "rat", "yak")
KEYS = [f"images/{i}.jpg" for i in range(5)]


def pictures(n: int = 5) -> list[Pixels]:
    noise = np.random.default_rng(0)
    return [noise.integers(0, 256, (64 + 9 * i, 120 - 11 * i, 3), dtype=np.uint8) for i in range(n)]


def onnx_file(path: Path, shape: list[int | str], softmax: bool = False, kind: int = TensorProto.FLOAT) -> Path:
    """Channel means, times a matrix: logits 5, with N×3×H×W or N×H×W×3 in."""
    axes = [2, 3] if shape[1] == 3 else [1, 2]
    weight = numpy_helper.from_array(np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32), "w")
    over = numpy_helper.from_array(np.array(axes, np.int64), "axes")
    nodes = [
        helper.make_node("Cast", ["pixels"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["f", "axes"], ["m"], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["logits"]),
    ]
    if softmax:
        nodes.append(helper.make_node("Softmax", ["logits"], ["p"], axis=1))
    out = helper.make_tensor_value_info("p" if softmax else "logits", TensorProto.FLOAT, [shape[0], 5])
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("pixels", kind, shape)], [out], [weight, over])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def timm_directory(path: Path) -> Path:
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=5)
    save_for_hf(model, path, safe_serialization=True, model_config={"label_names": list(LABELS)})
    return path


def torchvision_file(path: Path) -> Path:
    torch.manual_seed(0)
    save_file(torchvision.models.squeezenet1_1(num_classes=5).state_dict(), path)
    return path


def hf_directory(path: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )
    transformers.ViTForImageClassification(config).save_pretrained(path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(path)
    return path


def brightness(images: list[Pixels]) -> Floats:
    """Logits of five labels, from the means of each picture's channels."""
    weight = np.random.default_rng(1).normal(size=(3, 5))
    return np.stack([image.mean(axis=(0, 1)) / 255 @ weight for image in images]).astype(np.float32)
