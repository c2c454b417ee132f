"""Writing a .tflite flatbuffer: tensors, constants and operators, in the order of execution."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

import msgspec
import numpy as np

from nnburst.executor.graph.tensor import Array, TensorType
from nnburst.hal.enums import OperandType
from nnburst.hal.model import SymmPerChannelQuantParams
from nnburst.hal.operand_types import DTYPES, QUANTIZED_RANGES

_T = OperandType

#: Name of each operand type in the format.
_TYPES: Final = {
    _T.TENSOR_FLOAT32: "FLOAT32",
    _T.FLOAT32: "FLOAT32",
    _T.TENSOR_INT32: "INT32",
    _T.INT32: "INT32",
    _T.TENSOR_QUANT8_ASYMM: "UINT8",
    _T.TENSOR_QUANT8_ASYMM_SIGNED: "INT8",
    _T.TENSOR_QUANT8_SYMM: "INT8",
    _T.TENSOR_QUANT8_SYMM_PER_CHANNEL: "INT8",
    _T.TENSOR_BOOL8: "BOOL",
}
#: Operand types that a tensor can have.
TYPES: Final = frozenset(_TYPES)
_NONE: Final = 0
_SCHEMA: Final = "ai_edge_litert.schema_py_generated"
_BUILDER: Final = "flatbuffers"

# It takes 30 ms, which the workers of a supervisor share and which no prepare pays.
for _module in (_SCHEMA, _BUILDER):
    with suppress(ImportError):  # the executor names what is missing
        import_module(_module)


class UnsupportedByEngine(Exception):
    """The engine cannot run this, or not so that the result is NNAPI's; the message names what."""


class Value(msgspec.Struct, frozen=True):
    """A tensor of the graph.

    Attributes:
        index: its number in the graph.
        meta: type, dimensions and quantisation, in NNAPI's words.
    """

    index: int
    meta: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents."""
        return self.meta.dimensions


class Written(msgspec.Struct, frozen=True):
    """An operator of the graph.

    Attributes:
        name: in BuiltinOperator.
        inputs: what it reads.
        raw: as the format's classes have it.
    """

    name: str
    inputs: tuple[Value, ...]
    raw: Any

    @property
    def activation(self) -> int | None:
        """The fused activation; None if it has no place for one."""
        found = getattr(self.raw.builtinOptions, "fusedActivationFunction", None)
        return None if found is None else int(found)


class GraphWriter:
    """One subgraph being written. Not thread-safe.

    The versions of the operators stay 1: kernels do not look at them, and every one has version 1.
    """

    def __init__(self) -> None:
        """Start empty.

        Raises:
            ImportError: `ai-edge-litert` is not installed.
        """
        self._schema: Any = import_module(_SCHEMA)
        self._buffers = [self._schema.BufferT()]  # buffer 0 is the empty one
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._codes: dict[str, int] = {}
        self._producers: dict[int, Written] = {}
        self._arrays: dict[int, Array] = {}
        self._reads: dict[int, int] = {}
        self._folded: set[int] = set()

    def tensor(self, meta: TensorType, name: str | None = None) -> Value:
        """A tensor that an operator writes or the caller feeds; `name` is a type of the format.

        Raises:
            UnsupportedByEngine: its type is not one of TYPES, or it has no elements.
        """
        if meta.type not in TYPES:
            raise UnsupportedByEngine(f"type {meta.type.name}")
        if 0 in meta.dimensions:
            raise UnsupportedByEngine(f"extents {list(meta.dimensions)} with a 0")
        made = self._schema.TensorT()
        made.name = f"t{len(self._tensors)}"
        made.shape = np.array(meta.dimensions, np.int32)
        made.type = getattr(self._schema.TensorType, name or _TYPES[meta.type])
        made.buffer = 0
        made.quantization = self._quantization(meta)
        self._tensors.append(made)
        return Value(len(self._tensors) - 1, meta)

    def constant(self, array: Array, meta: TensorType) -> Value:
        """A tensor with these elements."""
        value = self.tensor(meta)
        buffer = self._schema.BufferT()
        data = np.ascontiguousarray(array, DTYPES[meta.type])
        buffer.data = (
            (data != 0).view(np.uint8).reshape(-1)
            if (meta.type is _T.TENSOR_BOOL8)
            else data.reshape(-1).view(np.uint8)
        )
        self._tensors[value.index].buffer = len(self._buffers)
        self._buffers.append(buffer)
        self._arrays[value.index] = data
        self._folded.add(value.index)
        return value

    def operator(
        self,
        name: str,
        inputs: Sequence[Value],
        outputs: Sequence[TensorType],
        options: str = "",
        **fields: object,
    ) -> list[Value]:
        """Append an operator.

        Args:
            name: in BuiltinOperator.
            inputs: what it reads.
            outputs: types of what it writes.
            options: name of its table of options, without "Options"; empty for none.
            fields: of that table.
        """
        made = self._schema.OperatorT()
        made.opcodeIndex = self._codes.setdefault(name, len(self._codes))
        made.inputs = np.array([value.index for value in inputs], np.int32)
        results = [self.tensor(meta) for meta in outputs]
        made.outputs = np.array([value.index for value in results], np.int32)
        if options:
            made.builtinOptionsType = getattr(self._schema.BuiltinOptions, f"{options}Options")
            made.builtinOptions = getattr(self._schema, f"{options}OptionsT")()
            for field, value in fields.items():
                setattr(made.builtinOptions, field, value)
        for value in inputs:
            self._reads[value.index] = self._reads.get(value.index, 0) + 1
        if all(value.index in self._folded for value in inputs):
            self._folded.update(value.index for value in results)
        written = Written(name, tuple(inputs), made)
        self._producers.update(dict.fromkeys((value.index for value in results), written))
        self._operators.append(made)
        return results

    def fuse(self, value: Value, activation: int) -> bool:
        """Make the operator that wrote `value` apply `activation`, if that is possible.

        It is not if `value` has been read already or the operator applies another one.
        """
        written = self._producers.get(value.index)
        if written is None or written.activation != _NONE or self._reads.get(value.index):
            return False
        written.raw.builtinOptions.fusedActivationFunction = activation
        return True

    def producer(self, value: Value) -> Written | None:
        """The operator that writes `value`; None for an input or a constant."""
        return self._producers.get(value.index)

    def array(self, value: Value) -> Array | None:
        """The elements of a constant; None if it is computed."""
        return self._arrays.get(value.index)

    def is_read(self, value: Value) -> bool:
        """Whether an operator so far reads it."""
        return bool(self._reads.get(value.index))

    def exchange(self, value: Value, inputs: Sequence[Value]) -> None:
        """Let the operator that writes `value` read other operands of the same types."""
        written = self._producers[value.index]
        self._producers[value.index] = Written(written.name, tuple(inputs), written.raw)
        written.raw.inputs = np.array([each.index for each in inputs], np.int32)

    def is_folded(self, value: Value) -> bool:
        """Whether an operator writes it from constants: the engine then keeps it in memory of its own."""
        return value.index in self._folded and value.index in self._producers

    def finish(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> bytes:
        """The file."""
        flatbuffers = import_module(_BUILDER)
        graph = self._schema.SubGraphT()
        graph.tensors, graph.operators = self._tensors, self._without_unread(outputs)
        graph.inputs = np.array([value.index for value in inputs], np.int32)
        graph.outputs = np.array([value.index for value in outputs], np.int32)
        model = self._schema.ModelT()
        model.version = 3
        model.subgraphs, model.buffers = [graph], self._buffers
        model.operatorCodes = [self._operator_code(name) for name in self._codes]
        self._drop_unread(graph.operators, outputs)
        size = sum(b.data.size for b in self._buffers if b.data is not None)
        builder = flatbuffers.Builder(size + (1 << 16))
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _without_unread(self, outputs: Sequence[Value]) -> list[Any]:
        """The operators that outputs depend on."""
        needed = {value.index for value in outputs}
        kept = []
        for raw in reversed(self._operators):
            if needed.intersection(raw.outputs.tolist()):
                needed.update(raw.inputs.tolist())
                kept.append(raw)
        return kept[::-1]

    def _drop_unread(self, operators: Sequence[Any], outputs: Sequence[Value]) -> None:
        """Empty the buffers of constants that neither an operator nor the caller reads."""
        read = {index for raw in operators for index in raw.inputs.tolist()}
        read.update(value.index for value in outputs)
        for index in self._arrays.keys() - read:
            self._buffers[self._tensors[index].buffer].data = None
            self._tensors[index].buffer = 0

    def _operator_code(self, name: str) -> Any:  # noqa: ANN401 - generated code without types
        made = self._schema.OperatorCodeT()
        made.builtinCode = getattr(self._schema.BuiltinOperator, name)
        made.deprecatedBuiltinCode = min(made.builtinCode, 127)
        made.version = 1
        return made

    def _quantization(self, meta: TensorType) -> Any:  # noqa: ANN401
        made = self._schema.QuantizationParametersT()
        params = meta.extra_params
        if isinstance(params, SymmPerChannelQuantParams):
            made.scale = np.array(params.scales, np.float32)
            made.zeroPoint = np.zeros(len(params.scales), np.int64)
            made.quantizedDimension = params.channel_dim
        elif meta.scale or meta.type in QUANTIZED_RANGES:
            made.scale = np.array([meta.scale], np.float32)
            made.zeroPoint = np.array([meta.zero_point], np.int64)
        return made
