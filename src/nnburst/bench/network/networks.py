"""Measures one network through a driver process, beside LiteRT and onnxruntime in this process, in turns.

All of them compute on the driver's core. The engines of this process move there for their blocks, since other
guests of the host may load the cores of a virtual machine unequally.

onnxruntime gets the network as an ONNX file in the form that it runs fastest: quantised operations between
DequantizeLinear and QuantizeLinear, images as NCHW, 8-bit filters signed. Writing the file needs `onnx`
(extra `peers`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

import nnburst.executor.operations  # noqa: F401 - declares them
from nnburst._native import ffi, lib
from nnburst.bench.cases import Contestant, Looped, Samples, adding_model, pinned
from nnburst.client.burst.interface import BoundRequest
from nnburst.client.device import Device
from nnburst.executor.base import Bytes, NativeCall
from nnburst.executor.graph.operation import Binding, Node
from nnburst.executor.graph.plan import Graph, Plan, Step
from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.graph.windows import Window, is_nchw, read_window
from nnburst.executor.litert import native
from nnburst.executor.litert.network import Network, survey
from nnburst.hal.enums import OperandType, OperationType
from nnburst.hal.errors import GeneralFailure, InvalidArgument, NnburstError
from nnburst.hal.model import DTYPES, Model, SymmPerChannelQuantParams
from nnburst.hal.regular_file import read_regular_file
from nnburst.importer.load import is_onnx, load

# -- export as ONNX --------------------------------------------------------------------------------
_T = OperandType
_K = OperationType
_QUANTISED: Final = (_T.TENSOR_QUANT8_ASYMM, _T.TENSOR_QUANT8_ASYMM_SIGNED)
_OPSET: Final = 17
#: The version of the ONNX format for this opset.
_FORMAT: Final = 8
#: Bounds of RELU, RELU1 and RELU6.
_BOUNDS: Final = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
_TO_NCHW: Final = (0, 3, 1, 2)
_TO_NHWC: Final = (0, 2, 3, 1)


def export(model: Model, pools: Sequence[Bytes] = ()) -> bytes:
    """Write the main subgraph of a model as an ONNX file with inputs i0, i1, … and outputs o0, o1, ….

    Args:
        model: a valid model; every extent is known, every weight constant, every image NHWC.
        pools: bytes of the model's pools.

    Raises:
        InvalidArgument: an operation or an operand type is not translated.
        ImportError: `onnx` is not installed.
    """
    return _Export(Plan(model, list(pools)).main).finish()


class _Export:
    """The translation of one model.

    Attributes:
        names: name of the float32 tensor of each input and computed operand; images as NCHW.
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
        """Add an initializer; return its name."""
        name = f"c{len(self._constants)}"
        # A copy, since onnx needs its own array, and a 0-dimensional one must stay so.
        self._constants.append(self._numbers.from_array(np.array(array), name))
        return name

    def dequantised(self, name: str, meta: TensorType, axis: int = 0) -> str:
        """Convert the stored numbers called `name` to float32."""
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
        """Define operand `index` by `name`: apply the activation, and round to the stored numbers."""
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
        """Make the file."""
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
        """The constant bias as float32; it is stored in steps of input scale × filter scale."""
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
        """The attributes of windows over the NHWC image 'input'."""
        if is_nchw(self.node):
            raise InvalidArgument("NCHW is not translated to ONNX")
        return read_window(self.node, height, width)

    def finish(self, name: str) -> None:
        """Make `name` the result, before an activation."""
        slots = {slot.name for slot in self.node.match.inputs}
        activation = int(self.node.value("activation")) if "activation" in slots else 0
        self.export.define(self._step.outputs[0], name, activation)


def _is_implied(meta: TensorType, activation: int) -> bool:
    """Whether all numbers that the operand can store are within the activation's bounds."""
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
    del geometry["dilations"]  # pools lack it in this opset
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
    """The input with its elements in the model's order: images of more than one cell become NHWC again."""
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


# -- networks --------------------------------------------------------------------------------------

_FLOAT: Final[np.dtype[Any]] = np.dtype(np.float32)
#: Element types of onnxruntime's inputs, by onnxruntime's names.
_ORT_TYPES: Final[dict[str, np.dtype[Any]]] = {
    "tensor(float)": _FLOAT,
    "tensor(float16)": np.dtype(np.float16),
    "tensor(double)": np.dtype(np.float64),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(bool)": np.dtype(np.bool_),
}

#: Nanoseconds of warm-up calls before each block, and bounds of their number.
_WARM_UP_NS: Final = 1_000_000
_WARM_UP: Final = (2, 100)
ONE_ADD: Final = "one ADD"


@dataclass(frozen=True)
class EngineSubject:
    """A network to measure.

    It can be prepared like the result of `nnburst.load`.

    Attributes:
        name: the name to print.
        model: the network as NNAPI's model.
        pools: pools of the model.
        content: the .tflite file that the engine runs in this process; for an .onnx file the lowered one.
        lowered: the .tflite file that the driver's engine runs.
        onnx: the .onnx file, if it came as one.
        onnx_inputs: names of the file's inputs, in the model's order.
        constants: values of inputs that are the same in every execution.
    """

    name: str
    model: Model
    pools: Sequence[Bytes]
    content: bytes
    lowered: Network
    onnx: bytes = b""
    onnx_inputs: Sequence[str] = ()
    constants: Mapping[str, npt.ArrayLike] = field(default_factory=dict)

    @classmethod
    def of_file(cls, path: Path, **options: Any) -> EngineSubject:  # noqa: ANN401 - as in `load`
        """Load a .tflite or .onnx file, the latter with options of `nnburst.load`.

        Raises:
            NnburstError: the file cannot be imported, or the engine does not run all of it.
        """
        content = read_regular_file(path)
        imported = load(path, **options)
        lowered = lower(path.stem, imported.model, imported.pools)
        if not is_onnx(content):
            return cls(path.stem, imported.model, imported.pools, content, lowered)
        return cls(
            path.stem,
            imported.model,
            imported.pools,
            bytes(lowered.content),
            lowered,
            content,
            imported.input_names,
            options.get("constants") or {},
        )

    @classmethod
    def one_add(cls) -> EngineSubject:
        """A network that adds four float32 elements to themselves."""
        model = adding_model(1, 1)
        lowered = lower(ONE_ADD, model, ())
        return cls(ONE_ADD, model, (), bytes(lowered.content), lowered)


def lower(name: str, model: Model, pools: Sequence[Bytes]) -> Network:
    """Lower a model to the file that the engine runs.

    Raises:
        GeneralFailure: the engine does not run the whole model.
    """
    network = survey(model, list(pools)).network
    if network is None:
        raise GeneralFailure(f"{name}: the engine runs only a part of it, expected all")
    return network


@dataclass
class Lineup:
    """The contestants on one network.

    Attributes:
        burst: the burst to the driver.
        litert: LiteRT's C library on the file in this process, called from C.
        lowered: the same on the file that the driver's engine runs.
        onnxruntime: `run` of the network as ONNX; None without the packages or a translation.
        differences: for each contestant, the largest difference from the burst's output, in steps or floats.
        remarks: reasons why a contestant is missing.
    """

    burst: Contestant
    litert: Contestant
    lowered: Contestant
    onnxruntime: Contestant | None = None
    differences: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def contestants(self) -> list[Contestant]:
        """The contestants that exist."""
        all_ = (self.burst, self.litert, self.lowered, self.onnxruntime)
        return [contestant for contestant in all_ if contestant is not None]


class _Bound(Protocol):
    """A bound request of an engine."""

    @property
    def native(self) -> NativeCall | None: ...


class InProcess:
    """A case in which a loop in C runs an engine's bound request on one core."""

    def __init__(self, name: str, binding: _Bound, core: int, warm_up: int) -> None:
        """Have a loop run `binding` on `core`, `warm_up` times before each block.

        Args:
            name: name of the case.
            binding: the bound request.
            core: core to run on.
            warm_up: number of runs before each block that do not count.

        Raises:
            GeneralFailure: the request can be run only by Python.
        """
        call = binding.native
        if call is None:
            raise GeneralFailure(f"{name}: nothing runs it without Python")
        self.name = name
        self._call = ffi.cast("nnb_run", call.run), ffi.cast("nnbx_execution *", call.execution)
        self._core = core
        self._warm_up = warm_up
        self._binding = binding  # owns what the call uses

    def block(self, count: int) -> float:
        """See `Contestant`."""
        return self._run(count, ffi.NULL) / count

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        found = np.zeros(count, np.uint64)
        self._run(count, ffi.from_buffer("uint64_t[]", found))
        return found

    def _run(self, count: int, samples: object) -> int:
        with pinned(self._core):
            lib.nnb_bench_run(*self._call, self._warm_up, ffi.NULL)
            total = int(lib.nnb_bench_run(*self._call, count, samples))
        if total == 0:
            raise GeneralFailure(f"{self.name}: the engine failed")
        return total


class OnCore:
    """A case that runs on another core than the rest of this process."""

    def __init__(self, case: Looped, core: int) -> None:
        """Run `case` on `core`."""
        self.name = case.name
        self._case = case
        self._core = core

    def block(self, count: int) -> float:
        """See `Contestant`."""
        with pinned(self._core):
            return self._case.block(count)

    def samples(self, count: int) -> Samples:
        """See `Contestant`."""
        with pinned(self._core):
            return self._case.samples(count)


@contextmanager
def lineup(
    subject: EngineSubject, device: Device, core: int, random: np.random.Generator
) -> Iterator[Lineup]:
    """Open the contestants that run `subject`, on one random input.

    Args:
        subject: the network.
        device: a driver of the litert executor on `core`.
        core: core to compute on.
        random: generator of the input.

    Raises:
        NnburstError: the driver or the engine refuses the network.
    """
    with ExitStack() as stack:
        prepared = stack.enter_context(device.prepare(subject))
        bound = stack.enter_context(prepared.open_burst()).bind()
        for array in bound.inputs:
            array[...] = random_values(array, random)
        bound.run()
        warm_up = warm_up_of(bound.run)
        file, file_out = in_process(subject.model, subject.content, bound)
        same, same_out = in_process(subject.model, bytes(subject.lowered.content), bound)
        found = Lineup(
            Looped(f"{subject.name}: burst", bound.run, warm_up),
            InProcess(f"{subject.name}: litert", file, core, warm_up),
            InProcess(f"{subject.name}: litert, as lowered", same, core, warm_up),
        )
        found.differences = {
            "litert": _difference(bound, file_out),
            "litert, as lowered": _difference(bound, same_out),
        }
        _add_onnxruntime(found, subject, bound, core, warm_up)
        yield found


def warm_up_of(call: Callable[[], object]) -> int:
    """The number of warm-up calls before each block."""
    fewest, most = _WARM_UP
    trial = Looped("", call, 1).block(1)
    return max(fewest, min(most, int(_WARM_UP_NS / trial)))


def random_values(array: Array, random: np.random.Generator) -> Array:
    """Values of an array's type and shape: normally distributed, or any integers."""
    if array.dtype.kind == "f":
        return random.standard_normal(array.shape).astype(array.dtype)
    limits = np.iinfo(array.dtype)
    drawn: Array = random.integers(limits.min, limits.max, array.shape, array.dtype, endpoint=True)
    return drawn


def in_process(
    model: Model, content: bytes, bound: BoundRequest
) -> tuple[native.NativeBinding, list[Bytes]]:
    """Bind a file in this process to copies of the burst's arrays, and run it once; also return the outputs.

    Args:
        model: the model that the burst runs.
        content: a .tflite file with the same inputs and outputs.
        bound: the burst's request.

    Raises:
        GeneralFailure: the library cannot be used, or refuses the file.
    """
    if not native.available():
        raise GeneralFailure("libLiteRt.so cannot be used here")
    graph = model.main
    types = [
        TensorType(OperandType(o.type), o.dimensions, o.scale, o.zero_point)
        for o in (graph.operands[i] for i in (*graph.input_indexes, *graph.output_indexes))
    ]
    inputs, outputs = types[: len(bound.inputs)], types[len(bound.inputs) :]
    network = Network(content, tuple(inputs), tuple(outputs), frozenset(), frozenset())
    given = [aligned(array) for array in bound.inputs]
    taken = [aligned(np.zeros_like(array)) for array in bound.outputs]
    binding = native.NativeEngine(network, 1).bind([x.data for x in given], [x.data for x in taken])
    said = binding.run()
    if said:
        raise GeneralFailure(f"LiteRT: {said}")
    return binding, taken


def aligned(array: Array) -> Bytes:
    """Copy an array to bytes with the alignment and the padding that the engine needs."""
    alignment = int(lib.NNB_LITERT_ALIGNMENT)
    room = np.zeros(array.nbytes + 2 * alignment + 4096, np.uint8)
    start = -room.ctypes.data % alignment
    copy = room[start : start + array.nbytes]
    copy[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return copy


def _difference(bound: BoundRequest, outputs: Sequence[Array]) -> float:
    """The largest difference between the burst's outputs and another contestant's."""
    pairs = zip(bound.outputs, outputs, strict=True)
    return max(
        float(absolute_differences(ours, theirs.view(ours.dtype).reshape(ours.shape)).max())
        for ours, theirs in pairs
    )


def absolute_differences(ours: Array, theirs: Array) -> npt.NDArray[np.float64]:
    """Absolute differences; 0 if both are not a number or the same infinity, else infinite at such values."""
    first, second = ours.astype(np.float64), theirs.astype(np.float64)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(first - second))
    return np.where(np.isnan(difference), np.inf, difference)


def _add_onnxruntime(
    found: Lineup, subject: EngineSubject, bound: BoundRequest, core: int, warm_up: int
) -> None:
    """Add onnxruntime's `run` on one thread, from arrays to new arrays."""
    for package in ("onnxruntime",) if subject.onnx else ("onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            found.remarks.append(f"{package} is not installed: pip install 'nnburst[peers]'")
            return
    try:
        content = subject.onnx or export(subject.model, list(subject.pools))
    except NnburstError as error:
        found.remarks.append(f"{subject.name}: {error}")
        return
    session = onnx_session(content)
    feed = _feed(session, subject, bound)
    found.differences["onnxruntime"] = _difference(bound, session.run(None, feed))
    case = Looped(f"{subject.name}: onnxruntime", partial(session.run, None, feed), warm_up)
    found.onnxruntime = OnCore(case, core)


def _feed(session: Any, subject: EngineSubject, bound: BoundRequest) -> dict[str, Array]:  # noqa: ANN401
    """The burst's inputs by name, in the types of the file."""
    if not subject.onnx:
        return {f"i{number}": array.copy() for number, array in enumerate(bound.inputs)}
    types = onnx_input_types(session)
    given: dict[str, npt.ArrayLike] = dict(zip(subject.onnx_inputs, bound.inputs, strict=True))
    return {
        name: np.array(value, types[name]) for name, value in {**given, **subject.constants}.items()
    }


def onnx_input_types(session: Any) -> dict[str, np.dtype[Any]]:  # noqa: ANN401 - it has no types
    """The type of each input of a session, by its name."""
    return {info.name: _ORT_TYPES.get(info.type, _FLOAT) for info in session.get_inputs()}


def onnx_session(content: bytes) -> Any:  # noqa: ANN401 - it has no types
    """Open an onnxruntime session on the CPU with all optimisations, on the caller's thread.

    Its fastest 8-bit products saturate on processors with AVX2 but without VNNI, so exact ones are chosen.
    """
    onnxruntime = import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(content, options, providers=providers)
