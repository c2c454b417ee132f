"""What a client's graph may not name, and whether it is what the client declares.

onnxruntime opens files that graph bytes name, reads options that they carry, and takes some names for
addresses of memory. A worker may read files that its client may not. So the bytes are read by our own reader
first, which takes only what every reader of protobuf takes alike: nothing twice, no training graph.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from nnburst.formats.onnx.model import OnnxFile, nodes_of, read_model, tensors_of
from nnburst.hal.errors import InvalidArgument
from nnburst.hal.extensions import number_of, prefix_of
from nnburst.hal.extensions.whole_graph import BY_NUMBER, FILE, GRAPH, NAME, GraphParams
from nnburst.hal.model import Model, Operand
from nnburst.hal.operand_types import is_extension

#: Identifier of the engine's own format, whose offsets it believes.
_OWN_FORMAT: Final = b"ORTM"
#: Operators that name files of compiled parts.
_NAMING_FILES: Final = frozenset({"EPContext"})


def check_content(content: bytes, files: Collection[str]) -> OnnxFile:
    """Read a client's graph; it names no file but those that came with it.

    Args:
        content: the bytes, a copy of our own.
        files: names of the other files whose bytes came along.

    Raises:
        InvalidArgument: it is not an ONNX file, or names another file.
    """
    if content[4:8] == _OWN_FORMAT:
        raise InvalidArgument("the graph is of onnxruntime's own format, expected ONNX")
    file = read_model(content)
    for where, tensor in tensors_of(file):
        if tensor.is_external and tensor.external.get("location") not in files:
            location = tensor.external.get("location", "")
            raise InvalidArgument(
                f"tensor {tensor.name!r} of {where} names the file {location!r}, which was not given"
            )
        if tensor.external and not tensor.is_external:
            raise InvalidArgument(
                f"tensor {tensor.name!r} of {where} names a file and has values, expected one of the two"
            )
    for node in nodes_of(file):
        if node.op_type in _NAMING_FILES:
            raise InvalidArgument(
                f"node {node.name!r} is a {node.op_type}, which may open files and is not run"
            )
    return file


def graph_operation(model: Model) -> int | None:
    """The prefix of dev.nnburst.onnx in a model that is one whole graph; None for any other model."""
    prefixes = {e.prefix for e in model.extension_name_to_prefix if e.name == NAME}
    operations = model.main.operations
    if len(operations) != 1 or model.referenced:
        return None
    kind = operations[0].type
    if is_extension(kind) and prefix_of(kind) in prefixes and number_of(kind) == GRAPH:
        return prefix_of(kind)
    return None


def file_operands(model: Model, prefix: int) -> tuple[GraphParams, list[Operand]]:
    """The parameters of the graph's file, and the operands of it and of the other files.

    Raises:
        InvalidArgument: the operation is not what it has to be.
    """
    main, operation = model.main, model.main.operations[0]
    params: GraphParams | None = None
    found: list[Operand] = []
    for index in operation.inputs:
        operand = main.operands[index]
        if not is_extension(operand.type) or number_of(operand.type) != FILE:
            break
        if prefix_of(operand.type) != prefix:
            break
        if params is None:
            params = GraphParams.unpack(operand.extra_params)
        found.append(operand)
    if params is None or len(found) != 1 + len(params.files):
        raise InvalidArgument(
            f"{NAME}: {len(found)} files, expected the graph's and those it names"
        )
    if operation.inputs[len(found) :] != main.input_indexes:
        raise InvalidArgument(f"{NAME}: the operation's inputs are not the model's, in order")
    if operation.outputs != main.output_indexes:
        raise InvalidArgument(f"{NAME}: the operation's outputs are not the model's, in order")
    return params, found


def check_border(
    what: str, said: Operand, prefix: int, element: int, extents: tuple[int, ...] | None
) -> None:
    """Compare an operand with what the session reports of the input or output.

    Args:
        what: it is, for messages.
        said: the client's.
        prefix: of the extension in the client's model.
        element: ONNX's number of the element type; 0 for what is not a tensor.
        extents: of the session, -1 if open.

    Raises:
        InvalidArgument: they differ.
    """
    known = BY_NUMBER.get(element)
    if known is None or extents is None:
        raise InvalidArgument(f"{what} is of ONNX's type {element}, which {NAME} does not take")
    if is_extension(said.type):
        matches = prefix_of(said.type) == prefix and number_of(said.type) == known.extension
        matches = matches and known.core is None
    else:
        matches = said.type == known.core
    if not matches:
        raise InvalidArgument(f"{what} is {known.name}, the model's operand type is {said.type}")
    wanted = extents or (1,)
    if said.dimensions and (
        len(said.dimensions) != len(wanted)
        or any(
            0 not in (a, max(b, 0)) and a != b for a, b in zip(said.dimensions, wanted, strict=True)
        )
    ):
        raise InvalidArgument(
            f"{what} is {list(wanted)}, the model declares {list(said.dimensions)}"
        )
