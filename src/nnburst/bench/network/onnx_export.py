"""A network as an ONNX file, for onnxruntime to run beside ours.

Operations become those of the standard; quantised ones stand between DequantizeLinear and QuantizeLinear,
the form in which converters write them and from which onnxruntime makes its integer kernels. It is given what
it runs fastest: images are NCHW inside, 8-bit filters signed. Inputs and outputs stay as the model has them.

Needs `onnx` (extra `peers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

import nnburst.executor.operations  # noqa: F401 - declares them
from nnburst.executor.base import Bytes
from nnburst.executor.graph.operation import Binding, Node
from nnburst.executor.graph.plan import Graph, Plan, Step
from nnburst.executor.graph.sliding_window import Window, is_nchw, read_window
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model, SymmPerChannelQuantParams
from nnburst.hal.operand_types import DTYPES

_T = OperandType
_K = OperationType
_QUANTISED: Final = (_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED)
_OPSET: Final = 17
#: The version of the format that goes with it.
_FORMAT: Final = 8
#: Bounds of RELU, RELU1 and RELU6.
_BOUNDS: Final = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
_TO_NCHW: Final = (0, 3, 1, 2)
_TO_NHWC: Final = (0, 2, 3, 1)


def export(model: Model, pools: Sequence[Bytes] = ()) -> bytes:
    """The main subgraph of a model as an ONNX file; its inputs are called i0, i1, …, its outputs o0, o1, ….

    Args:
        model: valid; every extent is known, every weight constant, every image NHWC.
        pools: bytes of its pools.

    Raises:
        InvalidArgument: an operation or an operand type is not translated.
        ImportError: `onnx` is not installed.
    """
    return _Export(Plan(model, list(pools)).main).finish()


class _Export:
    """One translation.

    Attributes:
        names: of the float32 tensor of every operand that is fed or computed, images as NCHW.
    """

    def __init__(self, graph: Graph) -> None:
        onnx = import_module("onnx")
        self._helper, self._numbers = onnx.helper, onnx.numpy_helper
        self._graph = graph
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self.names: dict[int, str] = {}
        self._inputs = [self._input(n, index) for n, index in enumerate(graph.inputs)]
        self._stored: dict[int, Tensor] = {}  # 8-bit weights by the operand of their real numbers
        for step in graph.steps:
            if step.type is _K.DEQUANTIZE and step.constants:
                self._stored[step.outputs[0]] = self._tensor(step.inputs[0])
                continue
            translate = _TRANSLATIONS.get(step.type)
            if translate is None:
                raise InvalidArgument(f"{step.type.name} is not translated to ONNX")
            translate(_Step(self, step, self._node(step)))
        self._outputs = [self._output(n, index) for n, index in enumerate(graph.outputs)]

    def _node(self, step: Step) -> Node:
        inputs = [self._tensor(index) for index in step.inputs]
        declared = [self._graph.declared[i] for i in step.outputs]
        stored = {n for n, index in enumerate(step.inputs) if index in self._stored}
        constants = step.constants | stored
        return Node(step.type, step.match, inputs, (), declared, Binding(constants=constants))

    def _tensor(self, index: int) -> Tensor:
        if index in self._stored:
            return self._stored[index]
        known = self._graph.constants.get(index)
        if known is not None:
            return known
        meta = self._graph.declared[index]
        return Tensor(meta, np.broadcast_to(np.zeros((), DTYPES[meta.type]), meta.dimensions))

    def emit(self, kind: str, inputs: Sequence[str], **attributes: object) -> str:
        """Append a node with one output."""
        name = f"t{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, array: Array) -> str:
        """An initializer."""
        name = f"c{len(self._constants)}"
        # A copy: onnx wants an array of its own, and a 0-dimensional one to stay that.
        self._constants.append(self._numbers.from_array(np.array(array), name))
        return name

    def dequantised(self, name: str, meta: TensorType, axis: int = 0) -> str:
        """The stored numbers called `name` as float32."""
        params = meta.extra_params
        if isinstance(params, SymmPerChannelQuantParams):
            scales = np.array(params.scales, np.float32)
            zeros = np.zeros(len(scales), np.int8)
            points = [self.constant(scales), self.constant(zeros)]
            return self.emit("DequantizeLinear", [name, *points], axis=axis)
        return self.emit("DequantizeLinear", [name, *self._scale(meta)])

    def _scale(self, meta: TensorType) -> list[str]:
        zero = np.array(meta.zero_point, DTYPES[meta.type])
        return [self.constant(np.array(meta.scale, np.float32)), self.constant(zero)]

    def define(self, index: int, name: str, activation: int = 0) -> None:
        """Let `name` be operand `index`: apply the activation and round to the operand's numbers."""
        meta = self._graph.declared[index]
        if activation and not _is_implied(meta, activation):
            low, high = _BOUNDS[activation]
            bounds = [self.constant(np.array(b, np.float32)) for b in (low, high) if b is not None]
            name = self.emit("Relu", [name]) if high is None else self.emit("Clip", [name, *bounds])
        if meta.type in _QUANTISED:
            name = self.emit("QuantizeLinear", [name, *self._scale(meta)])
            name = self.dequantised(name, meta)
        elif meta.type is not _T.TENSOR_FLOAT32:
            raise InvalidArgument(f"{meta.type.name} is not translated to ONNX")
        self.names[index] = name

    def _described(self, name: str, meta: TensorType) -> Any:  # noqa: ANN401 - a ValueInfoProto
        kind = self._helper.np_dtype_to_tensor_dtype(np.dtype(DTYPES[meta.type]))
        return self._helper.make_tensor_value_info(name, kind, meta.dimensions)

    def _input(self, number: int, index: int) -> Any:  # noqa: ANN401
        name, meta = f"i{number}", self._graph.declared[index]
        described = self._described(name, meta)
        if len(meta.dimensions) == 4:
            name = self.emit("Transpose", [name], perm=_TO_NCHW)
        self.names[index] = self.dequantised(name, meta) if meta.type in _QUANTISED else name
        return described

    def _output(self, number: int, index: int) -> Any:  # noqa: ANN401
        name, meta = self.names[index], self._graph.declared[index]
        if len(meta.dimensions) == 4:
            name = self.emit("Transpose", [name], perm=_TO_NHWC)
        if meta.type in _QUANTISED:
            name = self.emit("QuantizeLinear", [name, *self._scale(meta)])
        self._nodes.append(self._helper.make_node("Identity", [name], [f"o{number}"]))
        return self._described(f"o{number}", meta)

    def finish(self) -> bytes:
        """The file."""
        helper = self._helper
        graph = helper.make_graph(
            self._nodes, "network", self._inputs, self._outputs, self._constants
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_FORMAT
        )
        return bytes(model.SerializeToString())


class _Step:
    """One operation being translated."""

    def __init__(self, export: _Export, step: Step, node: Node) -> None:
        self.export = export
        self.node = node
        self._step = step
        self.inputs = [export.names[i] for i in step.inputs if i in export.names]

    def weights(self, name: str, permutation: Sequence[int]) -> str:
        """A constant filter with its axes in another order, as float32."""
        tensor = self._constant(name)
        array, meta = tensor.array.transpose(permutation), tensor.meta
        if (
            meta.type is _T.TENSOR_QUANT8_ASYMM
        ):  # onnxruntime is a quarter faster with signed filters
            array = (array ^ np.uint8(0x80)).view(np.int8)
            signed = _T.TENSOR_QUANT8_ASYMM_SIGNED
            meta = replace(meta, type=signed, zero_point=meta.zero_point - 128)
        stored = self.export.constant(array)
        if meta.type is _T.TENSOR_FLOAT32:
            return stored
        params = meta.extra_params
        channel = params.channel_dim if isinstance(params, SymmPerChannelQuantParams) else 0
        return self.export.dequantised(stored, meta, list(permutation).index(channel))

    def bias(self, filter_name: str) -> str:
        """The constant bias as float32; stored as it is in steps of input scale × filter scale."""
        tensor = self._constant("bias")
        stored = self.export.constant(tensor.array)
        if tensor.type is _T.TENSOR_FLOAT32:
            return stored
        meta = self._constant(filter_name).meta
        params = meta.extra_params
        per_channel = isinstance(params, SymmPerChannelQuantParams)
        scales = params.scales if isinstance(params, SymmPerChannelQuantParams) else meta.scale
        steps = np.array(scales, np.float32) * np.float32(self.node.tensor("input").scale)
        scale = self.export.constant(np.asarray(steps))
        axis = {"axis": 0} if per_channel else {}
        return self.export.emit("DequantizeLinear", [stored, scale], **axis)

    def _constant(self, name: str) -> Tensor:
        if not self.node.is_constant(name):
            raise InvalidArgument(f"operand '{name}' is not constant: not translated to ONNX")
        return self.node.tensor(name)

    def window(self, height: int, width: int) -> Window:
        """The windows over the NHWC image 'input'."""
        if is_nchw(self.node):
            raise InvalidArgument("NCHW is not translated to ONNX")
        return read_window(self.node, height, width)

    def finish(self, name: str) -> None:
        """`name` is the result, before the activation if there is one."""
        slots = {slot.name for slot in self.node.match.inputs}
        activation = int(self.node.value("activation")) if "activation" in slots else 0
        self.export.define(self._step.outputs[0], name, activation)


def _is_implied(meta: TensorType, activation: int) -> bool:
    """Whether the numbers that the operand can store are within the activation's bounds anyway."""
    if meta.type not in _QUANTISED:
        return False
    limits = np.iinfo(DTYPES[meta.type])
    low, high = _BOUNDS[activation]
    lowest = meta.zero_point + round((low or 0.0) / meta.scale)
    highest = limits.max if high is None else meta.zero_point + round(high / meta.scale)
    return lowest <= int(limits.min) and highest >= int(limits.max)


def _geometry(window: Window) -> dict[str, Any]:
    axes = (window.height, window.width)
    return {
        "kernel_shape": [a.filter for a in axes],
        "strides": [a.stride for a in axes],
        "dilations": [a.dilation for a in axes],
        "pads": [a.head for a in axes] + [a.tail for a in axes],
    }


def _convolution(step: _Step) -> None:
    _, height, width, _ = step.node.tensor("filter").shape
    window = step.window(height, width)
    operands = [step.inputs[0], step.weights("filter", _TO_NCHW), step.bias("filter")]
    step.finish(step.export.emit("Conv", operands, **_geometry(window)))


def _depthwise(step: _Step) -> None:
    _, height, width, _ = step.node.tensor("filter").shape
    window = step.window(height, width)
    operands = [step.inputs[0], step.weights("filter", (3, 0, 1, 2)), step.bias("filter")]
    geometry = _geometry(window)
    step.finish(step.export.emit("Conv", operands, group=window.channels, **geometry))


def _average_pool(step: _Step) -> None:
    sizes = (int(step.node.value(f"filter_{side}")) for side in ("height", "width"))
    window = step.window(*sizes)
    whole = all(a.filter == a.size and a.output == 1 for a in (window.height, window.width))
    if whole and not window.pads:
        step.finish(step.export.emit("GlobalAveragePool", step.inputs))
        return
    geometry = _geometry(window)
    del geometry["dilations"]  # a pool has none in this opset
    step.finish(step.export.emit("AveragePool", step.inputs, **geometry))


def _fully_connected(step: _Step) -> None:
    export, source = step.export, step.node.tensor("input")
    units = step.node.tensor("weights").shape[1]
    x = _flat(step, source.shape)
    if source.shape[1:] != (units,):
        x = export.emit("Reshape", [x, export.constant(np.array([-1, units], np.int64))])
    operands = [x, step.weights("weights", (0, 1)), step.bias("weights")]
    step.finish(export.emit("Gemm", operands, transB=1))


def _reshape(step: _Step) -> None:
    shape = step.node.tensor("shape").array.reshape(-1).astype(np.int64)
    if len(shape) == 4:
        raise InvalidArgument("RESHAPE to an image is not translated to ONNX")
    x = _flat(step, step.node.tensor("input").shape)
    step.finish(step.export.emit("Reshape", [x, step.export.constant(shape)]))


def _flat(step: _Step, shape: Sequence[int]) -> str:
    """The input in the order of its elements in the model: an image of more than a cell goes back to NHWC."""
    if len(shape) == 4 and tuple(shape[1:3]) != (1, 1):
        return step.export.emit("Transpose", [step.inputs[0]], perm=_TO_NHWC)
    return step.inputs[0]


def _softmax(step: _Step) -> None:
    if step.node.value("beta") != 1:
        raise InvalidArgument("SOFTMAX with a beta is not translated to ONNX")
    step.finish(step.export.emit("Softmax", step.inputs, axis=int(step.node.value("axis"))))


def _add(step: _Step) -> None:
    step.finish(step.export.emit("Add", step.inputs))


_TRANSLATIONS: Final[dict[OperationType, Callable[[_Step], None]]] = {
    _K.ADD: _add,
    _K.AVERAGE_POOL_2D: _average_pool,
    _K.CONV_2D: _convolution,
    _K.DEPTHWISE_CONV_2D: _depthwise,
    _K.FULLY_CONNECTED: _fully_connected,
    _K.RESHAPE: _reshape,
    _K.SOFTMAX: _softmax,
}
