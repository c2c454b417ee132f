"""Defines the extensions dev.nnburst.onnx and dev.nnburst.tflite, in which a whole file is one operation.

    operation 0   GRAPH: (file, other files…, inputs…) → outputs
    type 0        FILE: bytes, a constant in a pool; its parameters name the graph's inputs and outputs, in
                  the operation's order, and the other files, whose bytes are the next constants
    types 1 to 7  tensors of element types that NNAPI lacks

Both extensions have the same numbers. All other types are core types. A tensor of rank 0 has shape (1,) here;
an extent that the graph leaves open is 0, and a tensor of open rank has no extents: each request states the
shapes of its inputs, and its result those of the outputs. A .tflite file runs with its default extents.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from nnburst.hal import late_numpy as np
from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import Extension, ExtensionOperandTypeInformation, extension_code
from nnburst.hal.model import ExtensionParams, Model, is_scalar

ONNX: Final = "dev.nnburst.onnx"
TFLITE: Final = "dev.nnburst.tflite"
#: The names of the extensions whose operation is a whole file.
NAMES: Final = (ONNX, TFLITE)
#: The executor that runs the files of each extension.
GRAPH_ENGINES: Final = {ONNX: "onnxruntime", TFLITE: "litert"}
GRAPH: Final = 0
FILE: Final = 0

_T = OperandType


def engine_of(model: Model) -> str | None:
    """The executor that runs a whole file; None for a model of operations."""
    names = [each.name for each in model.extension_name_to_prefix]
    return next((GRAPH_ENGINES[name] for name in names if name in GRAPH_ENGINES), None)


class Element(NamedTuple):
    """An element type of graphs.

    Attributes:
        name: its name in ONNX.
        number: its number in ONNX.
        tflite: its name in .tflite files.
        core: the core operand type of its tensors; None if the extensions define the type.
        extension: number of the extensions' operand type; 0 if it is a core type.
        code: numpy's code of the stored elements; for bfloat16, of its 16 bits.
        size: bytes of one element.
    """

    name: str
    number: int
    tflite: str
    core: OperandType | None
    extension: int
    code: str
    size: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored elements."""
        return np.dtype(self.code)

    @property
    def array_dtype(self) -> np.dtype[Any]:
        """The dtype of arrays: bool, ml_dtypes' bfloat16 if installed, else that of the stored elements."""
        if self.name == "bool":
            return np.dtype(np.bool_)
        return _bfloat16() if self.name == "bfloat16" else self.dtype

    @property
    def is_plain(self) -> bool:
        """Whether elements are only values, not indexes, shapes or conditions, which must not change."""
        return self.name in ("float", "float16", "double", "bfloat16")


ELEMENTS: Final = (
    Element("float", 1, "FLOAT32", _T.TENSOR_FLOAT32, 0, "<f4", 4),
    Element("uint8", 2, "UINT8", _T.TENSOR_QUANT8_ASYMM, 0, "u1", 1),
    Element("int8", 3, "INT8", _T.TENSOR_QUANT8_ASYMM_SIGNED, 0, "i1", 1),
    Element("uint16", 4, "UINT16", None, 5, "<u2", 2),
    Element("int16", 5, "INT16", None, 6, "<i2", 2),
    Element("int32", 6, "INT32", _T.TENSOR_INT32, 0, "<i4", 4),
    Element("int64", 7, "INT64", None, 1, "<i8", 8),
    Element("bool", 9, "BOOL", _T.TENSOR_BOOL8, 0, "u1", 1),
    Element("float16", 10, "FLOAT16", _T.TENSOR_FLOAT16, 0, "<f2", 2),
    Element("double", 11, "FLOAT64", None, 3, "<f8", 8),
    Element("uint32", 12, "UINT32", None, 7, "<u4", 4),
    Element("uint64", 13, "UINT64", None, 2, "<u8", 8),
    Element("bfloat16", 16, "BFLOAT16", None, 4, "<u2", 2),
)
BY_NAME: Final = {element.name: element for element in ELEMENTS}
BY_NUMBER: Final = {element.number: element for element in ELEMENTS}
BY_TFLITE: Final = {element.tflite: element for element in ELEMENTS}
#: The element types of the extensions' tensors, by number of the operand type.
BY_EXTENSION: Final = {element.extension: element for element in ELEMENTS if element.extension}


@functools.cache
def _bfloat16() -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ImportError:
        return np.dtype("<u2")
    return found


class ElementType(NamedTuple):
    """The elements of an operand.

    Attributes:
        dtype: dtype of its arrays; for an extension's type that numpy lacks, an opaque one of the size that
            the device reports.
        is_scalar: whether it has no dimensions.
        name: the type of the elements if numpy has no name for it, "bfloat16"; else empty.
    """

    dtype: np.dtype[Any]
    is_scalar: bool
    name: str = ""


class ElementTypes:
    """The elements of a model's operands, by the codes of their types."""

    def __init__(self, model: Model, extensions: Callable[[], Sequence[Extension]]) -> None:
        """Look up the model's extensions.

        Args:
            model: the model.
            extensions: returns the device's extensions; called only if the model uses any.
        """
        prefixes = {entry.name: entry.prefix for entry in model.extension_name_to_prefix}
        self._known = {
            extension_code(prefixes[extension.name], kind.type): (extension.name, kind)
            for extension in (extensions() if prefixes else ())
            if extension.name in prefixes
            for kind in extension.operand_types
        }

    def of(self, code: int) -> ElementType:
        """The elements of operands of a type; single bytes if the type is unknown."""
        if found := self._known.get(code):
            return _extension_type(*found)
        try:
            core = OperandType(code)
            return ElementType(array_dtype(core), is_scalar(core))
        except (ValueError, KeyError):
            return ElementType(np.dtype("u1"), is_scalar=False)


def array_dtype(kind: OperandType) -> np.dtype[Any]:
    """The dtype of arrays of a core type: bool for BOOL8, else that of the stored elements.

    Raises:
        KeyError: the type has no elements.
    """
    from nnburst.hal.model import DTYPES  # made when it is first asked for

    return np.dtype(np.bool_) if kind in (_T.BOOL, _T.TENSOR_BOOL8) else DTYPES[kind]


def _extension_type(extension: str, kind: ExtensionOperandTypeInformation) -> ElementType:
    """The elements of an extension's operand: opaque bytes, except for whole graphs, with numpy's types."""
    known = BY_EXTENSION.get(kind.type) if extension in NAMES else None
    if known is not None and known.size == kind.byte_size:
        name = known.name if known.name == "bfloat16" else ""
        return ElementType(known.array_dtype, not kind.is_tensor, name)
    return ElementType(np.dtype((np.void, kind.byte_size)), not kind.is_tensor)


def described(name: str) -> Extension:
    """The description of the extension `name`, one of `NAMES`, that a device reports."""
    return Extension(
        name,
        (
            ExtensionOperandTypeInformation(FILE, True, 1),
            *(
                ExtensionOperandTypeInformation(number, True, element.size)
                for number, element in sorted(BY_EXTENSION.items())
            ),
        ),
    )


_MOST_NAMES: Final = 4096


class GraphState(msgspec.Struct, frozen=True, array_like=True):
    """A state that stays in the driver: an output that is an input of the next run.

    Attributes:
        input: name of the graph's input.
        output: name of its output.
        extents: extents of the initial value, which is all zeros; they may include a 0.
    """

    input: str
    output: str
    extents: tuple[int, ...]


class GraphParams(msgspec.Struct, frozen=True, array_like=True):
    """The parameters of the file's operand, beside its bytes.

    With states in slots, the operation has one more input, two unsigned integers of 64 bits: the slot of the
    request, and the number of its runs (csrc/onnxruntime.h describes other values).

    Attributes:
        inputs: names of the graph's inputs, in the operation's order.
        outputs: names of the graph's outputs, in the operation's order.
        files: names by which the file refers to other files.
        states: inputs and outputs that stay in the driver, in slots.
        keeps: whether each slot has its own variables of a .tflite file.
        extents_hold: whether outputs must have the extents that the model declares: for clients in C, which
            read as many elements as are declared.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    files: tuple[str, ...] = ()
    states: tuple[GraphState, ...] = ()
    keeps: bool = False
    extents_hold: bool = False

    @property
    def has_slots(self) -> bool:
        """Whether each request names a slot, by one more input."""
        return self.keeps or bool(self.states)

    def pack(self) -> ExtensionParams:
        """Encode the parameters for an operand."""
        return ExtensionParams(msgspec.msgpack.encode(self))

    @classmethod
    def unpack(cls, params: object, extension: str) -> GraphParams:
        """Decode an operand's parameters, which may be hostile; `extension` is for messages.

        Raises:
            InvalidArgument: they are not the parameters of a file.
        """
        if not isinstance(params, ExtensionParams):
            raise InvalidArgument(f"{extension}: the file has no parameters")
        try:
            found = _decode(params.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"{extension}: parameters of the file: {error}") from None
        if max(map(len, (found.inputs, found.outputs, found.files, found.states))) > _MOST_NAMES:
            raise InvalidArgument(f"{extension}: more than {_MOST_NAMES} names")
        for name in found.files:
            # Engines interpret names of a certain form as addresses of memory.
            if not name or name[0] in "*/\\" or "\0" in name or "_ORT_MEM_ADDR_" in name:
                raise InvalidArgument(f"{extension}: {name!r} is not the name of a file")
        return found


_decode: Final = msgspec.msgpack.Decoder(GraphParams).decode

#: Extents of the input that names a slot.
SLOT_EXTENTS: Final = (2,)
#: Commands in place of a number of runs: open the slot, or reset it if it is open; close it.
OPEN_SLOT: Final = 2**64 - 1
CLOSE_SLOT: Final = 2**64 - 2


def has_slots(model: Model) -> bool:
    """Whether the states of a model stay in the driver, in slots; False if it is not a whole graph."""
    used = [entry for entry in model.extension_name_to_prefix if entry.name in NAMES]
    for operand in model.main.operands:
        for entry in used:
            if operand.type == extension_code(entry.prefix, FILE) and operand.extra_params:
                return GraphParams.unpack(operand.extra_params, entry.name).has_slots
    return False
