"""ONNX files as attackers and as exporters write them."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from c2b_ray.errors import WeightsError
from c2b_ray.models.onnx_check import OnnxLimits, check_onnx

LIMITS = OnnxLimits(nodes=1000, depth=4, tensors=100)


def tensor(name="w"):
    return numpy_helper.from_array(np.ones(3, np.float32), name)


def model(nodes=None, initializers=(), functions=(), opsets=(("", 20),), ir=10):
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Flatten", ["image"], ["logits"])] if nodes is None else nodes
    graph = helper.make_graph(nodes, "g", [image], [logits], list(initializers))
    imports = [helper.make_opsetid(*opset) for opset in opsets]
    return helper.make_model(graph, opset_imports=imports, functions=list(functions), ir_version=ir)


def check(tmp_path, proto):
    (tmp_path / "m").write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    return check_onnx(str(tmp_path / "m"), LIMITS)


def branch(body):
    out = helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)
    return helper.make_graph([body], "b", [], [out])


def nested(depth):
    node = helper.make_node("Flatten", ["image"], ["logits"])
    for _ in range(depth):
        node = helper.make_node("If", ["image"], ["logits"], then_branch=branch(node), else_branch=branch(node))
    return node


def function(name, used, times=1, domain="own"):
    nodes = [helper.make_node(used, ["x"], ["y"], domain=domain if used != "Relu" else "") for _ in range(times)]
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(domain, 1)]
    return helper.make_function(domain, name, ["x"], ["y"], nodes, imports)


def test_an_exporters_model_is_taken_with_functions_and_branches(tmp_path):
    plain = model([nested(2)], [tensor(), numpy_helper.from_array(np.zeros((2, 2), np.int64), "i")])
    summary = check(tmp_path, plain)
    assert (summary.nodes, summary.tensors, summary.opset) == (7, 2, 20)
    used = [helper.make_node("Twice", ["image"], ["logits"], domain="own")]
    functions = [function("Once", "Relu"), function("Twice", "Once", 2)]
    assert check(tmp_path, model(used, functions=functions, opsets=(("", 20), ("own", 1)))).nodes == 2


def external():
    result = tensor()
    result.data_location = TensorProto.EXTERNAL
    result.ClearField("raw_data")
    entry = result.external_data.add()
    entry.key, entry.value = "location", "../../../../etc/passwd"
    return result


def in_an_attribute():
    return [
        helper.make_node("Constant", [], ["c"], value=external()),
        helper.make_node("Flatten", ["image"], ["logits"]),
    ]


def doubling():
    functions = [function("f0", "Relu"), *(function(f"f{n}", f"f{n - 1}", 2) for n in range(1, 40))]
    return functions[::-1]


def cyclic():
    return [function("a", "b"), function("b", "a")]


OWN = (("", 20), ("own", 1))
REFUSED = {
    "damaged": b"\x08\x0a" + b"\xff" * 40,
    "holds no graph": b"\x08\x0a",
    "external data": model(initializers=[external()]),
    r"external data\)": model(in_an_attribute()),
    "domain 'evil'": model([helper.make_node("Exec", ["image"], ["logits"], domain="evil")]),
    "imports operators of the domain 'com.microsoft'": model(opsets=(("", 20), ("com.microsoft", 1))),
    "nested deeper than 4": model([nested(5)]),
    "more than 1000 nodes": model([helper.make_node("Relu", ["image"], ["logits"])] * 1001),
    "more than 100 tensors": model(initializers=[tensor(f"t{n}") for n in range(101)]),
    "uses itself": model(functions=cyclic(), opsets=OWN),
    "nodes, those of functions|functions are nested": model(functions=doubling(), opsets=OWN),
    "ONNX's own domain": model(functions=[function("Relu", "Relu", domain="ai.onnx.ml")], opsets=(("", 20),)),
    "operators are of version 99": model(opsets=(("", 99),)),
    "operators are of version 0": model(opsets=()),
    "format is version 99": model(ir=99),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(tmp_path, words):
    with pytest.raises(WeightsError, match=words):
        check(tmp_path, REFUSED[words])


@pytest.mark.parametrize("dims", [[-3], [2**62], [10**6, 10**6], [4]])
def test_tensors_that_are_not_what_their_shape_says(tmp_path, dims):
    for keep in ("raw_data", "float_data"):
        lying = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]) if keep == "float_data" else tensor()
        del lying.dims[:]
        lying.dims.extend(dims)
        if keep == "float_data" and dims == [4]:
            continue  # fewer by a little is onnxruntime's to say
        with pytest.raises(WeightsError, match="the tensor 'w'"):
            check(tmp_path, model(initializers=[lying]))
