"""dev.nnburst.onnx and dev.nnburst.tflite: a whole file as one operation, as clients and drivers speak of it.

    operation 0   GRAPH: (file, other files…, inputs…) → outputs
    type 0        FILE: bytes, a constant in a pool; its parameters name the graph's inputs and outputs, in
                  the order of the operation's, and the other files, whose bytes are the constants behind it
    types 1 to 7  tensors of element types that NNAPI lacks

Both have the same numbers. Everything else is a core type. A tensor of rank 0 is one of shape (1,); an
extent that the graph leaves open is 0, and a rank that it leaves open has no extents: each request carries
its inputs' and gets its outputs'. A .tflite file is computed with the extents that it suggests.
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
#: The extensions whose operation is a whole file.
NAMES: Final = (ONNX, TFLITE)
#: The executor that runs files of each.
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
        name: in ONNX.
        number: in ONNX.
        tflite: name in .tflite files.
        core: operand type of a tensor of it; None if the extensions have it.
        extension: number of the extensions' operand type; 0 if it is a core one.
        code: the elements as they are stored, in numpy's words; bfloat16 as its 16 bits.
        size: bytes of one.
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
        """Of the elements as they are stored."""
        return np.dtype(self.code)

    @property
    def array_dtype(self) -> np.dtype[Any]:
        """Of arrays: of bool, and of ml_dtypes' bfloat16 if that is installed; else as they are stored."""
        if self.name == "bool":
            return np.dtype(np.bool_)
        return _bfloat16() if self.name == "bfloat16" else self.dtype

    @property
    def is_plain(self) -> bool:
        """Whether elements are only values, no index, shape or condition that a peer must not change."""
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
#: Those of the extensions' tensors, by number of the operand type.
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
        dtype: of its arrays; of an extension's type that is not numpy's, opaque and of the size that the
            device reports.
        is_scalar: whether it has no dimensions.
        name: what the elements are if numpy has no name for them, "bfloat16"; else empty.
    """

    dtype: np.dtype[Any]
    is_scalar: bool
    name: str = ""


class ElementTypes:
    """The elements of a model's operands, by the codes of their types."""

    def __init__(self, model: Model, extensions: Callable[[], Sequence[Extension]]) -> None:
        """Look the model's extensions up.

        Args:
            model: the model.
            extensions: what the device reports about its extensions; called if the model uses any.
        """
        prefixes = {entry.name: entry.prefix for entry in model.extension_name_to_prefix}
        self._known = {
            extension_code(prefixes[extension.name], kind.type): (extension.name, kind)
            for extension in (extensions() if prefixes else ())
            if extension.name in prefixes
            for kind in extension.operand_types
        }

    def of(self, code: int) -> ElementType:
        """Of operands of a type; single bytes if it is unknown."""
        if found := self._known.get(code):
            return _extension_type(*found)
        try:
            core = OperandType(code)
            return ElementType(array_dtype(core), is_scalar(core))
        except (ValueError, KeyError):
            return ElementType(np.dtype("u1"), is_scalar=False)


def array_dtype(kind: OperandType) -> np.dtype[Any]:
    """Of arrays of a core type: bool for truth values, whose bytes drivers read; else as they are stored.

    Raises:
        KeyError: it has no elements.
    """
    from nnburst.hal.model import DTYPES  # made when it is first asked for

    return np.dtype(np.bool_) if kind in (_T.BOOL, _T.TENSOR_BOOL8) else DTYPES[kind]


def _extension_type(extension: str, kind: ExtensionOperandTypeInformation) -> ElementType:
    """Of an extension's operand: bytes, but for whole graphs, whose types are numpy's, too."""
    known = BY_EXTENSION.get(kind.type) if extension in NAMES else None
    if known is not None and known.size == kind.byte_size:
        name = known.name if known.name == "bfloat16" else ""
        return ElementType(known.array_dtype, not kind.is_tensor, name)
    return ElementType(np.dtype((np.void, kind.byte_size)), not kind.is_tensor)


def described(name: str) -> Extension:
    """The extension that a device reports under one of `NAMES`."""
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
        extents: at first, when it is all zeros; they may have a 0.
    """

    input: str
    output: str
    extents: tuple[int, ...]


class GraphParams(msgspec.Struct, frozen=True, array_like=True):
    """The parameters of the file's operand, beside its bytes.

    With states by slots the operation has one more input, two unsigned integers of 64 bits: the slot of the
    request, and how many runs it has had (csrc/onnxruntime.h has what else they may be).

    Attributes:
        inputs: names of the graph's inputs that are the operation's.
        outputs: names of its outputs, likewise.
        files: names by which it refers to other files.
        states: inputs and outputs that stay in the driver, by slots.
        keeps: whether each slot has the variables of a .tflite file for itself.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    files: tuple[str, ...] = ()
    states: tuple[GraphState, ...] = ()
    keeps: bool = False

    @property
    def has_slots(self) -> bool:
        """Whether a request names a slot, by one more input."""
        return self.keeps or bool(self.states)

    def pack(self) -> ExtensionParams:
        """As an operand carries it."""
        return ExtensionParams(msgspec.msgpack.encode(self))

    @classmethod
    def unpack(cls, params: object, extension: str) -> GraphParams:
        """From an operand's parameters, which may be anything; `extension` is for messages.

        Raises:
            InvalidArgument: they are not these.
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
            # Engines read names of a form of their own as addresses of memory.
            if not name or name[0] in "*/\\" or "\0" in name or "_ORT_MEM_ADDR_" in name:
                raise InvalidArgument(f"{extension}: {name!r} is not the name of a file")
        return found


_decode: Final = msgspec.msgpack.Decoder(GraphParams).decode

#: Extents of the input that names a slot.
SLOT_EXTENTS: Final = (2,)
#: In place of a number of runs: open the slot, anew if it is open; close it.
OPEN_SLOT: Final = 2**64 - 1
CLOSE_SLOT: Final = 2**64 - 2


def has_slots(model: Model) -> bool:
    """Whether states of a model stay in the driver, by slots; no for a model that is no whole graph."""
    used = [entry for entry in model.extension_name_to_prefix if entry.name in NAMES]
    for operand in model.main.operands:
        for entry in used:
            if operand.type == extension_code(entry.prefix, FILE) and operand.extra_params:
                return GraphParams.unpack(operand.extra_params, entry.name).has_slots
    return False
