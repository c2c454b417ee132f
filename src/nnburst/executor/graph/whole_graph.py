"""Finds whole graphs in a model, copies them, and compares them with the client's declarations."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from nnburst.executor.base import Bytes, memory_of
from nnburst.hal.errors import GeneralFailure, InvalidArgument
from nnburst.hal.extensions import number_of, prefix_of
from nnburst.hal.model import Model, Operand, is_extension
from nnburst.hal.whole_graph import BY_NAME, FILE, GRAPH, SLOT_EXTENTS, Element, GraphParams

#: Bytes of the input that names a slot.
SLOT_BYTES: Final = 16
#: The most slots that one prepared model has.
MAX_SLOTS: Final = 1024


class Apart(IntEnum):
    """Whether an engine reads an argument in place or from a copy (csrc/copies.h)."""

    IN_ITS_PLACE = 0
    COPIED = 1
    COPIED_TRUTH = 2

    @classmethod
    def of_input(cls, element: Element) -> Apart:
        """An input's kind: integers are copied, since a client must not change an index during a run."""
        if element.is_plain:
            return cls.IN_ITS_PLACE
        return cls.COPIED_TRUTH if element.name == "bool" else cls.COPIED

    @classmethod
    def of_output(cls, element: Element) -> Apart:
        """An output's kind: integers are copied, since an engine may read again what it has written."""
        return cls.IN_ITS_PLACE if element.is_plain else cls.COPIED


class WholeGraph(msgspec.Struct, frozen=True, array_like=True):
    """A copy of a client's graph, with the files that belong to it.

    Attributes:
        prefix: the number that the client's model gives the extension.
        params: declared inputs and outputs of the graph, and the names of its other files.
        content: bytes of the graph's own file.
        files: bytes of the other files, by name.
    """

    prefix: int
    params: GraphParams
    content: bytes
    files: dict[str, bytes]

    def pack(self) -> bytes:
        """The graph as bytes for a cache."""
        return msgspec.msgpack.encode(self)


_decode: Final = msgspec.msgpack.Decoder(WholeGraph).decode


def unpack(program: bytes) -> WholeGraph:
    """The graph that `WholeGraph.pack` packed.

    Raises:
        GeneralFailure: `pack` did not make these bytes.
    """
    try:
        return _decode(program)
    except (msgspec.MsgspecError, ValueError) as error:
        raise GeneralFailure(f"a malformed program: {error}") from error


def graph_prefix(model: Model, extension: str) -> int | None:
    """The extension's prefix, if the model is one whole graph of that extension; None otherwise."""
    prefixes = {e.prefix for e in model.extension_name_to_prefix if e.name == extension}
    operations = model.main.operations
    if len(operations) != 1 or model.referenced:
        return None
    kind = operations[0].type
    if is_extension(kind) and prefix_of(kind) in prefixes and number_of(kind) == GRAPH:
        return prefix_of(kind)
    return None


def take_graph(model: Model, pools: Sequence[Bytes], extension: str) -> WholeGraph | None:
    """Copy the whole graph that a model consists of; None if the model does not use the extension.

    Raises:
        InvalidArgument: the model uses the extension in any other way.
    """
    if all(entry.name != extension for entry in model.extension_name_to_prefix):
        return None
    prefix = graph_prefix(model, extension)
    if prefix is None:
        raise InvalidArgument(f"a model with {extension} must be that one operation alone")
    params, operands = _file_operands(model, prefix, extension)
    parts = []
    for operand in operands:
        at = operand.location
        # TRUST: copied once, since the client may change the pool; everything is read from the copy
        pool = memory_of(pools, at.pool_index)
        parts.append(bytes(pool[at.offset : at.offset + at.length]))
    return WholeGraph(prefix, params, parts[0], dict(zip(params.files, parts[1:], strict=True)))


def _file_operands(model: Model, prefix: int, extension: str) -> tuple[GraphParams, list[Operand]]:
    """The parameters of the graph, and the operands that hold its file and the other files.

    Raises:
        InvalidArgument: the operation does not have the files first and then the model's inputs and outputs.
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
            params = GraphParams.unpack(operand.extra_params, extension)
        found.append(operand)
    if params is None or len(found) != 1 + len(params.files):
        raise InvalidArgument(
            f"{extension}: {len(found)} files, expected the graph's and those it names"
        )
    if operation.inputs[len(found) :] != main.input_indexes:
        raise InvalidArgument(f"{extension}: the operation's inputs are not the model's, in order")
    if operation.outputs != main.output_indexes:
        raise InvalidArgument(f"{extension}: the operation's outputs are not the model's, in order")
    return params, found


class GraphTensor(NamedTuple):
    """An input or output of an engine.

    Attributes:
        name: the engine's name for the tensor.
        element: type of its elements.
        extents: -1 stands for an open one; None if the rank is not known.
    """

    name: str
    element: Element
    extents: tuple[int, ...] | None


def check_declared(
    model: Model, graph: WholeGraph, inputs: Sequence[GraphTensor], outputs: Sequence[GraphTensor]
) -> None:
    """Compare what the client declares with the engine's inputs and outputs.

    Raises:
        InvalidArgument: they differ.
    """
    main, params = model.main, graph.params
    given = main.input_indexes[:-1] if params.has_slots else main.input_indexes
    if params.has_slots:
        if not main.input_indexes:
            raise InvalidArgument("the model has no inputs, expected one that names a slot")
        _check_slot(main.operands[main.input_indexes[-1]], graph.prefix)
    for side, said, known, indexes in (
        ("input", params.inputs, inputs, given),
        ("output", params.outputs, outputs, main.output_indexes),
    ):
        names = tuple(tensor.name for tensor in known)
        if said != names or len(names) != len(indexes):
            raise InvalidArgument(
                f"the graph has the {side}s {list(names)}, the model declares {list(said)}"
            )
        for tensor, index in zip(known, indexes, strict=True):
            what = f"{side} {tensor.name!r}"
            _check_type(what, main.operands[index], graph.prefix, tensor.element)
            _check_extents(what, main.operands[index], tensor.extents)


def _check_slot(said: Operand, prefix: int) -> None:
    _check_type("the input that names a slot", said, prefix, BY_NAME["uint64"])
    if said.dimensions != SLOT_EXTENTS:
        raise InvalidArgument(f"the input that names a slot is {said.dimensions}, expected (2,)")


def _check_type(what: str, said: Operand, prefix: int, known: Element) -> None:
    if is_extension(said.type):
        matches = prefix_of(said.type) == prefix and number_of(said.type) == known.extension
        matches = matches and known.core is None
    else:
        matches = said.type == known.core
    if not matches:
        raise InvalidArgument(f"{what} is {known.name}, the model's operand type is {said.type}")


def _check_extents(what: str, said: Operand, known: tuple[int, ...] | None) -> None:
    if known is None or not said.dimensions:
        return
    wanted = known or (1,)
    if len(said.dimensions) != len(wanted) or any(
        0 not in (a, max(b, 0)) and a != b for a, b in zip(said.dimensions, wanted, strict=True)
    ):
        raise InvalidArgument(
            f"{what} is {list(wanted)}, the model declares {list(said.dimensions)}"
        )
