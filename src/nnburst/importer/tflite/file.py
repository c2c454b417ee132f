"""Reads the parts of a .tflite file, or imports the whole file as one operation.

The parts are subgraphs, operator names, buffers, signatures and metadata. The one operation belongs to the
extension dev.nnburst.tflite, with the file's bytes in a pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nnburst.formats.tflite_graph import MAIN, BorderTensor, read_graph, with_shapes
from nnburst.formats.tflite_reader import IDENTIFIER, File, MalformedTflite, names, root_table
from nnburst.hal.enums import OperandLifeTime
from nnburst.hal.errors import InvalidArgument, spelt
from nnburst.hal.model import DataLocation, MemoryPool, Operand
from nnburst.hal.model_builder import ModelBuilder, UsedExtension
from nnburst.hal.whole_graph import (
    BY_NAME,
    BY_TFLITE,
    FILE,
    GRAPH,
    SLOT_EXTENTS,
    TFLITE,
    GraphParams,
)
from nnburst.importer.imported_model import ImportedModel, SignatureDef, unused_name

#: Values of `Buffer.offset` up to this one mean that the data lies in the buffer itself.
_NO_OFFSET: Final = 1
#: Bytes charged for objects that are made of the file's parts, rounded up generously.
OPERATOR_COST: Final = 2048
TENSOR_COST: Final = 1024
ENTRY_COST: Final = 256


class TfliteFile:
    """A file whose header was checked; everything else is checked when it is read.

    Attributes:
        bytes: the file, which counts the memory and work that reading costs.
        model: the root table.
    """

    def __init__(self, content: bytes) -> None:
        """Check the header.

        Raises:
            InvalidArgument: it is not a .tflite file.
        """
        self.bytes = File(content)
        if len(content) < 8 or content[4:8] != IDENTIFIER:
            raise MalformedTflite(f"bytes 4 to 8 are {content[4:8]!r}, expected {IDENTIFIER!r}")
        self.model = root_table(self.bytes)

    def subgraph(self, index: int) -> Any:  # noqa: ANN401 - generated code without types
        """Subgraph `index`."""
        count = self.model.SubgraphsLength()
        if not 0 <= index < count:
            raise MalformedTflite(f"subgraph {index} of {count}")
        return self.model.Subgraphs(index)

    def operator_name(self, operator: Any) -> str:  # noqa: ANN401
        """Name of an operator: "CONV_2D", or "CUSTOM 'x'" for one that is not built in."""
        index, count = operator.OpcodeIndex(), self.model.OperatorCodesLength()
        if index >= count:
            raise MalformedTflite(f"operator code {index} of {count}")
        code = self.model.OperatorCodes(index)
        # Files from before there were more than 127 operators have the older field only.
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = names("BuiltinOperator").get(number, f"operator code {number}")
        return f"CUSTOM {text(code.CustomCode())!r}" if name == "CUSTOM" else name

    def custom_code(self, operator: Any) -> str | None:  # noqa: ANN401
        """The name of a custom operator; None if the operator is built in."""
        code = self.model.OperatorCodes(operator.OpcodeIndex())
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        is_custom = names("BuiltinOperator").get(number) == "CUSTOM"
        return text(code.CustomCode()) if is_custom else None

    def buffer(self, index: int) -> npt.NDArray[np.uint8]:
        """The bytes of a buffer, a read-only view; empty if it has none."""
        count = self.model.BuffersLength()
        if not 0 <= index < count:
            raise MalformedTflite(f"buffer {index} of {count}")
        buffer = self.model.Buffers(index)
        offset, size = buffer.Offset(), buffer.Size()
        if offset > _NO_OFFSET:  # models over 2 GB keep their constants behind the flatbuffer
            return self.bytes.slice(offset, size, f"buffer {index}")
        if buffer.DataIsNone():
            return np.empty(0, np.uint8)
        data: npt.NDArray[np.uint8] = buffer.DataAsNumpy()
        return data

    def metadata(self) -> dict[str, bytes]:
        """Metadata by name."""
        found = {}
        for entry in self.entries(self.model.MetadataLength(), self.model.Metadata):
            data = self.buffer(entry.Buffer())
            self.bytes.spend(len(data))
            found[text(entry.Name())] = data.tobytes()
        return found

    def signatures(self, subgraph: int) -> tuple[SignatureDef, ...]:
        """The signatures of a subgraph, with the names that they give to its tensors."""
        every = self.entries(self.model.SignatureDefsLength(), self.model.SignatureDefs)
        return tuple(
            SignatureDef(
                text(entry.SignatureKey()),
                self._tensor_map(entry.InputsLength(), entry.Inputs),
                self._tensor_map(entry.OutputsLength(), entry.Outputs),
            )
            for entry in every
            if entry.SubgraphIndex() == subgraph
        )

    def positions(
        self, subgraph: int, inputs: Sequence[int], outputs: Sequence[int]
    ) -> tuple[SignatureDef, ...]:
        """The signatures of a subgraph, with positions of inputs and outputs in place of the file's tensors.

        Raises:
            InvalidArgument: a signature names a tensor that is neither an input nor an output.
        """
        into = {tensor: place for place, tensor in enumerate(inputs)}
        out_of = {tensor: place for place, tensor in enumerate(outputs)}
        return tuple(
            SignatureDef(s.key, _placed(s.inputs, into), _placed(s.outputs, out_of))
            for s in self.signatures(subgraph)
        )

    def _tensor_map(self, count: int, get: Callable[[int], Any]) -> dict[str, int]:
        return {text(e.Name()): int(e.TensorIndex()) for e in self.entries(count, get)}

    def entries(self, count: int, get: Callable[[int], Any]) -> Iterator[Any]:
        """The tables of a vector, charged one by one."""
        for index in range(count):
            self.bytes.spend(ENTRY_COST)
            yield get(index)


def text(raw: bytes | None) -> str:
    """A name from the file; bytes that are not UTF-8 are shown as escapes."""
    return (raw or b"").decode("utf-8", "backslashreplace")


def _placed(tensors: Mapping[str, int], places: Mapping[int, int]) -> dict[str, int]:
    for name, tensor in tensors.items():
        if tensor not in places:
            raise MalformedTflite(
                f"a signature's {name!r} is tensor {tensor}, not an input or output"
            )
    return {name: places[tensor] for name, tensor in tensors.items()}


#: Element types whose operands must have a scale.
_SCALED: Final = ("UINT8", "INT8")


def whole_graph(
    content: bytes,
    shapes: Mapping[str, Sequence[int]],
    *,
    stays_open: bool = False,
    resident: bool | None = False,
    extents_hold: bool = False,
) -> ImportedModel:
    """Import a file's main subgraph as one operation.

    Args:
        content: bytes of the file.
        shapes: shapes of inputs that the file leaves open, by name.
        stays_open: whether extents that are still open stay open, so that each request gives them, unless the
            graph keeps a state; otherwise the file's suggestions are used.
        resident: whether each slot has variables of its own; None for slots if the graph has variables.
        extents_hold: see `GraphParams`.

    Raises:
        InvalidArgument: the file is not intact, the extension lacks the type of an input or output, or
            `resident` is True and the file has no variables.
    """
    if shapes:
        content = with_shapes(content, shapes)
    graph = read_graph(content)
    if resident is None:
        resident = graph.has_variables
    if resident and not graph.keeps_state:
        raise InvalidArgument(f"{spelt('resident')}: the file has no variables")
    file = TfliteFile(content)
    pool = np.frombuffer(content, np.uint8)
    params = GraphParams(
        tuple(tensor.name for tensor in graph.inputs),
        tuple(tensor.name for tensor in graph.outputs),
        keeps=resident,
        extents_hold=extents_hold,
    )
    varies = {
        tensor.name
        for tensor in graph.inputs
        if stays_open and not graph.keeps_state and tensor.name not in shapes
    }
    follows = bool(shapes) or any(
        -1 in tensor.signature for tensor in graph.inputs if tensor.name in varies
    )
    builder = ModelBuilder()
    used = builder.extension(TFLITE)
    kept = Operand(
        type=used.operand_type(FILE),
        dimensions=(pool.nbytes,),
        lifetime=OperandLifeTime.CONSTANT_REFERENCE,
        location=DataLocation(0, 0, pool.nbytes),
        extra_params=params.pack(),
    )
    operands = [builder.operand(kept)]
    operands += [
        builder.input(*_border("input", tensor, used, varies=tensor.name in varies))
        for tensor in graph.inputs
    ]
    if resident:
        operands.append(builder.input(used.operand_type(BY_NAME["uint64"].extension), SLOT_EXTENTS))
    # A file's extents of outputs are valid for the suggested inputs, if all extents follow from those of
    # inputs.
    results = [
        builder.output(
            *_border(
                "output",
                tensor,
                used,
                is_open=follows or (tensor.is_open and not graph.is_fixed),
                varies=follows and graph.is_fixed,
            )
        )
        for tensor in graph.outputs
    ]
    builder.operation(used.operation_type(GRAPH), operands, results)
    return ImportedModel(
        model=builder.build(pools=[MemoryPool(pool.nbytes, 0)]),
        pools=(pool,),
        input_names=(*params.inputs, *([unused_name("slot", params.inputs)] if resident else [])),
        output_names=params.outputs,
        signatures=file.positions(
            MAIN,
            [tensor.number for tensor in graph.inputs],
            [tensor.number for tensor in graph.outputs],
        ),
        metadata=file.metadata(),
        description=text(file.model.Description()),
        operators=("the whole graph",),
    )


def _border(
    side: str,
    tensor: BorderTensor,
    used: UsedExtension,
    *,
    is_open: bool = False,
    varies: bool = False,
) -> tuple[Any, ...]:
    """Type, dimensions, scale and zero point of an input or output.

    All dimensions are unknown if `is_open`; if `varies`, too, only those that the file leaves open are.
    """
    element = BY_TFLITE.get(tensor.type)
    if element is None:
        raise InvalidArgument(
            f"{side} {tensor.name!r} is {tensor.type}: {TFLITE} has tensors of numbers"
        )
    kind = element.core if element.core is not None else used.operand_type(element.extension)
    is_scaled = tensor.type in _SCALED
    scale = (tensor.scale or 1.0) if is_scaled else 0.0
    zero_point = tensor.zero_point if is_scaled and tensor.scale else 0
    unknown = is_open or any(extent < 1 for extent in tensor.extents)
    dimensions = () if unknown else tensor.extents or (1,)
    if varies and -1 in tensor.signature:
        dimensions = tuple(max(extent, 0) for extent in tensor.signature)
    return kind, dimensions, scale, zero_point
