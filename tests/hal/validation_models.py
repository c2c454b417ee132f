"""Small models for the validation tests, and ways to change one thing about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nnburst.hal.enums import FeatureLevel, OperandLifeTime, OperandType, OperationType
from nnburst.hal.model import DataLocation, Model, Operand, Operation, Subgraph
from nnburst.hal.model_builder import ModelBuilder
from nnburst.hal.signature import Form, Role, Signature, Slot, TypeRow

L = OperandLifeTime
T = OperandType

SIGNATURES: Mapping[OperationType, Signature] = {
    OperationType.ADD: Signature(
        OperationType.ADD,
        FeatureLevel.V1_0,
        (
            Form(
                (Slot("a", "T"), Slot("b", "T"), Slot("activation", T.INT32, Role.CONTROL)),
                (Slot("sum", "T"),),
            ),
        ),
        (
            TypeRow(FeatureLevel.V1_0, {"T": T.TENSOR_FLOAT32}),
            TypeRow(FeatureLevel.V1_2, {"T": T.TENSOR_FLOAT16}),
        ),
        "Adds.",
    )
}


def adder(dimensions: tuple[int, ...] = (2,), **built: Any) -> Model:
    """Operands 0 input, 1 constant, 2 activation, 3 output; operation 0 adds 0 and 1."""
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, dimensions)
    y = builder.constant(T.TENSOR_FLOAT32, [1.0, 2.0])
    act = builder.scalar(0)
    out = builder.output(T.TENSOR_FLOAT32, dimensions)
    builder.operation(OperationType.ADD, [x, y, act], [out])
    return builder.build(**built)


def chain() -> Model:
    """0 input, 1 constant, 2 activation, 3 temporary, 4 output; 3 = 0 + 1, 4 = 3 + 1."""
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, (2,))
    y = builder.constant(T.TENSOR_FLOAT32, [1.0, 2.0])
    act = builder.scalar(0)
    between = builder.temporary(T.TENSOR_FLOAT32, (2,))
    out = builder.output(T.TENSOR_FLOAT32, (2,))
    builder.operation(OperationType.ADD, [x, y, act], [between])
    builder.operation(OperationType.ADD, [between, y, act], [out])
    return builder.build()


def brancher(dimensions: tuple[int, ...] = (2,)) -> Model:
    """IF over two adders: 0 condition, 1 then, 2 else, 3 input, 4 output."""
    builder = ModelBuilder()
    condition = builder.input(T.TENSOR_BOOL8, (1,))
    branches = [builder.subgraph(_add_branch(builder, dimensions)) for _ in range(2)]
    x = builder.input(T.TENSOR_FLOAT32, dimensions)
    out = builder.output(T.TENSOR_FLOAT32, dimensions)
    builder.operation(OperationType.IF, [condition, *branches, x], [out])
    return builder.build()


def looper(dimensions: tuple[int, ...] = (2,)) -> Model:
    """WHILE: 0 condition model, 1 body model, 2 initial value, 3 output."""
    builder = ModelBuilder()
    condition, graph = builder.add_subgraph()
    graph.input(T.TENSOR_FLOAT32, dimensions)
    limit = graph.constant(T.TENSOR_FLOAT32, [9.0, 9.0])
    decision = graph.output(T.TENSOR_BOOL8, (1,))
    graph.operation(OperationType.LESS, [0, limit], [decision])
    body = _add_branch(builder, dimensions)
    inputs = [builder.subgraph(condition), builder.subgraph(body)]
    x = builder.input(T.TENSOR_FLOAT32, dimensions)
    out = builder.output(T.TENSOR_FLOAT32, dimensions)
    builder.operation(OperationType.WHILE, [*inputs, x], [out])
    return builder.build()


def _add_branch(builder: ModelBuilder, dimensions: tuple[int, ...]) -> int:
    index, graph = builder.add_subgraph()
    x = graph.input(T.TENSOR_FLOAT32, dimensions)
    y = graph.constant(T.TENSOR_FLOAT32, [1.0, 1.0])
    out = graph.output(T.TENSOR_FLOAT32, dimensions)
    graph.operation(OperationType.ADD, [x, y, graph.scalar(0)], [out])
    return index


def nested(depth: int) -> Model:
    """IF within IF: main runs referenced[0], which runs referenced[1], and so on."""
    builder = ModelBuilder()
    graphs = [builder.add_subgraph()[1] for _ in range(depth)]
    for level, graph in enumerate([builder, *graphs]):
        x = graph.input(T.TENSOR_FLOAT32, (2,))
        out_of = graph.output
        if level == depth:
            y = graph.constant(T.TENSOR_FLOAT32, [1.0, 1.0])
            graph.operation(
                OperationType.ADD, [x, y, graph.scalar(0)], [out_of(T.TENSOR_FLOAT32, (2,))]
            )
            continue
        condition = graph.constant(T.TENSOR_BOOL8, [1])
        branches = [graph.subgraph(level), graph.subgraph(level)]
        inner = [condition, *branches, x]
        graph.operation(OperationType.IF, inner, [out_of(T.TENSOR_FLOAT32, (2,))])
    return builder.build()


def with_graph(model: Model, graph: int | None = None, **changes: Any) -> Model:
    """The model with fields of `main` (or of a referenced subgraph) replaced."""
    if graph is None:
        return replace(model, main=replace(model.main, **changes))
    referenced = list(model.referenced)
    referenced[graph] = replace(referenced[graph], **changes)
    return replace(model, referenced=tuple(referenced))


def _graph(model: Model, graph: int | None) -> Subgraph:
    return model.main if graph is None else model.referenced[graph]


def with_operand(
    model: Model, index: int, graph: int | None = None, **changes: Any
) -> Model:  # fmt: skip
    """The model with fields of one operand replaced."""
    operands = list(_graph(model, graph).operands)
    operands[index] = replace(operands[index], **changes)
    return with_graph(model, graph, operands=tuple(operands))


def with_operation(
    model: Model, number: int, graph: int | None = None, **changes: Any
) -> Model:  # fmt: skip
    """The model with fields of one operation replaced, and the consumers counted anew."""
    operations = list(_graph(model, graph).operations)
    operations[number] = replace(operations[number], **changes)
    return recounted(with_graph(model, graph, operations=tuple(operations)), graph)


def recounted(model: Model, graph: int | None = None) -> Model:
    """The model with `number_of_consumers` as the operations have it."""
    subgraph = _graph(model, graph)
    reads = [index for operation in subgraph.operations for index in operation.inputs]
    operands = tuple(
        replace(operand, number_of_consumers=reads.count(index))
        for index, operand in enumerate(subgraph.operands)
    )
    return with_graph(model, graph, operands=operands)


def plus(model: Model, operand: Operand) -> Model:
    """The model with one more operand of main, listed as input or output if it is one."""
    main = model.main
    index = len(main.operands)
    changes: dict[str, Any] = {"operands": (*main.operands, operand)}
    if operand.lifetime == L.SUBGRAPH_INPUT:
        changes["input_indexes"] = (*main.input_indexes, index)
    if operand.lifetime == L.SUBGRAPH_OUTPUT:
        changes["output_indexes"] = (*main.output_indexes, index)
    return with_graph(model, **changes)


def probe(kind: int, dimensions: tuple[int, ...] = (), **fields: Any) -> Model:
    """An adder with one more input, of the given type."""
    fields.setdefault("lifetime", L.SUBGRAPH_INPUT)
    return plus(adder(), Operand(kind, dimensions, **fields))


def constant(kind: int, dimensions: tuple[int, ...], length: int, **fields: Any) -> Model:
    """An adder with one more constant, `length` bytes from the start of operand_values."""
    location = DataLocation(length=length)
    return plus(
        adder(), Operand(kind, dimensions, lifetime=L.CONSTANT_COPY, location=location, **fields)
    )


def operation(kind: int, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Operation:
    """Short for the struct."""
    return Operation(kind, inputs, outputs)
