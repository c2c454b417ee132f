"""dev.nnburst.onnx: a whole ONNX graph as one operation, as clients and drivers speak of it.

    operation 0   GRAPH: (file, other files…, inputs…) → outputs
    type 0        FILE: bytes, a constant in a pool; its parameters name the graph's inputs and outputs, in
                  the order of the operation's, and the other files, whose bytes are the constants behind it
    types 1 to 7  tensors of element types that NNAPI lacks

Everything else is a core type. A tensor of rank 0 is one of shape (1,); an extent that the graph leaves open
is 0, and a rank that it leaves open has no extents: each request carries its inputs' and gets its outputs'.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from nnburst.hal.enums import OperandType
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import ExtensionParams

NAME: Final = "dev.nnburst.onnx"
GRAPH: Final = 0
FILE: Final = 0

_T = OperandType


class Element(NamedTuple):
    """An element type of ONNX.

    Attributes:
        name: in ONNX.
        number: in ONNX.
        core: operand type of a tensor of it; None if the extension has it.
        extension: number of the extension's operand type; 0 if it is a core one.
        dtype: of the elements; bfloat16 as its 16 bits.
    """

    name: str
    number: int
    core: OperandType | None
    extension: int
    dtype: np.dtype[Any]


ELEMENTS: Final = (
    Element("float", 1, _T.TENSOR_FLOAT32, 0, np.dtype("<f4")),
    Element("uint8", 2, _T.TENSOR_QUANT8_ASYMM, 0, np.dtype("u1")),
    Element("int8", 3, _T.TENSOR_QUANT8_ASYMM_SIGNED, 0, np.dtype("i1")),
    Element("uint16", 4, None, 5, np.dtype("<u2")),
    Element("int16", 5, None, 6, np.dtype("<i2")),
    Element("int32", 6, _T.TENSOR_INT32, 0, np.dtype("<i4")),
    Element("int64", 7, None, 1, np.dtype("<i8")),
    Element("bool", 9, _T.TENSOR_BOOL8, 0, np.dtype("u1")),
    Element("float16", 10, _T.TENSOR_FLOAT16, 0, np.dtype("<f2")),
    Element("double", 11, None, 3, np.dtype("<f8")),
    Element("uint32", 12, None, 7, np.dtype("<u4")),
    Element("uint64", 13, None, 2, np.dtype("<u8")),
    Element("bfloat16", 16, None, 4, np.dtype("<u2")),
)
BY_NAME: Final = {element.name: element for element in ELEMENTS}
BY_NUMBER: Final = {element.number: element for element in ELEMENTS}
#: Element types of the extension's tensors, by number of the operand type.
DTYPES: Final = {element.extension: element.dtype for element in ELEMENTS if element.extension}

_MOST_NAMES: Final = 4096


class GraphParams(msgspec.Struct, frozen=True, array_like=True):
    """What the file's operand has beside its bytes.

    Attributes:
        inputs: names of the graph's inputs.
        outputs: names of its outputs.
        files: names by which it refers to other files.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    files: tuple[str, ...] = ()

    def pack(self) -> ExtensionParams:
        """As an operand carries it."""
        return ExtensionParams(msgspec.msgpack.encode(self))

    @classmethod
    def unpack(cls, params: object) -> GraphParams:
        """From an operand's parameters, which may be anything.

        Raises:
            InvalidArgument: they are not these.
        """
        if not isinstance(params, ExtensionParams):
            raise InvalidArgument(f"{NAME}: the file has no parameters")
        try:
            found = _decode(params.data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"{NAME}: parameters of the file: {error}") from None
        if max(map(len, (found.inputs, found.outputs, found.files))) > _MOST_NAMES:
            raise InvalidArgument(f"{NAME}: more than {_MOST_NAMES} names")
        for name in found.files:
            # Engines read names of a form of their own as addresses of memory.
            if not name or name[0] in "*/\\" or "\0" in name or "_ORT_MEM_ADDR_" in name:
                raise InvalidArgument(f"{NAME}: {name!r} is not the name of a file")
        return found


_decode: Final = msgspec.msgpack.Decoder(GraphParams).decode
