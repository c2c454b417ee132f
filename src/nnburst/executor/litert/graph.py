"""Writes a .tflite flatbuffer: tensors, constants and operators, in the order of execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.executor.graph.translation import UnsupportedByEngine
from nnburst.formats.tflite_reader import read_format
from nnburst.formats.tflite_writer import NewTable, write
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandType
from nnburst.hal.model import QUANTIZED_RANGES, SymmPerChannelQuantParams

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
_ACTIVATION: Final = "FusedActivationFunction"
#: Operators whose kernels apply the activation in their options, for every type that is lowered. Others have
#: an activation in the format, too, but CONCATENATION's kernels ignore or refuse it, L2_NORMALIZATION's
#: refuses it, and the rest are not lowered.
_ACTIVATING: Final = frozenset({
    "ADD", "SUB", "MUL", "DIV", "CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED",
    "AVERAGE_POOL_2D", "MAX_POOL_2D",
})  # fmt: skip


class Value(msgspec.Struct, frozen=True):
    """A tensor of the graph.

    Attributes:
        index: the tensor's number in the graph.
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
        name: its name in BuiltinOperator.
        inputs: values that it reads.
        raw: the operator's table as it is written to the file.
    """

    name: str
    inputs: tuple[Value, ...]
    raw: NewTable

    @property
    def activation(self) -> int | None:
        """The fused activation; None if the operator's kernels apply none."""
        if self.name not in _ACTIVATING:
            return None
        options: NewTable = self.raw.fields["BuiltinOptions"]
        return int(options.fields.get(_ACTIVATION, _NONE))


class GraphWriter:
    """One subgraph being written. Not thread-safe.

    The versions of all operators are 1: every kernel has a version 1, and none depends on the number.
    """

    def __init__(self) -> None:
        self._enumerations = read_format().enumerations
        self._buffers = [NewTable("Buffer")]  # buffer 0 is the empty one
        self._tensors: list[NewTable] = []
        self._operators: list[NewTable] = []
        self._codes: dict[str, int] = {}
        self._producers: dict[int, Written] = {}
        self._constants: dict[int, Tensor] = {}
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
        made = NewTable(
            "Tensor",
            Name=f"t{len(self._tensors)}".encode(),
            Shape=meta.dimensions,
            Type=self._enumerations["TensorType"][name or _TYPES[meta.type]],
            Quantization=_quantization(meta),
        )
        self._tensors.append(made)
        return Value(len(self._tensors) - 1, meta)

    def constant(self, array: Array, meta: TensorType) -> Value:
        """A tensor with these elements."""
        return self.stored(Tensor(meta, np.ascontiguousarray(array, meta.dtype)))

    def stored(self, tensor: Tensor) -> Value:
        """A constant tensor; its bytes are written without making an array, if they are known."""
        value = self.tensor(tensor.meta)
        data: memoryview | Array | None = tensor.stored
        if data is None or tensor.type is _T.TENSOR_BOOL8:
            found = tensor.array
            kept = found != 0 if tensor.type is _T.TENSOR_BOOL8 else found
            data = kept.reshape(-1).view(np.uint8)
        self._tensors[value.index].fields["Buffer"] = len(self._buffers)
        self._buffers.append(NewTable("Buffer", Data=data))
        self._constants[value.index] = tensor
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
            name: the operator's name in BuiltinOperator.
            inputs: values that it reads.
            outputs: types of the values that it writes.
            options: name of its table of options, without "Options"; empty for none.
            fields: fields of that table.
        """
        results = [self.tensor(meta) for meta in outputs]
        kind = f"{options}Options" if options else "NONE"
        named = {f"{field[0].upper()}{field[1:]}": value for field, value in fields.items()}
        made = NewTable(
            "Operator",
            OpcodeIndex=self._codes.setdefault(name, len(self._codes)),
            Inputs=_indices(inputs),
            Outputs=_indices(results),
            BuiltinOptionsType=self._enumerations["BuiltinOptions"][kind],
            BuiltinOptions=NewTable(kind, **named) if options else None,
        )
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

        It is not possible if `value` has been read already or the operator applies another activation.
        """
        written = self._producers.get(value.index)
        if written is None or written.activation != _NONE or self._reads.get(value.index):
            return False
        written.raw.fields["BuiltinOptions"].fields[_ACTIVATION] = activation
        return True

    def producer(self, value: Value) -> Written | None:
        """The operator that writes `value`; None for an input or a constant."""
        return self._producers.get(value.index)

    def array(self, value: Value) -> Array | None:
        """The elements of a constant; None if it is computed."""
        found = self._constants.get(value.index)
        return None if found is None else found.array

    def is_read(self, value: Value) -> bool:
        """Whether an operator appended so far reads `value`."""
        return bool(self._reads.get(value.index))

    def exchange(self, value: Value, inputs: Sequence[Value]) -> None:
        """Replace the inputs of the operator that writes `value` with others of the same types."""
        written = self._producers[value.index]
        self._producers[value.index] = Written(written.name, tuple(inputs), written.raw)
        written.raw.fields["Inputs"] = _indices(inputs)

    def is_folded(self, value: Value) -> bool:
        """Whether an operator computes `value` from constants: the engine then keeps it in its own memory."""
        return value.index in self._folded and value.index in self._producers

    def finish(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> bytes:
        """Finish the graph; the bytes of the file."""
        operators = self._without_unread(outputs)
        self._empty_unread(operators, outputs)
        graph = NewTable(
            "SubGraph",
            Tensors=self._tensors,
            Operators=operators,
            Inputs=_indices(inputs),
            Outputs=_indices(outputs),
        )
        model = NewTable(
            "Model",
            Version=3,
            Subgraphs=[graph],
            Buffers=self._buffers,
            OperatorCodes=[self._operator_code(name) for name in self._codes],
        )
        return write(model)

    def _without_unread(self, outputs: Sequence[Value]) -> list[NewTable]:
        """The operators that outputs depend on."""
        needed = {value.index for value in outputs}
        kept = []
        for raw in reversed(self._operators):
            if needed.intersection(raw.fields["Outputs"]):
                needed.update(raw.fields["Inputs"])
                kept.append(raw)
        return kept[::-1]

    def _empty_unread(self, operators: Sequence[NewTable], outputs: Sequence[Value]) -> None:
        """Empty the buffers of constants that neither an operator nor the caller reads."""
        read = {index for raw in operators for index in raw.fields["Inputs"]}
        read.update(value.index for value in outputs)
        for index in self._constants.keys() - read:
            tensor = self._tensors[index].fields
            self._buffers[tensor.pop("Buffer")].fields["Data"] = None

    def _operator_code(self, name: str) -> NewTable:
        code = self._enumerations["BuiltinOperator"][name]
        return NewTable("OperatorCode", BuiltinCode=code, DeprecatedBuiltinCode=min(code, 127))


def _indices(values: Sequence[Value]) -> list[int]:
    return [value.index for value in values]


def _quantization(meta: TensorType) -> NewTable:
    params = meta.extra_params
    if isinstance(params, SymmPerChannelQuantParams):
        return NewTable(
            "QuantizationParameters",
            Scale=params.scales,
            ZeroPoint=[0] * len(params.scales),
            QuantizedDimension=params.channel_dim,
        )
    if meta.scale or meta.type in QUANTIZED_RANGES:
        return NewTable("QuantizationParameters", Scale=[meta.scale], ZeroPoint=[meta.zero_point])
    return NewTable("QuantizationParameters")
