"""Files that a tenant uploads: a small ONNX classifier of two labels, and an archive of images for it."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

SIDE, EACH = 32, 40


def model() -> bytes:
    """Returns an ONNX model that multiplies the mean of each colour channel by random weights."""
    weights = numpy_helper.from_array(np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32), "w")
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph(nodes, "g", [image], [logits], [weights])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    stated = {"labels": '["bus", "boat"]', "mean": "0.485,0.456,0.406", "std": "0.229,0.224,0.225"}
    helper.set_model_props(made, stated)
    return made.SerializeToString()


def images() -> bytes:
    archive, rows = io.BytesIO(), ["file_name,weather"]
    with zipfile.ZipFile(archive, "w") as entries:
        for name in ("bus", "boat"):
            for number in range(EACH):
                pixels, picture = np.random.default_rng(number).integers(0, 255, (SIDE, SIDE, 3)), io.BytesIO()
                Image.fromarray(pixels.astype(np.uint8)).save(picture, "PNG")
                entries.writestr(f"{name}/{number}.png", picture.getvalue())
                rows.append(f"{name}/{number}.png,{'clear' if number % 2 else 'snow'}")
        entries.writestr("metadata.csv", "\n".join(rows))
    return archive.getvalue()
