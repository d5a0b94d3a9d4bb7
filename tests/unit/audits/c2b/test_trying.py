"""An audit of labelled images whose ONNX file states no preprocessing says which one is probably right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from c2b_ray.audits.c2b.estimate import check
from c2b_ray.config import read_audit
from c2b_ray.errors import SpecError

LEVELS = {"dark": 100, "light": 130}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Twenty grey pictures, and a graph that answers by whether its numbers lie above a half of those from 0 to 1."""
    rows = ["image,target_class,weather"]
    for number in range(20):
        name = list(LEVELS)[number % 2]
        Image.new("RGB", (8, 8), (LEVELS[name] + number // 4,) * 3).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{name},{'sun' if number // 2 % 2 else 'rain'}")
    (tmp_path / "table.csv").write_text("\n".join(rows))
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["out"]),
    ]
    constants = {"axes": np.array([2, 3]), "weight": np.float32([[-3, 3]] * 3), "bias": np.float32([4.5, -4.5])}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {"names": "{0: 'dark', 1: 'light'}"})
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path


def refusal(place: Path, classes: list[str]) -> str:
    config = {
        "task": "t",
        "classes": classes,
        "classifier": f"onnx:{place}/m.onnx",
        "images": {"source": "labelled", "table": str(place / "table.csv")},
    }
    with pytest.raises(SpecError) as caught:
        check(read_audit(config), "here")
    return str(caught.value)


def test_the_preprocessing_that_is_right_far_more_often_is_named(place: Path) -> None:
    message = refusal(place, ["dark", "light"])
    assert "nothing states how pixels become this graph's numbers" in message
    assert message.endswith(
        "Right of 20 labelled images: unit 20, imagenet 10, minus-one-one 10, none 10: it is probably ?preprocess=unit"
    )


def test_the_refusal_stays_where_no_answer_can_be_compared(place: Path) -> None:
    (place / "table.csv").write_text((place / "table.csv").read_text().replace("dark", "dim"))
    message = refusal(place, ["dim", "light"])
    assert "no preprocessing could be tried on the labelled images: " in message
    assert "no label of" in message
