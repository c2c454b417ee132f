"""A model's main subgraph as a Graphviz picture, labelled as Android's `graphDump` labels it.

NNAPI: GraphDump.cpp. Operands are ellipses, operations boxes; what enters and leaves the model is
black. Subgraphs of IF and WHILE are not drawn.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nnburst.hal.enums import OperandLifeTime, OperandType, operation_name
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.model import Model, Operand
from nnburst.hal.operand_types import DTYPES
from nnburst.hal.signature import type_name

if TYPE_CHECKING:
    import graphviz

_L = OperandLifeTime
_LIFETIMES: Final = {
    _L.CONSTANT_COPY: "COPY",
    _L.CONSTANT_REFERENCE: "REF",
    _L.NO_VALUE: "NO",
    _L.SUBGRAPH: "SUBGRAPH",
    _L.POINTER: "POINTER",
}
_SHORT_TYPES: Final[dict[int, str]] = {
    OperandType.FLOAT32: "F32",
    OperandType.INT32: "I32",
    OperandType.UINT32: "U32",
    OperandType.TENSOR_FLOAT32: "TF32",
    OperandType.TENSOR_INT32: "TI32",
    OperandType.TENSOR_QUANT8_ASYMM: "TQ8A",
    OperandType.OEM: "OEM",
    OperandType.TENSOR_OEM_BYTE: "TOEMB",
}
_DTYPES: Final = {int(kind): dtype for kind, dtype in DTYPES.items()}
#: Suffixes that hold the description itself; others are formats that `dot` draws.
SOURCE_SUFFIXES: Final = frozenset({".dot", ".gv"})


def write_graph(model: Model, name: str, path: Path) -> None:
    """Write the picture: a `.dot` or `.gv` description, or what Graphviz's `dot` draws of it.

    Raises:
        InvalidArgument: Graphviz does not know the suffix's format, or `dot` is not installed.
        OSError: the file cannot be written.
    """
    from graphviz import CalledProcessError, ExecutableNotFound, RequiredArgumentError

    graph = draw(model, name)
    if path.suffix in SOURCE_SUFFIXES:
        path.write_text(graph.source, encoding="utf-8")
        return
    try:
        path.write_bytes(graph.pipe(format=path.suffix.removeprefix(".")))
    except ExecutableNotFound:
        raise InvalidArgument(
            f"--dot: a {path.suffix} file needs Graphviz's program dot; a .dot file does not"
        ) from None
    except (ValueError, RequiredArgumentError, CalledProcessError) as error:
        raise InvalidArgument(
            f"--dot: {path.suffix} is not a format of Graphviz: {error}"
        ) from None


def draw(model: Model, name: str) -> graphviz.Digraph:
    """The picture of the main subgraph."""
    import graphviz

    main = model.main
    graph = graphviz.Digraph(name)
    for index, operand in enumerate(main.operands):
        label = _operand_label(model, index, operand)
        border = index in main.input_indexes or index in main.output_indexes
        look = {"style": "filled", "fillcolor": "black", "fontcolor": "white"} if border else {}
        graph.node(f"d{index}", graphviz.escape(label).replace("\n", "\\n"), **look)
    for number, operation in enumerate(main.operations):
        order = "out" if len(operation.outputs) > 1 else ""
        order = "in" if len(operation.inputs) > 1 else order
        ordered: dict[str, Any] = {"ordering": order} if order else {}
        label = f"{number}: {operation_name(operation.type)}"
        graph.node(f"n{number}", graphviz.escape(label), shape="box", **ordered)
        for at, index in enumerate(operation.inputs):
            graph.edge(f"d{index}", f"n{number}", str(at) if len(operation.inputs) > 1 else None)
        for at, index in enumerate(operation.outputs):
            graph.edge(f"n{number}", f"d{index}", str(at) if len(operation.outputs) > 1 else None)
    return graph


def _operand_label(model: Model, index: int, operand: Operand) -> str:
    main = model.main
    first = str(index)
    if index in main.input_indexes:
        first += f" = input[{main.input_indexes.index(index)}]"
    if index in main.output_indexes:
        first += f" = output[{main.output_indexes.index(index)}]"
    if operand.lifetime in _LIFETIMES:
        first += f": {_LIFETIMES[operand.lifetime]}"
    kind = _SHORT_TYPES.get(operand.type) or type_name(operand.type)
    extents = f"({'x'.join(map(str, operand.dimensions))})" if operand.dimensions else ""
    return f"{first}\n{kind}{_value(model, operand)}{extents}"


def _value(model: Model, operand: Operand) -> str:
    """The value of a constant of one element whose bytes the model itself holds."""
    if operand.lifetime is not _L.CONSTANT_COPY or math.prod(operand.dimensions) != 1:
        return ""
    dtype = _DTYPES.get(operand.type)
    place = operand.location
    if dtype is None or place.length != dtype.itemsize:
        return ""
    raw = model.operand_values[place.offset : place.offset + place.length]
    return f" = {np.frombuffer(raw, dtype)[0]}"
