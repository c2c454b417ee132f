"""Represents an operator that is being translated; has the table of operators that can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nnburst.formats.tflite_reader import File, MalformedTflite, names, schema
from nnburst.hal.enums import FusedActivationFunc, OperandType, OperationType, PaddingScheme
from nnburst.hal.utils import registers
from nnburst.importer.subgraph import Argument, Missing, Opaque, Scalar, Value
from nnburst.importer.tensors import QUANT8, Constant, Refused, TensorType
from nnburst.importer.tflite.graph import Graph, Variables, indexes

_T = OperandType

#: A table without fields, in place of options that a file omits.
_NO_FIELDS: Final = File(b"\x04\0\4\0\4\0\0\0")
#: The most integers of a constant that steers an operation (paddings of 16 dimensions are 32).
_MOST_INTEGERS: Final = 4096

_O = OperationType
#: Operations whose quantised inputs and outputs have one quantisation: the file's own engine then works on
#: stored integers, whatever they stand for, while NNAPI's operations refuse another one or convert.
_KEEPING: Final = frozenset({
    _O.RESHAPE, _O.TRANSPOSE, _O.REVERSE, _O.TILE, _O.PACK, _O.SPLIT, _O.TOPK_V2, _O.SELECT,
    _O.EMBEDDING_LOOKUP, _O.PAD, _O.PAD_V2, _O.MIRROR_PAD, _O.SPACE_TO_DEPTH, _O.DEPTH_TO_SPACE,
    _O.SPACE_TO_BATCH_ND, _O.BATCH_TO_SPACE_ND, _O.RESIZE_BILINEAR, _O.RESIZE_NEAREST_NEIGHBOR,
    _O.MAX_POOL_2D, _O.AVERAGE_POOL_2D, _O.MAXIMUM, _O.MINIMUM, _O.MEAN, _O.REDUCE_MAX, _O.REDUCE_MIN,
    # Comparisons, since the engines round differently, and equal is not equal.
    _O.EQUAL, _O.NOT_EQUAL, _O.GREATER, _O.GREATER_EQUAL, _O.LESS, _O.LESS_EQUAL,
})  # fmt: skip
#: NNAPI: operations whose output has one scale, and one zero point, given for unsigned integers.
_FIXED: Final = {
    _O.LOGISTIC: (1 / 256, 0),
    _O.SOFTMAX: (1 / 256, 0),
    _O.TANH: (1 / 128, 128),
    _O.L2_NORMALIZATION: (1 / 128, 128),
}

FLOAT: Final = frozenset({_T.TENSOR_FLOAT32, _T.TENSOR_FLOAT16})
SIGNED: Final = frozenset({_T.TENSOR_QUANT8_ASYMM_SIGNED})
INT32: Final = frozenset({_T.TENSOR_INT32})
BOOL8: Final = frozenset({_T.TENSOR_BOOL8})


class Operator:
    """One operator of a file: its tensors as values, its options, and the operations that it becomes.

    Methods raise Refused if NNAPI cannot express the operator, and MalformedTflite if the file contradicts
    itself; both are InvalidArgument, and `nnburst.load` adds the operator to the message.

    Attributes:
        name: name of its kind ("CONV_2D").
        graph: the subgraph that it belongs to.
        reference: returns the number in the model of a subgraph of the file, given by index.
        input_tensors: indexes of its input tensors, -1 for an omitted one.
        output_tensors: indexes of its output tensors.
    """

    def __init__(
        self,
        name: str,
        index: int,
        raw: Any,  # noqa: ANN401 - generated code without types
        graph: Graph,
        reference: Callable[[int], int],
        variables: Variables | None,
    ) -> None:
        """`raw` is operator `index` of the file's subgraph; only the main one has `variables`."""
        self.name = name
        self.graph = graph
        self.reference = reference
        self._variables = variables
        self._raw = raw
        self._origin = f"{index} {name}"
        self.input_tensors = indexes(graph.file, raw, "Inputs")
        self.output_tensors = indexes(graph.file, raw, "Outputs")

    def __repr__(self) -> str:
        return f"<operator {self._origin} of a .tflite file>"

    # -- Inputs and options

    @property
    def variables(self) -> Variables:
        """The network's variables.

        Raises:
            Refused: this is not the main subgraph.
        """
        if self._variables is None:
            raise Refused("a variable in a subgraph of IF or WHILE")
        return self._variables

    def optional_tensor(self, position: int) -> int | None:
        """The tensor that is input `position`; None if it is omitted."""
        if position >= len(self.input_tensors) or self.input_tensors[position] == -1:
            return None
        return self.input_tensors[position]

    def optional(self, position: int) -> Value | None:
        """Input `position`; None if it is omitted."""
        tensor = self.optional_tensor(position)
        return None if tensor is None else self.graph.value(tensor)

    def input(self, position: int = 0) -> Value:
        """Input `position`; MalformedTflite if it is missing."""
        tensor = self.optional_tensor(position)
        if tensor is None:
            raise MalformedTflite(f"input {position} is missing")
        return self.graph.value(tensor)

    def inputs(self) -> list[Value]:
        """All inputs; MalformedTflite if one is missing."""
        return [self.input(position) for position in range(len(self.input_tensors))]

    def real_input(self, position: int, like: Value) -> Value:
        """Input `position`; as float32 if `like` is float32 and it is a quantised or float16 constant.

        Weights stay integers, followed by DEQUANTIZE, since NNAPI has no operation on real numbers and
        integers. LiteRT quantises the other input at run time; an executor may do so, too, if the model is
        relaxed.
        """
        found = self.input(position)
        if like.type.type != _T.TENSOR_FLOAT32 or found.constant is None:
            return found
        if found.type.is_quantized:
            self.graph.is_dynamic_range = True
            return self.real_constant(found.constant, weights=True)
        return self.real_constant(found.constant) if found.type.is_float else found

    def real_constant(self, constant: Constant, *, weights: bool = False) -> Value:
        """The float32 numbers of a constant that is quantised or float16."""
        return self.graph.real_constant(constant, self._origin, weights=weights)

    def integers(self, position: int, what: str) -> list[int]:
        """The elements of input `position` (`what` in messages), which must be an int32 constant."""
        found = self.input(position)
        if found.constant is None:
            raise Refused(f"input {position} ({what}) is computed, expected a constant")
        if found.type.type != _T.TENSOR_INT32 or found.type.elements > _MOST_INTEGERS:
            raise Refused(f"input {position} ({what}) is {found.type.type.name}, expected integers")
        self.graph.constants.charge(32 * found.type.elements)
        values = self.graph.constants.read(found.constant)
        return [int(value) for value in values.reshape(-1)]

    def integer(self, position: int, what: str) -> int:
        """The only element of input `position`; see `integers`. Refused if there are more elements."""
        values = self.integers(position, what)
        if len(values) != 1:
            raise Refused(f"input {position} ({what}) has {len(values)} elements, expected 1")
        return values[0]

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from the start; a negative one counts from the end in the file."""
        if not -rank <= value < rank:
            raise MalformedTflite(f"axis {value} of {rank} dimensions")
        return value % rank

    def require(self, condition: bool, reason: str) -> None:
        """Refuse the operator for a reason, unless `condition` is true."""
        if not condition:
            raise Refused(reason)

    def require_type(self, value: Value, accepted: frozenset[OperandType], what: str) -> None:
        """Refuse the operator unless `value` (`what` in the message) is of an accepted type."""
        if value.type.type not in accepted:
            wanted = " or ".join(sorted(kind.name for kind in accepted))
            raise Refused(f"{what} is {value.type.type.name}, NNAPI takes {wanted}")

    # Its options

    def options(self, name: str) -> Any:  # noqa: ANN401
        """The options, an object of the schema's class `name`; defaults if the file leaves them out."""
        found = getattr(schema(), name)()
        kind = names("BuiltinOptions").get(self._raw.BuiltinOptionsType(), "unknown")
        union = self._raw.BuiltinOptions()
        if kind == "NONE" or union is None:
            found.Init(_NO_FIELDS, 4)
        elif kind == name:
            found.Init(union.Bytes, union.Pos)
        else:
            raise MalformedTflite(f"options are {kind}, expected {name}")
        return found

    @property
    def custom_options(self) -> bytes:
        """The options of a custom operator; empty if the file has none."""
        if self._raw.CustomOptionsIsNone():
            return b""
        found = self._raw.CustomOptionsAsNumpy()
        self.graph.budget.spend(2 * len(found))
        return bytes(found)

    def activation(self, options: Any) -> int:  # noqa: ANN401
        """The code of the fused activation; Refused if NNAPI cannot fuse it."""
        code = int(options.FusedActivationFunction())
        if code not in FusedActivationFunc.__members__.values():
            name = names("ActivationFunctionType").get(code, f"activation {code}")
            raise Refused(f"fused {name}, NNAPI fuses only NONE, RELU, RELU1 and RELU6")
        return code

    def padding(self, options: Any) -> int:  # noqa: ANN401
        """The code of the padding scheme."""
        name = names("Padding").get(options.Padding())
        if name is None:
            raise MalformedTflite(f"padding {options.Padding()} is unknown")
        return int(PaddingScheme[name])

    def real(self, value: float, like: Value) -> Scalar:
        """A scalar with a real value: float16 if `like` is float16, else float32."""
        half = like.type.type == _T.TENSOR_FLOAT16
        return Scalar(float(value), _T.FLOAT16 if half else _T.FLOAT32)

    # -- Operations and results

    def output_type(self, position: int = 0) -> TensorType:
        """Type and dimensions of the operand that output `position` becomes."""
        if position >= len(self.output_tensors):
            raise MalformedTflite(
                f"{len(self.output_tensors)} outputs, expected more than {position}"
            )
        return self.graph.computed_type(self.output_tensors[position])

    def output(self, position: int = 0) -> Value:
        """Make a new operand output `position`."""
        value = self.graph.temporary(self.output_type(position))
        self.graph.define(self.output_tensors[position], value)
        return value

    def becomes(self, value: Value) -> None:
        """Set the first output to an existing value."""
        if not self.output_tensors:
            raise MalformedTflite("0 outputs, expected more than 0")
        self.graph.define(self.output_tensors[0], value)

    def emit(
        self,
        kind: OperationType,
        inputs: Sequence[Argument | None],
        outputs: Sequence[Value] | None = None,
    ) -> None:
        """Add an operation.

        Args:
            kind: the operation.
            inputs: inputs in NNAPI's order; None for an omitted one, which is a float32 tensor.
            outputs: values that the operation writes; by default all of the operator's outputs.
        """
        if outputs is None:
            outputs = [self.output(position) for position in range(len(self.output_tensors))]
        given = [Missing(_T.TENSOR_FLOAT32) if value is None else value for value in inputs]
        self._require_quantization(
            kind, [value for value in given if isinstance(value, Value)], outputs
        )
        self.graph.add(kind, given, outputs, self._origin)

    def _require_quantization(
        self, kind: OperationType, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> None:
        """Refuse scales and zero points with which NNAPI's operation computes other integers, or nothing."""
        if kind in _KEEPING:
            found = [each.type for each in (*inputs, *outputs) if each.type.type in QUANT8]
            self.require(
                all(each.same_quantization(found[0]) for each in found),
                "inputs and outputs differ in their quantisation",
            )
        made = outputs[0].type if outputs else None
        if made is not None and made.type in QUANT8 and kind in _FIXED:
            scale, middle = _FIXED[kind]
            zero = middle if made.type == _T.TENSOR_QUANT8_ASYMM else middle - 128
            self.require(
                (made.scale, made.zero_point) == (scale, zero),
                f"the output has scale {made.scale:g} and zero point {made.zero_point},"
                f" NNAPI's {scale:g} and {zero}",
            )

    def emit_custom(self, operation: int, options: int | None) -> None:
        """Add an operation of an extension, with the operator's inputs and outputs.

        Args:
            operation: code of the operation in the model.
            options: type code of one more input with the bytes of the custom options; None for no such input.
        """
        given: list[Argument] = [
            Missing(_T.TENSOR_FLOAT32) if (x := self.optional(at)) is None else x
            for at in range(len(self.input_tensors))
        ]
        if options is not None:
            given.append(Opaque(options, self.custom_options))
        outputs = [self.output(position) for position in range(len(self.output_tensors))]
        self.graph.add(operation, given, outputs, self._origin)

    def temporary(self, kind: TensorType) -> Value:
        """A new operand between two operations."""
        return self.graph.temporary(kind)

    def constant_scalar(self, position: int, what: str) -> np.generic:
        """The only element of input `position`, as stored; Refused unless it is a constant of one element."""
        found = self.input(position)
        if found.constant is None or found.type.elements != 1:
            raise Refused(f"input {position} ({what}) is not one constant number")
        element: np.generic = self.graph.constants.read(found.constant).reshape(-1)[0]
        return element


Translate = Callable[[Operator], None]
TABLE: Final[dict[str, Translate]] = {}


def operator(*kinds: str) -> Callable[[Translate], Translate]:
    """Register the decorated function as the translation of these operators."""
    return registers(TABLE, *kinds)


def translation(kind: str) -> Translate:
    """The translation of an operator.

    Raises:
        Refused: it has no such operand.
    """
    if kind not in TABLE:
        raise Refused("NNAPI has no operation for it")
    return TABLE[kind]
