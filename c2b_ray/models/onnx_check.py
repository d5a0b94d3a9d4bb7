"""Checks that an ONNX file from a stranger is self-contained, has standard operators only, and is of bounded size.

External data names files of the machine that reads it; operators of other domains are someone else's code; graphs
within graphs and functions within functions can be more than memory holds. It parses and counts, and runs nothing. The
parser itself can be attacked: call it in a process with limits (`endpoint.policy.weights`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import onnx
from onnx import defs

from c2b_ray.errors import WeightsError

Key = tuple[str, str, str]
"""The domain, name and overload of a function."""
DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
"""The domains of ONNX's own operators."""
OLDEST_OPSET = 7
_CUSTOM = "its operators are code that is not ONNX's; export the model with standard operators alone"


@dataclass(frozen=True)
class OnnxLimits:
    """Limits of a file. `nodes`: of all graphs, with a function's nodes counted at each use. `depth`: of graphs within
    graphs."""

    nodes: int
    depth: int
    tensors: int


@dataclass(frozen=True)
class OnnxSummary:
    nodes: int
    tensors: int
    opset: int


@dataclass
class _Count:
    """The counts of one pass over a file."""

    limits: OnnxLimits
    functions: Mapping[Key, Any]
    sizes: dict[Key, int] = field(default_factory=dict)
    under_way: set[Key] = field(default_factory=set)
    tensors: int = 0


def check_onnx(path: str, limits: OnnxLimits) -> OnnxSummary:
    """Checks a file. Raises WeightsError with the first fault found."""
    try:
        model = onnx.load_model(path, load_external_data=False)
    except Exception as error:  # protobuf's own, whose implementation varies
        raise WeightsError("it is no ONNX file, or a damaged one") from error
    if not model.HasField("graph") or not model.graph.node:
        raise WeightsError("it is no ONNX file: it holds no graph")
    if model.training_info:
        raise WeightsError("it holds training graphs; export it for inference")
    opset = _opset(model)
    functions = {(function.domain, function.name, function.overload): function for function in model.functions}
    if len(functions) < len(model.functions):
        raise WeightsError("two of its functions have one name")
    count = _Count(limits, functions)
    for key in functions:
        _function(key, count)
    nodes = _graph(model.graph, count, 1)
    stored = {tensor.name for tensor in model.graph.initializer}
    if not model.graph.output or all(value.name in stored for value in model.graph.input):
        raise WeightsError("its graph has no input or no output")
    return OnnxSummary(nodes, count.tensors, opset)


def _opset(model: Any) -> int:
    newest = defs.onnx_opset_version()
    if not 3 <= model.ir_version <= onnx.IR_VERSION:
        raise WeightsError(f"its format is version {model.ir_version}; expected 3 to {onnx.IR_VERSION}")
    function_domains = {(function.domain) for function in model.functions}
    version = 0
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            version = entry.version
        elif entry.domain not in DOMAINS and entry.domain not in function_domains:
            raise WeightsError(f"it imports operators of the domain {entry.domain[:100]!r}: {_CUSTOM}")
    if not OLDEST_OPSET <= version <= newest:
        raise WeightsError(f"its operators are of version {version}; expected {OLDEST_OPSET} to {newest}")
    return int(version)


def _function(key: Key, count: _Count) -> int:
    """Counts the nodes of a function, with the functions that it calls inlined."""
    if key in count.sizes:
        return count.sizes[key]
    if key in count.under_way:
        raise WeightsError(f"its function {key[1][:100]!r} uses itself")
    function = count.functions[key]
    if key[0] in DOMAINS:
        raise WeightsError(f"its function {key[1][:100]!r} is in ONNX's own domain")
    if len(count.under_way) >= count.limits.depth:
        raise WeightsError(f"its functions are nested deeper than {count.limits.depth}")
    for entry in function.opset_import:
        if entry.domain not in DOMAINS and entry.domain not in {domain for domain, *_ in count.functions}:
            raise WeightsError(f"a function imports operators of {entry.domain[:100]!r}: {_CUSTOM}")
    count.under_way.add(key)
    for attribute in function.attribute_proto:
        for tensor in _tensors(attribute):
            _tensor(tensor, count)
    count.sizes[key] = sum(_node(node, count, 1) for node in function.node)
    count.under_way.discard(key)
    _check_nodes(count.sizes[key], count)
    return count.sizes[key]


def _graph(graph: Any, count: _Count, depth: int) -> int:
    if depth > count.limits.depth:
        raise WeightsError(f"its graphs are nested deeper than {count.limits.depth}")
    for tensor in graph.initializer:
        _tensor(tensor, count)
    for sparse in graph.sparse_initializer:
        _tensor(sparse.values, count)
        _tensor(sparse.indices, count)
    nodes = 0
    for node in graph.node:
        nodes += _node(node, count, depth)
        _check_nodes(nodes, count)
    return nodes


def _node(node: Any, count: _Count, depth: int) -> int:
    """Counts the nodes that a node stands for."""
    key = (node.domain, node.op_type, node.overload)
    if key in count.functions:
        nodes = _function(key, count)
    elif node.domain in DOMAINS:
        nodes = 1
    else:
        raise WeightsError(f"the node {node.op_type[:60]!r} is of the domain {node.domain[:100]!r}: {_CUSTOM}")
    for attribute in node.attribute:
        for tensor in _tensors(attribute):
            _tensor(tensor, count)
        for graph in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
            nodes += _graph(graph, count, depth + 1)
    return nodes


def _check_nodes(nodes: int, count: _Count) -> None:
    if nodes > count.limits.nodes:
        raise WeightsError(f"it has more than {count.limits.nodes} nodes, those of functions where they are used")


def _tensors(attribute: Any) -> Iterator[Any]:
    if attribute.HasField("t"):
        yield attribute.t
    yield from attribute.tensors
    single = (attribute.sparse_tensor,) if attribute.HasField("sparse_tensor") else ()
    for sparse in (*single, *attribute.sparse_tensors):
        yield sparse.values
        yield sparse.indices


def _tensor(tensor: Any, count: _Count) -> None:
    """Checks that a tensor's numbers are in the file, and are as many as its shape requires."""
    name = tensor.name[:100]
    count.tensors += 1
    if count.tensors > count.limits.tensors:
        raise WeightsError(f"it has more than {count.limits.tensors} tensors")
    if tensor.external_data or tensor.data_location == onnx.TensorProto.EXTERNAL:
        raise WeightsError(
            f"the tensor {name!r} lies in another file (external data); save the model as one file, with "
            "save_as_external_data=False"
        )
    if any(size < 0 for size in tensor.dims):
        raise WeightsError(f"the tensor {name!r} has a negative size")
    if tensor.raw_data:
        n_bits = _BITS.get(tensor.data_type)
        if n_bits is None or -(-prod(tensor.dims) * n_bits // 8) != len(tensor.raw_data):
            raise WeightsError(f"the tensor {name!r} holds {len(tensor.raw_data)} bytes, unlike what its shape says")
    elif prod(tensor.dims) > sum(len(getattr(tensor, values)) for values in _VALUES) * 8:
        raise WeightsError(f"the tensor {name!r} holds fewer numbers than its shape says")


_VALUES = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")


def _bits() -> dict[int, int]:
    """Returns the bits of one number, by ONNX's code of its type."""
    width = {
        8: ("BOOL", "UINT8", "INT8"),
        16: ("UINT16", "INT16", "FLOAT16", "BFLOAT16"),
        32: ("FLOAT", "INT32", "UINT32"),
        64: ("DOUBLE", "INT64", "UINT64", "COMPLEX64"),
        128: ("COMPLEX128",),
        4: ("UINT4", "INT4", "FLOAT4E2M1"),
        2: ("UINT2", "INT2"),
    }
    of_name = {name: n_bits for n_bits, group in width.items() for name in group}
    codes = onnx.TensorProto.DataType.items()
    bits_of_code = {code: of_name.get(name, 8 if name.startswith("FLOAT8") else 0) for name, code in codes}
    return {code: n_bits for code, n_bits in bits_of_code.items() if n_bits}


_BITS = _bits()
