"""Makes small ONNX files by the package onnx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

onnx = pytest.importorskip("onnx", reason="makes the files")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402 - after the look for it

Array = npt.NDArray[Any]
TYPES = {
    "f4": TensorProto.FLOAT,
    "f2": TensorProto.FLOAT16,
    "i8": TensorProto.INT64,
    "i4": TensorProto.INT32,
    "u1": TensorProto.UINT8,
    "i1": TensorProto.INT8,
    "?": TensorProto.BOOL,
    "f8": TensorProto.DOUBLE,
}


def value(name: str, kind: str, shape: Sequence[int | str] | None) -> Any:
    return helper.make_tensor_value_info(name, TYPES[kind], shape)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    """A node; names are separated by spaces, `-` stands for an omitted one."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(operator, names, outputs.split(), **attributes)


def model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Mapping[str, Array] | None = None,
    *,
    opset: int = 21,
    functions: Sequence[Any] = (),
    domains: Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
) -> Any:
    initializers = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    made = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=10)
    for key, text in (metadata or {}).items():
        made.metadata_props.add(key=key, value=text)
    return made


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
